// Tensor memory of tcgen05: allocation, loads and stores of a warp, copies from shared memory, waits and commits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"
#include "shared_tile.hpp"
#include "tensor_work.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// ---- allocation

unsigned columns_of(PtxWarp& warp, const Operand& operand, bool exclusive) {
  const std::uint32_t columns = common_number(warp, operand, "the number of columns");
  const unsigned all = warp.block().tensor_memory().columns();
  const bool power = columns >= 32 && columns <= 512 && (columns & (columns - 1)) == 0;
  if (!power && !(exclusive && columns == all)) {
    throw Violation{FaultKind::kTensorMemory, std::to_string(columns) + " columns; accepted: powers of two from 32 to 512" +
                                                  (exclusive ? ", and all " + std::to_string(all) : "")};
  }
  return columns;
}

template <unsigned group, bool exclusive>
void alloc(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  use_cta_group(warp, group);
  const unsigned columns = columns_of(warp, i.operands[1], exclusive);
  TensorMemory& memory = warp.block().tensor_memory();
  const std::uint32_t pc = *warp.pc();
  const int first =
      group == 2 ? memory.allocate_with(peer_of(warp).tensor_memory(), columns, pc) : memory.allocate(columns, pc);
  if (first < 0) return warp.wait_for_tensor_memory(columns, group);
  const std::uint64_t address = address_of(warp, i.operands[0], 0, i.offset, i.form->memory);
  const SharedPlace where = shared_place(warp, address, i.form->memory, 0);
  const auto value = static_cast<std::uint32_t>(first);
  std::memcpy(where.block->shared().write(where.address, 4, 0), &value, 4);
  warp.note_change();
}

template <unsigned group, bool exclusive>
void dealloc(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  use_cta_group(warp, group);
  const TensorAddress address = common_tensor_address(warp, i.operands[0]);
  warp.block().tensor_memory().deallocate(address.column, columns_of(warp, i.operands[1], exclusive));
  warp.note_change();
}

template <unsigned group>
void relinquish(PtxWarp& warp, const Instruction&, Mask lanes) {
  require_whole_warp(warp, lanes);
  use_cta_group(warp, group);
  warp.block().tensor_memory().relinquish();
}

// ---- loads and stores

enum class Shape : std::uint8_t { k32x32, k16x64, k16x128, k16x256, k16x32x2 };

struct Move {
  Shape shape;
  unsigned registers;
  bool halves;  // of two columns in one register
  enum class Reduction : std::uint8_t { kNone, kMin, kMax } reduction = Reduction::kNone;
  enum class Type : std::uint8_t { kF32, kU32, kS32 } type = Type::kF32;
  bool absolute = false, nan = false;
};

std::vector<Move>& moves() {
  static std::vector<Move> made;
  return made;
}

// Where register r of a lane stands, from the address on.
struct Spot {
  unsigned lane, column;
};
Spot spot(Shape shape, unsigned r, unsigned lane, unsigned split) {
  switch (shape) {
    case Shape::k32x32: return {lane, r};
    case Shape::k16x64: return {lane / 4 + 8 * (lane & 1), 2 * r + (lane >> 1 & 1)};
    case Shape::k16x128: return {lane / 4 + 8 * (r & 1), lane % 4 + 4 * (r >> 1)};
    case Shape::k16x256: return {lane / 4 + 8 * (r >> 1 & 1), lane % 4 * 2 + (r & 1) + 8 * (r >> 2)};
    case Shape::k16x32x2: return {lane % 16, r + (lane >= 16 ? split : 0)};
  }
  return {0, 0};
}

struct Extent {
  unsigned lanes, columns;  // columns of each half for k16x32x2
};
Extent extent_of(const Move& move) {
  const unsigned factor = move.halves ? 2 : 1;
  switch (move.shape) {
    case Shape::k32x32: return {32, move.registers * factor};
    case Shape::k16x64: return {16, move.registers * 2 * factor};
    case Shape::k16x128: return {16, move.registers * 2 * factor};
    case Shape::k16x256: return {16, move.registers * 2 * factor};
    case Shape::k16x32x2: return {16, move.registers * factor};
  }
  return {0, 0};
}

// The address, and the ranges that a move covers. A warp reaches the 32 lanes of its quarter whatever the two bits of
// the address say that number quarters: DeepGEMM's epilogues on sm_100 leave them zero in all warps, as NVIDIA's
// example of A in tensor memory does, and say so. An address in another quarter than the first and the warp's own is
// a mistake all the same.
TensorAddress check_reach(PtxWarp& warp, const Operand& operand, const Extent& extent) {
  constexpr unsigned kQuarter = 32;
  TensorAddress address = common_tensor_address(warp, operand);
  const unsigned own = warp.index() % 4, inside = address.lane % kQuarter, named = address.lane / kQuarter;
  const bool reached = (named == 0 || named == own) && (inside == 0 || (extent.lanes == 16 && inside == 16));
  if (!reached) {
    const unsigned first = own * kQuarter;
    throw Violation{FaultKind::kTensorMemory,
                    "lane " + std::to_string(address.lane) + "; this warp reaches from lane " + std::to_string(first) +
                        (extent.lanes == 16 ? " or " + std::to_string(first + 16) : "") + " on",
                    -1, std::uint64_t{address.lane} << 16 | address.column};
  }
  address.lane = own * kQuarter + inside;
  return address;
}

template <typename Function>
void for_ranges(const Move& move, const TensorAddress& address, unsigned split, Function function) {
  const Extent extent = extent_of(move);
  function(TensorMemory::Range{address.lane, extent.lanes, address.column, extent.columns});
  if (move.shape == Shape::k16x32x2) {
    function(TensorMemory::Range{address.lane, extent.lanes, address.column + split, extent.columns});
  }
}

float chosen(const Move& move, float a, float b) {
  if (move.nan ? std::isnan(a) || std::isnan(b) : std::isnan(a) && std::isnan(b)) return bit_cast<float>(kNan32);
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  const bool below = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return below == (move.reduction == Move::Reduction::kMin) ? a : b;
}

std::uint32_t chosen_bits(const Move& move, std::uint32_t a, std::uint32_t b) {
  switch (move.type) {
    case Move::Type::kF32: return bit_cast<std::uint32_t>(chosen(move, bit_cast<float>(a), bit_cast<float>(b)));
    case Move::Type::kU32: return (a < b) == (move.reduction == Move::Reduction::kMin) ? a : b;
    case Move::Type::kS32:
      return (static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b)) ==
                     (move.reduction == Move::Reduction::kMin)
                 ? a
                 : b;
  }
  return a;
}

// Registers have no value where the memory has none: compilers load ahead of a loop that takes no turn, and drop it.
void leave_undefined(PtxWarp& warp, const Instruction& i, const Move& move, const TensorAddress& address, unsigned split) {
  const TensorMemory& memory = warp.block().tensor_memory();
  for (unsigned r = 0; r < move.registers; ++r) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const Spot from = spot(move.shape, r, lane, split);
      const unsigned row = address.lane + from.lane, columns = move.halves ? 2 : 1;
      for (unsigned c = 0; c < columns; ++c) {
        const unsigned column = address.column + columns * from.column + c;
        if (memory.has_value(row, column)) continue;
        const std::uint64_t place = std::uint64_t{row} << 16 | column;
        warp.leave_undefined(i.operands[r], Mask{1} << lane, PtxWarp::Lack::kTensor, place);
        if (move.reduction != Move::Reduction::kNone) {
          warp.leave_undefined(i.operands[move.registers], Mask{1} << lane, PtxWarp::Lack::kTensor, place);
        }
      }
    }
  }
}

// r, [address]{, split} or r, reduced, [address]{, split}
void load(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const Move& move = moves()[i.form->variant];
  const bool reduces = move.reduction != Move::Reduction::kNone;
  const unsigned at = move.registers + (reduces ? 1 : 0);
  const unsigned split = move.shape == Shape::k16x32x2 ? common_number(warp, i.operands[at + 1], "the split") : 0;
  const TensorAddress address = check_reach(warp, i.operands[at], extent_of(move));
  TensorMemory& memory = warp.block().tensor_memory();
  const Actor actor = warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kTensorLoads);
  const std::uint32_t number = ++warp.tensor_work().loads;
  const AccessId access = warp.ordering().of_work(actor, number, true);
  bool is_whole = true;
  for_ranges(move, address, split,
             [&](const TensorMemory::Range& range) { is_whole &= memory.will_read(range, access, 0, false); });
  warp.count_bytes(PtxWarp::Space::kTensor, false, std::uint64_t{move.registers} * kLanes * 4);
  for (unsigned r = 0; r < move.registers; ++r) {
    auto* out = warp.out<std::uint32_t>(i.operands[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const Spot from = spot(move.shape, r, lane, split);
      const std::uint32_t* row = memory.lane(address.lane + from.lane) + address.column;
      out[lane] = move.halves ? (row[2 * from.column] & 0xffff) | row[2 * from.column + 1] << 16 : row[from.column];
    }
  }
  if (reduces) {
    auto* out = warp.out<std::uint32_t>(i.operands[move.registers]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const auto element = [&](unsigned r) {
        const std::uint32_t bits = warp.row<std::uint32_t>(i.operands[r])[lane];
        return move.absolute ? bits & 0x7fffffff : bits;
      };
      std::uint32_t result = element(0);
      for (unsigned r = 1; r < move.registers; ++r) result = chosen_bits(move, result, element(r));
      if (move.type == Move::Type::kF32 && std::isnan(bit_cast<float>(result))) result = kNan32;
      out[lane] = result;
    }
  }
  if (!is_whole) leave_undefined(warp, i, move, address, split);
  for (unsigned r = 0; r < at; ++r) {
    warp.define(i.operands[r].index);
    warp.in_flight().add(i.operands[r].index, {RegistersInFlight::Use::kTensorLoad, 0, number});
  }
}

// [address]{, split}, r. What comes of a register without a value has none either.
void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const bool some_undefined = warp.any_undefined();
  if (some_undefined) warp.want_defined(i.operands[0], lanes);
  const Move& move = moves()[i.form->variant];
  const bool splits = move.shape == Shape::k16x32x2;
  const unsigned split = splits ? common_number(warp, i.operands[1], "the split") : 0;
  const Operand* registers = i.operands.data() + (splits ? 2 : 1);
  const TensorAddress address = check_reach(warp, i.operands[0], extent_of(move));
  TensorMemory& memory = warp.block().tensor_memory();
  const Actor actor = warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kTensorStores);
  const AccessId access = warp.ordering().of_work(actor, ++warp.tensor_work().stores, true);
  for_ranges(move, address, split, [&](const TensorMemory::Range& range) { memory.will_write(range, access, 0); });
  warp.count_bytes(PtxWarp::Space::kTensor, true, std::uint64_t{move.registers} * kLanes * 4);
  for (unsigned r = 0; r < move.registers; ++r) {
    const auto* values = warp.row<std::uint32_t>(registers[r]);
    const Mask undefined = some_undefined ? warp.undefined(registers[r]) : 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const Spot to = spot(move.shape, r, lane, split);
      if ((undefined >> lane & 1) != 0) {
        const unsigned columns = move.halves ? 2 : 1, first = address.column + columns * to.column;
        for (unsigned c = 0; c < columns; ++c) memory.unwrite(address.lane + to.lane, first + c);
      }
      std::uint32_t* row = memory.lane(address.lane + to.lane) + address.column;
      if (move.halves) {
        row[2 * to.column] = values[lane] & 0xffff;
        row[2 * to.column + 1] = values[lane] >> 16;
      } else {
        row[to.column] = values[lane];
      }
    }
  }
}

void wait_load(PtxWarp& warp, const Instruction&, Mask lanes) {
  require_whole_warp(warp, lanes);
  const std::uint32_t loads = warp.tensor_work().loads;
  warp.in_flight().land(RegistersInFlight::Use::kTensorLoad, std::uint64_t{loads} + 1);
  warp.ordering().acquire(warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kTensorLoads), loads);
}

void wait_store(PtxWarp& warp, const Instruction&, Mask lanes) {
  require_whole_warp(warp, lanes);
  warp.ordering().acquire(warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kTensorStores),
                          warp.tensor_work().stores);
}

// With a relaxed arrival or wait they order as a fence does. Otherwise order across threads comes from what carries it:
// public kernels known to be right do without these.
void fence(PtxWarp& warp, const Instruction&, Mask) { warp.ordering().fence(Reach::kBlock); }

// ---- copies from shared memory

struct Copy {
  unsigned rows, chunks;            // of 16 bytes
  enum class To : std::uint8_t { kLanes, kQuarters, kHalves02, kHalves01, kEveryQuarter } to;
  unsigned group;
  unsigned bits = 8;  // of an element in shared memory: of less, 16 of them take the first bytes of a chunk
};

std::vector<Copy>& copies() {
  static std::vector<Copy> made;
  return made;
}

// The lanes to which a row goes.
void for_lanes_of(const Copy& copy, unsigned row, void (*function)(void*, unsigned), void* context) {
  switch (copy.to) {
    case Copy::To::kLanes: function(context, row); break;
    case Copy::To::kEveryQuarter: function(context, 32 * row); break;
    case Copy::To::kHalves02: function(context, row), function(context, row + 64); break;
    case Copy::To::kHalves01:
      function(context, row % 32 + row / 32 * 64), function(context, row % 32 + row / 32 * 64 + 32);
      break;
    case Copy::To::kQuarters:
      for (unsigned quarter = 0; quarter < 4; ++quarter) function(context, row + 32 * quarter);
      break;
  }
}

// The chunk as tensor memory holds it: an element of less than 8 bits in each byte.
std::array<unsigned char, kChunk> unpacked(const std::byte* chunk, unsigned bits) {
  std::array<unsigned char, kChunk> made{};
  std::memcpy(made.data(), chunk, kChunk);
  if (bits == 8) return made;
  const std::array<unsigned char, kChunk> packed = made;
  for (unsigned i = 0; i < kChunk; ++i) {
    unsigned code = 0;
    for (unsigned bit = 0; bit < bits; ++bit) {
      const unsigned from = i * bits + bit;
      code |= (unsigned{packed[from / 8]} >> from % 8 & 1) << bit;
    }
    made[i] = static_cast<unsigned char>(code << shift_in_byte(bits));
  }
  return made;
}

void copy_into(PtxWarp& warp, ThreadBlock& block, const Copy& copy, const TensorAddress& address, const SharedTile& tile,
               AccessId access, int lane) {
  TensorMemory& memory = block.tensor_memory();
  const Actor pipe = tensor_pipe(warp);
  const std::uint64_t window = std::uint64_t{block.rank()} << warp.kernel().rank_shift();
  const unsigned columns = copy.chunks * kChunk / 4;
  const std::uint64_t from_shared = std::uint64_t{copy.rows} * copy.chunks * kChunk;
  warp.count_bytes(block, false, from_shared);
  warp.count_bytes(PtxWarp::Space::kTensor, true, copy.to == Copy::To::kEveryQuarter ? from_shared : std::uint64_t{columns} * 4 * 128);
  if (copy.to == Copy::To::kEveryQuarter) {
    for (unsigned row = 0; row < 4; ++row) {
      memory.will_write({address.lane + 32 * row, 1, address.column, columns}, access, pipe);
    }
  } else {
    memory.will_write({address.lane, 128, address.column, columns}, access, pipe);
  }
  for (unsigned row = 0; row < copy.rows; ++row) {
    for (unsigned chunk = 0; chunk < copy.chunks; ++chunk) {
      const std::uint64_t from = window + tile.k_major(row, chunk);
      const auto bytes = unpacked(block.shared().will_read(from, kChunk, kChunk, access, lane), copy.bits);
      struct Context {
        TensorMemory* memory;
        const unsigned char* bytes;
        unsigned lane, column;
      } context{&memory, bytes.data(), address.lane, address.column + chunk * 4};
      for_lanes_of(
          copy, row,
          [](void* pointer, unsigned to) {
            const auto& where = *static_cast<Context*>(pointer);
            std::memcpy(where.memory->lane(where.lane + to) + where.column, where.bytes, kChunk);
          },
          &context);
    }
  }
}

// [address], descriptor
void copy(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Copy& copy = copies()[i.form->variant];
  use_cta_group(warp, copy.group);
  for_lanes(lanes, [&](unsigned lane) {
    const TensorAddress address = tensor_address(warp, i.operands[0], lane);
    const SharedTile tile = SharedTile::of_blackwell(warp.value(i.operands[1], lane));
    const AccessId access = pipe_access(warp, lane);
    copy_into(warp, warp.block(), copy, address, tile, access, static_cast<int>(lane));
    if (copy.group == 2) copy_into(warp, peer_of(warp), copy, address, tile, access, static_cast<int>(lane));
  });
}

// ---- shift

// [address]: 32 lanes of 32 bytes.
template <unsigned group>
void shift(PtxWarp& warp, const Instruction& i, Mask lanes) {
  use_cta_group(warp, group);
  for_lanes(lanes, [&](unsigned lane) {
    const TensorAddress address = tensor_address(warp, i.operands[0], lane);
    if (address.lane % 32 != 0) {
      throw Violation{FaultKind::kTensorMemory,
                      "tcgen05.shift at lane " + std::to_string(address.lane) + "; accepted: multiples of 32",
                      static_cast<int>(lane)};
    }
    const TensorMemory::Range range{address.lane, 32, address.column, 8};
    shift_down(warp.block(), range, pipe_access(warp, lane), tensor_pipe(warp));
    if (group == 2) shift_down(peer_of(warp), range, pipe_access(warp, lane), tensor_pipe(warp));
  });
}

// ---- commit

class Nothing : public AsyncOperation {
 public:
  void write() override {}
};

// [mbarrier]{, mask}: an arrival when all earlier products and copies of the thread are done.
template <unsigned group, bool multicast>
void commit(PtxWarp& warp, const Instruction& i, Mask lanes) {
  use_cta_group(warp, group);
  const Actor pipe = tensor_pipe(warp);
  TensorWork& work = warp.tensor_work();
  ++work.commits;
  Knowledge released;
  warp.ordering().release(released);
  if (released.seen.size() <= pipe) released.seen.resize(pipe + 1, 0);
  for_lanes(lanes, [&](unsigned lane) {
    Knowledge knowledge = released;
    knowledge.seen[pipe] = std::max(knowledge.seen[pipe], work.of_lane[lane]);
    Issue issue;
    issue.operation = std::make_unique<Nothing>();
    issue.chain = pipe;
    const std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, i.form->memory);
    const unsigned shift = warp.kernel().rank_shift();
    const auto signal = [&](std::uint64_t at) {
      const SharedPlace where = shared_place(warp, at, MemorySpace::kCluster, lane);
      Mbarriers& barriers = where.block->mbarriers();
      if (where.block != &warp.block()) {
        where.block->shared().remote_use().note_work_arrival(pipe, work.of_lane[lane]);
      }
      issue.signals.push_back({&barriers, &barriers.at(where.address, static_cast<int>(lane)), 0, true, knowledge});
    };
    if (multicast) {
      const std::uint64_t mask = warp.value(i.operands[1], lane);
      for (unsigned rank = 0; rank < 16; ++rank) {
        if ((mask >> rank & 1) != 0) {
          signal((address & ((std::uint64_t{1} << shift) - 1)) | std::uint64_t{rank} << shift);
        }
      }
    } else {
      signal(address);
    }
    warp.block().cluster().async().issue(std::move(issue), warp.origin());
  });
}

// ---- forms

std::string number(unsigned value) { return std::to_string(value); }

template <bool exclusive>
void add_allocation(Forms& forms) {
  const std::string kind = exclusive ? ".exclusive" : "";
  for (const std::string space : {"", ".shared"}) {
    const MemorySpace memory = space.empty() ? MemorySpace::kGeneric : MemorySpace::kShared;
    forms.push_back({"tcgen05.alloc" + kind + ".cta_group::1.sync.aligned" + space + ".b32", "A 4", alloc<1, exclusive>, memory});
    forms.push_back({"tcgen05.alloc" + kind + ".cta_group::2.sync.aligned" + space + ".b32", "A 4", alloc<2, exclusive>, memory});
  }
  forms.push_back({"tcgen05.dealloc" + kind + ".cta_group::1.sync.aligned.b32", "4 4", dealloc<1, exclusive>});
  forms.push_back({"tcgen05.dealloc" + kind + ".cta_group::2.sync.aligned.b32", "4 4", dealloc<2, exclusive>});
}

void add_move(Forms& forms, const std::string& opcode, const std::string& operands, const Move& move, Handler handler) {
  Form form;
  form.opcode = opcode;
  form.operands = operands;
  form.handler = handler;
  form.variant = static_cast<std::uint32_t>(moves().size());
  moves().push_back(move);
  forms.push_back(std::move(form));
}

void add_moves(Forms& forms) {
  struct Kind {
    const char* name;
    Shape shape;
    unsigned registers;  // of x1
    unsigned most;
  };
  constexpr std::array<Kind, 5> kKinds{{{"32x32b", Shape::k32x32, 1, 128},
                                        {"16x64b", Shape::k16x64, 1, 128},
                                        {"16x128b", Shape::k16x128, 2, 64},
                                        {"16x256b", Shape::k16x256, 4, 32},
                                        {"16x32bx2", Shape::k16x32x2, 1, 128}}};
  for (const Kind& kind : kKinds) {
    for (unsigned times = 1; times <= kind.most; times *= 2) {
      const unsigned registers = kind.registers * times;
      const std::string name = std::string(".sync.aligned.") + kind.name + ".x" + number(times);
      const std::string split = kind.shape == Shape::k16x32x2 ? " 4" : "";
      const std::string vector = "4*" + number(registers);
      for (const bool halves : {false, true}) {
        add_move(forms, "tcgen05.ld" + name + (halves ? ".pack::16b" : "") + ".b32", "~" + vector + " T" + split,
                 {kind.shape, registers, halves}, load);
        add_move(forms, "tcgen05.st" + name + (halves ? ".unpack::16b" : "") + ".b32", "T" + split + " " + vector,
                 {kind.shape, registers, halves}, store);
        forms.back().undefined = Form::Undefined::kHandled;
      }
      if (times < 2 || (kind.shape != Shape::k32x32 && kind.shape != Shape::k16x32x2)) continue;
      const std::string red = std::string("tcgen05.ld.red.sync.aligned.") + kind.name + ".x" + number(times);
      const std::string operands = "~" + vector + " ~4 T" + split;
      for (const auto& [operation, reduction] :
           {std::pair{".min", Move::Reduction::kMin}, std::pair{".max", Move::Reduction::kMax}}) {
        for (const bool absolute : {false, true}) {
          for (const bool nan : {false, true}) {
            add_move(forms, red + operation + (absolute ? ".abs" : "") + (nan ? ".NaN" : "") + ".f32", operands,
                     {kind.shape, registers, false, reduction, Move::Type::kF32, absolute, nan}, load);
          }
        }
        add_move(forms, red + operation + ".u32", operands,
                 {kind.shape, registers, false, reduction, Move::Type::kU32}, load);
        add_move(forms, red + operation + ".s32", operands,
                 {kind.shape, registers, false, reduction, Move::Type::kS32}, load);
      }
    }
  }
}

void add_copies(Forms& forms) {
  struct Kind {
    const char* name;
    unsigned rows, chunks;
    Copy::To to;
  };
  constexpr std::array<Kind, 6> kKinds{{{"128x256b", 128, 2, Copy::To::kLanes},
                                        {"128x128b", 128, 1, Copy::To::kLanes},
                                        {"4x256b", 4, 2, Copy::To::kEveryQuarter},
                                        {"64x128b.warpx2::02_13", 64, 1, Copy::To::kHalves02},
                                        {"64x128b.warpx2::01_23", 64, 1, Copy::To::kHalves01},
                                        {"32x128b.warpx4", 32, 1, Copy::To::kQuarters}}};
  for (const Kind& kind : kKinds) {
    for (const unsigned group : {1U, 2U}) {
      for (const auto& [format, bits] :
           {std::pair{"", 8U}, std::pair{".b8x16.b6x16_p32", 6U}, std::pair{".b8x16.b4x16_p64", 4U}}) {
        Form form;
        form.opcode = "tcgen05.cp.cta_group::" + number(group) + "." + kind.name + format;
        form.operands = "T 8";
        form.handler = copy;
        form.variant = static_cast<std::uint32_t>(copies().size());
        copies().push_back({kind.rows, kind.chunks, kind.to, group, bits});
        forms.push_back(std::move(form));
      }
    }
  }
}

template <unsigned group>
void add_commits(Forms& forms) {
  const std::string start = "tcgen05.commit.cta_group::" + number(group) + ".mbarrier::arrive::one";
  for (const auto& [space, memory] :
       {std::pair{"", MemorySpace::kGeneric}, std::pair{".shared::cluster", MemorySpace::kCluster},
        std::pair{".shared", MemorySpace::kShared}}) {
    forms.push_back({start + space + ".b64", "A", commit<group, false>, memory});
    forms.push_back({start + space + ".multicast::cluster.b64", "A w2", commit<group, true>, memory});
  }
}

}  // namespace

void add_tensor_memory_forms(Forms& forms) {
  add_allocation<false>(forms);
  add_allocation<true>(forms);
  forms.push_back({"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned", "", relinquish<1>});
  forms.push_back({"tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned", "", relinquish<2>});
  add_moves(forms);
  forms.push_back({"tcgen05.wait::ld.sync.aligned", "", wait_load});
  forms.push_back({"tcgen05.wait::st.sync.aligned", "", wait_store});
  forms.push_back({"tcgen05.fence::before_thread_sync", "", fence});
  forms.push_back({"tcgen05.fence::after_thread_sync", "", fence});
  add_copies(forms);
  for (const std::string form : {".cta_group::1.down", ".down.cta_group::1"}) forms.push_back({"tcgen05.shift" + form, "T", shift<1>});
  for (const std::string form : {".cta_group::2.down", ".down.cta_group::2"}) forms.push_back({"tcgen05.shift" + form, "T", shift<2>});
  add_commits<1>(forms);
  add_commits<2>(forms);
}

}  // namespace msa_ops::emulator::ptx
