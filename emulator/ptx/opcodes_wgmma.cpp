// wgmma: products of a warpgroup, whose operands stand in shared memory.
//
// Warp w of the group makes rows 16 w ... 16 w + 15 of D. In it lane 4 r + c holds of D rows r and r + 8, and of each 8
// columns columns 2 c and 2 c + 1; A in registers is as for mma.sync, sparse A too (sparsity.hpp). The product is made when the instruction is
// issued; that it is finished only at wgmma.wait_group is kept by marking registers and shared memory as in use.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "../matrix/formats.hpp"
#include "../matrix/product.hpp"
#include "aligned.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"
#include "shared_tile.hpp"
#include "sparsity.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using matrix::Element;

constexpr unsigned kRows = 16;         // of a warp
constexpr unsigned kGroupWarps = 4;
constexpr unsigned kMostColumns = 256;
constexpr unsigned kOperandBytes = 32;  // of a row along k
constexpr unsigned kMostDepth = 64;     // of B: sparse operands A stand for rows of 64 bytes

enum class Sum : std::uint8_t { kF32, kF16, kS32, kBits };

struct Wgmma {
  unsigned n;
  Element a, b;
  Sum sum;
  bool saturate;
  bool a_in_registers;
  bool takes_signs, takes_majors;
  bool sparse = false;

  unsigned kept() const { return kOperandBytes * 8 / matrix::bits_of(a); }  // of a row of A
  unsigned k() const { return sparse ? 2 * kept() : kept(); }
  unsigned sums() const { return n / (sum == Sum::kF16 ? 4 : 2); }
};

std::vector<Wgmma>& kinds() {
  static std::vector<Wgmma> made;
  return made;
}

struct Operands {
  const Operand *d, *a, *b, *keep;
  const Operand* metadata = nullptr;  // and behind it the selector
  bool negate_a = false, negate_b = false, a_mn_major = false, b_mn_major = false;
};

int immediate(const PtxWarp& warp, const Operand& operand, const Instruction& i, int least, int most) {
  const auto value = static_cast<std::int32_t>(warp.row<std::uint32_t>(operand)[0]);
  if (operand.space != Operand::Space::kConstants || value < least || value > most || (least < 0 && value == 0)) {
    throw Violation{FaultKind::kDescriptor, "`" + i.form->opcode + "` takes the numbers " + std::to_string(least) +
                                                " and " + std::to_string(most) + " there"};
  }
  return value;
}

Operands operands_of(const PtxWarp& warp, const Instruction& i, const Wgmma& wgmma) {
  Operands made{};
  const Operand* next = i.operands.data();
  made.d = next;
  next += wgmma.sums();
  made.a = next;
  next += wgmma.a_in_registers ? 4 : 1;
  made.b = next++;
  if (wgmma.sparse) {
    made.metadata = next;
    next += 2;
  }
  made.keep = next++;
  if (wgmma.takes_signs) {
    made.negate_a = immediate(warp, *next++, i, -1, 1) < 0;
    made.negate_b = immediate(warp, *next++, i, -1, 1) < 0;
  }
  if (wgmma.takes_majors) {
    if (!wgmma.a_in_registers) made.a_mn_major = immediate(warp, *next++, i, 0, 1) != 0;
    made.b_mn_major = immediate(warp, *next++, i, 0, 1) != 0;
  }
  return made;
}

std::uint64_t uniform(const PtxWarp& warp, const Operand& operand, const char* what) {
  const auto* values = warp.row<std::uint64_t>(operand);
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    if (values[lane] != values[0]) {
      throw Violation{FaultKind::kDescriptor, std::string(what) + " differs between lanes", static_cast<int>(lane)};
    }
  }
  return values[0];
}

// ---- registers

void require_fence(const PtxWarp& warp, std::uint32_t index, bool constants_too) {
  const WgmmaState& wgmma = warp.wgmma();
  if (wgmma.is_fenced(index) && (!constants_too || wgmma.is_fenced_constant(index))) return;
  throw Violation{FaultKind::kWgmmaFence,
                  warp.name_of(index) + (warp.wgmma().any_fence() ? " was touched after the last wgmma.fence"
                                                                  : " is used by wgmma before any wgmma.fence")};
}

void require_defined(const PtxWarp& warp, std::uint32_t index) {
  if (const Mask missing = ~warp.defined(index); missing != 0) {
    throw Violation{FaultKind::kUninitializedRegister, warp.name_of(index) + " is read and has no value",
                    __builtin_ctz(missing)};
  }
}

// Whether D is read: its registers must then hold a value, or be written by a wgmma of the same shape before.
void claim_sums(PtxWarp& warp, const Wgmma& wgmma, const Operands& operands, std::uint32_t form, bool kept) {
  for (unsigned r = 0; r < wgmma.sums(); ++r) {
    const std::uint32_t index = operands.d[r].index;
    const auto& state = warp.in_flight().of(index);
    const std::uint32_t owner = form << 8 | r;
    if (state.use != RegistersInFlight::Use::kNone) {
      if (state.use != RegistersInFlight::Use::kSum || state.owner != owner) {
        throw Violation{FaultKind::kInFlight, warp.name_of(index) + " " + RegistersInFlight::describe(state.use) +
                                                  ", and that one had another shape or place for it"};
      }
    } else {
      require_fence(warp, index, false);
      if (kept) require_defined(warp, index);
    }
    warp.in_flight().add(index, {RegistersInFlight::Use::kSum, owner, warp.wgmma().group()});
    warp.wgmma().give_other(index);
    warp.define(index);
  }
}

void claim_operands(PtxWarp& warp, const Operands& operands) {
  for (unsigned r = 0; r < 4; ++r) {
    const std::uint32_t index = operands.a[r].index;
    const auto& state = warp.in_flight().of(index);
    if (RegistersInFlight::stops_reading(state.use)) {
      throw Violation{FaultKind::kInFlight, warp.name_of(index) + " " + RegistersInFlight::describe(state.use)};
    }
    require_fence(warp, index, true);
    require_defined(warp, index);
    warp.in_flight().add(index, {RegistersInFlight::Use::kOperand, 0, warp.wgmma().group()});
  }
}

// Where register r of a lane stands in [16][n]; for fp16 the first of two columns.
template <bool halves>
unsigned place(unsigned r, unsigned lane, unsigned n) {
  const unsigned lower = halves ? r & 1 : r >> 1 & 1;
  const unsigned column = halves ? (r >> 1) * 8 + lane % 4 * 2 : (r >> 2) * 8 + lane % 4 * 2 + (r & 1);
  return (lane / 4 + 8 * lower) * n + column;
}

template <typename Number>
void gather_sums(const PtxWarp& warp, const Wgmma& wgmma, const Operand* d, Number* out) {
  for (unsigned r = 0; r < wgmma.sums(); ++r) {
    const auto* values = warp.row<Number>(d[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) out[place<false>(r, lane, wgmma.n)] = values[lane];
  }
}

template <typename Number>
void scatter_sums(PtxWarp& warp, const Wgmma& wgmma, const Operand* d, const Number* in) {
  for (unsigned r = 0; r < wgmma.sums(); ++r) {
    auto* values = warp.out<Number>(d[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) values[lane] = in[place<false>(r, lane, wgmma.n)];
  }
}

void gather_halves(const PtxWarp& warp, const Wgmma& wgmma, const Operand* d, float* out) {
  for (unsigned r = 0; r < wgmma.sums(); ++r) {
    const auto* values = warp.row<std::uint32_t>(d[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const std::uint16_t codes[2]{static_cast<std::uint16_t>(values[lane]),
                                   static_cast<std::uint16_t>(values[lane] >> 16)};
      matrix::floats_from(Element::kF16, codes, out + place<true>(r, lane, wgmma.n), 2);
    }
  }
}

void scatter_halves(PtxWarp& warp, const Wgmma& wgmma, const Operand* d, const float* in) {
  for (unsigned r = 0; r < wgmma.sums(); ++r) {
    auto* values = warp.out<std::uint32_t>(d[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const float* pair = in + place<true>(r, lane, wgmma.n);
      values[lane] = std::uint32_t{matrix::half_from(pair[1])} << 16 | matrix::half_from(pair[0]);
    }
  }
}

// ---- operands as bytes: [rows][32] of K-major ones

void gather_a(const PtxWarp& warp, const Operand* registers, unsigned char* out) {
  for (unsigned r = 0; r < 4; ++r) {
    const auto* values = warp.row<std::uint32_t>(registers[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      std::memcpy(out + (lane / 4 + r % 2 * 8) * kOperandBytes + r / 2 * 16 + lane % 4 * 4, &values[lane], 4);
    }
  }
}

inline void numbers_from(Element element, const unsigned char* packed, std::size_t count, float* out) {
  matrix::floats_from_packed(element, packed, out, count);
}
inline void numbers_from(Element element, const unsigned char* packed, std::size_t count, std::int32_t* out) {
  matrix::integers_from_packed(element, packed, out, count);
}

// Rows of `row_bytes` of an operand in shared memory as [rows][k], or as [k][rows] if `k_outside`.
template <typename Number, typename BytesAt>
void gather_shared(const SharedTile& tile, Element element, bool mn_major, unsigned first, unsigned rows,
                   unsigned row_bytes, bool k_outside, Number* out, BytesAt bytes_at) {
  unsigned char bytes[kMostColumns * 2 * kOperandBytes];
  const unsigned bits = matrix::bits_of(element), k = row_bytes * 8 / bits;
  if (mn_major) copy_mn_major(tile, first, rows, bits, k, bytes, bytes_at);
  else copy_k_major(tile, first, rows, row_bytes, bytes, bytes_at);
  if (mn_major == k_outside) return numbers_from(element, bytes, std::size_t{rows} * k, out);
  Number numbers[kMostColumns * kMostDepth];
  numbers_from(element, bytes, std::size_t{rows} * k, numbers);
  if (mn_major) matrix::transpose(numbers, k, rows, out);
  else matrix::transpose(numbers, rows, k, out);
}

// Reads shared memory through the asynchronous proxy until the warp's present group has been waited for.
class AsyncReader {
 public:
  explicit AsyncReader(PtxWarp& warp)
      : shared_(warp.block().shared()),
        window_(std::uint64_t{warp.block().rank()} << warp.kernel().rank_shift()),
        access_(warp.ordering().of_work(work_of(warp), static_cast<Clock>(warp.wgmma().group() + 1), false)) {}
  const std::byte* at(std::uint32_t address) {
    return shared_.will_read(window_ + address, kChunk, kChunk, access_, -1);
  }
  static Actor work_of(PtxWarp& warp) { return warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kMatrix); }

 private:
  SharedMemory& shared_;
  std::uint64_t window_;
  AccessId access_;
};

template <typename Number>
void gather_operands(PtxWarp& warp, const Wgmma& wgmma, const Operands& operands, Number* a, Number* b) {
  const unsigned first = warp.index() % kGroupWarps * kRows;
  AsyncReader reader(warp);
  const auto bytes_at = [&](std::uint32_t address) { return reader.at(address); };
  if (wgmma.a_in_registers) {
    unsigned char bytes[kRows * kOperandBytes];
    gather_a(warp, operands.a, bytes);
    numbers_from(wgmma.a, bytes, kRows * wgmma.kept(), a);
  } else {
    const auto tile = SharedTile::of_hopper(uniform(warp, *operands.a, "the descriptor of A"));
    gather_shared(tile, wgmma.a, operands.a_mn_major, first, kRows, kOperandBytes, false, a, bytes_at);
  }
  const auto tile = SharedTile::of_hopper(uniform(warp, *operands.b, "the descriptor of B"));
  const unsigned b_bytes = wgmma.sparse ? 2 * kOperandBytes : kOperandBytes;
  gather_shared(tile, wgmma.b, operands.b_mn_major, 0, wgmma.n, b_bytes, true, b, bytes_at);
}

// ---- instructions

// Calls f(number, state) for the other warps of the warpgroup. Violation if there are not four.
template <typename F>
void others_of_group(PtxWarp& warp, F f) {
  const unsigned first = warp.index() / kGroupWarps * kGroupWarps;
  if (first + kGroupWarps > warp.block().num_warps()) {
    throw Violation{FaultKind::kDivergence, "the block ends within this warpgroup: its last warp is " +
                                                std::to_string(warp.block().num_warps() - 1)};
  }
  for (unsigned other = first; other < first + kGroupWarps; ++other) {
    if (other != warp.index()) f(other, static_cast<const PtxWarp&>(warp.block().warp(other)).wgmma());
  }
}

// All warps of a warpgroup execute the same products of the same operands in shared memory.
void issue(PtxWarp& warp, const Wgmma& wgmma, const Operands& operands) {
  const WgmmaState::Product product{*warp.pc(), wgmma.a_in_registers ? 0 : uniform(warp, *operands.a, "the descriptor of A"),
                                    uniform(warp, *operands.b, "the descriptor of B")};
  others_of_group(warp, [&](unsigned other, const WgmmaState& state) {
    const WgmmaState::Product* same = state.product(warp.wgmma().issued());
    if (same == nullptr || *same == product) return;
    const std::string who = "warp " + std::to_string(other) + " of the warpgroup ";
    throw Violation{FaultKind::kDivergence, same->pc == product.pc
                                                ? who + "gave this product other descriptors"
                                                : who + "has the product at " + warp.kernel().where(same->pc) +
                                                      " in place of this one"};
  });
  warp.wgmma().issue(product);
}

bool begin(PtxWarp& warp, const Instruction& i, Mask lanes, const Wgmma& wgmma, const Operands& operands) {
  require_whole_warp(warp, lanes);
  issue(warp, wgmma, operands);
  warp.count_flops(matrix::kind_of(wgmma.a), std::uint64_t{2} * kRows * wgmma.n * wgmma.k());
  const Mask kept = warp.predicate(*operands.keep);
  if (kept != 0 && kept != kAllLanes) {
    throw Violation{FaultKind::kDivergence, "scale-d differs between lanes", __builtin_ctz(~kept)};
  }
  claim_sums(warp, wgmma, operands, i.form->variant, kept != 0);
  if (wgmma.a_in_registers) claim_operands(warp, operands);
  return kept != 0;
}

// Metadata of wgmma ascends: its manual has no other kind.
Sparsity sparsity_of(const PtxWarp& warp, const Wgmma& wgmma, const Operands& operands) {
  return {warp, wgmma.a, wgmma.k(), true, operands.metadata[0], operands.metadata[1]};
}

void wgmma_float(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Wgmma& wgmma = kinds()[i.form->variant];
  const Operands operands = operands_of(warp, i, wgmma);
  const bool kept = begin(warp, i, lanes, wgmma, operands);
  float a[kRows * kMostDepth], b[kMostDepth * kMostColumns], c[kRows * kMostColumns] = {};
  gather_operands(warp, wgmma, operands, a, b);
  if (operands.negate_a != operands.negate_b) {
    for (float& value : a) value = -value;
  }
  const bool halves = wgmma.sum == Sum::kF16;
  if (kept) {
    if (halves) gather_halves(warp, wgmma, operands.d, c);
    else gather_sums(warp, wgmma, operands.d, c);
  }
  const std::uint32_t* order = warp.matrix_order(wgmma.kept());
  if (wgmma.sparse) sparsity_of(warp, wgmma, operands).multiply_add(a, b, c, wgmma.n, order);
  else matrix::multiply_add(a, b, c, {kRows, wgmma.n, wgmma.k()}, order);
  if (halves) scatter_halves(warp, wgmma, operands.d, c);
  else scatter_sums(warp, wgmma, operands.d, c);
}

void wgmma_integer(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Wgmma& wgmma = kinds()[i.form->variant];
  const Operands operands = operands_of(warp, i, wgmma);
  const bool kept = begin(warp, i, lanes, wgmma, operands);
  std::int32_t a[kRows * kMostDepth], b[kMostDepth * kMostColumns], c[kRows * kMostColumns] = {};
  gather_operands(warp, wgmma, operands, a, b);
  if (kept) gather_sums(warp, wgmma, operands.d, c);
  if (wgmma.sparse) sparsity_of(warp, wgmma, operands).multiply_add(a, b, c, wgmma.n, wgmma.saturate);
  else matrix::multiply_add(a, b, c, {kRows, wgmma.n, wgmma.k()}, wgmma.saturate);
  scatter_sums(warp, wgmma, operands.d, c);
}

void wgmma_bits(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Wgmma& wgmma = kinds()[i.form->variant];
  const Operands operands = operands_of(warp, i, wgmma);
  const bool kept = begin(warp, i, lanes, wgmma, operands);
  constexpr unsigned kWords = kOperandBytes / 4;
  std::uint32_t a[kRows][kWords], b[kMostColumns][kWords];
  AsyncReader reader(warp);
  const auto bytes_at = [&](std::uint32_t address) { return reader.at(address); };
  if (wgmma.a_in_registers) {
    gather_a(warp, operands.a, reinterpret_cast<unsigned char*>(a));
  } else {
    const auto tile = SharedTile::of_hopper(uniform(warp, *operands.a, "the descriptor of A"));
    copy_k_major(tile, warp.index() % kGroupWarps * kRows, kRows, kOperandBytes, reinterpret_cast<unsigned char*>(a),
                 bytes_at);
  }
  const auto tile = SharedTile::of_hopper(uniform(warp, *operands.b, "the descriptor of B"));
  copy_k_major(tile, 0, wgmma.n, kOperandBytes, reinterpret_cast<unsigned char*>(b), bytes_at);
  std::int32_t c[kRows * kMostColumns] = {};
  if (kept) gather_sums(warp, wgmma, operands.d, c);
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned column = 0; column < wgmma.n; ++column) {
      auto sum = static_cast<std::uint32_t>(c[row * wgmma.n + column]);
      for (unsigned word = 0; word < kWords; ++word) {
        sum += static_cast<unsigned>(__builtin_popcount(a[row][word] & b[column][word]));
      }
      c[row * wgmma.n + column] = static_cast<std::int32_t>(sum);
    }
  }
  scatter_sums(warp, wgmma, operands.d, c);
}

void fence(PtxWarp& warp, const Instruction&, Mask lanes) {
  require_whole_warp(warp, lanes);
  warp.wgmma().fence();
}

void commit_group(PtxWarp& warp, const Instruction&, Mask lanes) {
  require_whole_warp(warp, lanes);
  const std::uint64_t number = warp.wgmma().group() + 1;
  others_of_group(warp, [&](unsigned other, const WgmmaState& state) {
    const auto [issued, known] = state.issued_before(number);
    if (!known || issued == warp.wgmma().issued()) return;
    throw Violation{FaultKind::kDivergence, "warp " + std::to_string(other) + " of the warpgroup has issued " +
                                                std::to_string(issued) + " products before this commit, this warp " +
                                                std::to_string(warp.wgmma().issued())};
  });
  Knowledge released;
  warp.ordering().release(released);
  warp.wgmma().commit(std::move(released));
  warp.note_change();
}

// All but the latest groups are done; work that was not committed goes on. A product is the warpgroup's: that it is
// done means that the other warps have issued it too, and what they knew when they did.
void wait_group(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const auto kept = warp.row<std::uint32_t>(i.operands[0])[0];
  const std::uint64_t committed = warp.wgmma().group();
  if (committed <= kept) return;
  const unsigned first = warp.index() / kGroupWarps * kGroupWarps;
  for (unsigned other = first; other < first + kGroupWarps && other < warp.block().num_warps(); ++other) {
    if (other == warp.index()) continue;
    const WgmmaState& state = static_cast<const PtxWarp&>(warp.block().warp(other)).wgmma();
    if (state.group() >= committed - kept) continue;
    if (warp.block().done(other)) {
      throw Violation{FaultKind::kDivergence,
                      "warp " + std::to_string(other) + " of the warpgroup has ended without these products"};
    }
    return warp.wait_for_lanes();
  }
  for (unsigned other = first; other < first + kGroupWarps && other < warp.block().num_warps(); ++other) {
    if (other == warp.index()) continue;
    const WgmmaState& state = static_cast<const PtxWarp&>(warp.block().warp(other)).wgmma();
    if (state.group() >= committed - kept) warp.ordering().acquire(state.released_at(committed - kept));
  }
  warp.in_flight().land(RegistersInFlight::Use::kSum, committed - kept);
  warp.in_flight().land(RegistersInFlight::Use::kOperand, committed - kept);
  warp.ordering().acquire(AsyncReader::work_of(warp), static_cast<Clock>(committed - kept));
}

// ---- forms

void add_one(Forms& forms, const std::string& tail, Wgmma wgmma, Handler handler) {
  for (const bool in_registers : {false, true}) {
    wgmma.a_in_registers = in_registers;
    Form form;
    form.opcode = std::string("wgmma.mma_async.") + (wgmma.sparse ? "sp." : "") + "sync.aligned.m64n" +
                  std::to_string(wgmma.n) + "k" + std::to_string(wgmma.k()) + tail + (in_registers ? " a4" : "");
    form.operands = "~4*" + std::to_string(wgmma.sums()) + (in_registers ? " ~4*4" : " 8") + " 8" +
                    (wgmma.sparse ? " ~4 4" : "") + " p";
    if (wgmma.takes_signs) form.operands += " 4 4";
    if (wgmma.takes_majors) form.operands += in_registers ? " 4" : " 4 4";
    form.handler = handler;
    form.variant = static_cast<std::uint32_t>(kinds().size());
    kinds().push_back(wgmma);
    forms.push_back(std::move(form));
  }
}

void add(Forms& forms, const std::string& tail, Wgmma wgmma, Handler handler) {
  for (const bool sparse : {false, true}) {
    wgmma.sparse = sparse;
    if (!sparse || wgmma.sum != Sum::kBits) add_one(forms, tail, wgmma, handler);
  }
}

using Named = std::pair<const char*, Element>;

void add_floats(Forms& forms, unsigned n) {
  const auto kind = [&](Element a, Element b, Sum sum, bool majors) {
    return Wgmma{n, a, b, sum, false, false, true, majors};
  };
  add(forms, ".f32.f16.f16", kind(Element::kF16, Element::kF16, Sum::kF32, true), wgmma_float);
  add(forms, ".f16.f16.f16", kind(Element::kF16, Element::kF16, Sum::kF16, true), wgmma_float);
  add(forms, ".f32.bf16.bf16", kind(Element::kBf16, Element::kBf16, Sum::kF32, true), wgmma_float);
  add(forms, ".f32.tf32.tf32", kind(Element::kTf32, Element::kTf32, Sum::kF32, false), wgmma_float);
  constexpr std::array<Named, 2> kEight{{{"e4m3", Element::kE4m3}, {"e5m2", Element::kE5m2}}};
  for (const auto& [a_name, a] : kEight) {
    for (const auto& [b_name, b] : kEight) {
      const std::string types = std::string(".") + a_name + "." + b_name;
      add(forms, ".f32" + types, kind(a, b, Sum::kF32, false), wgmma_float);
      add(forms, ".f16" + types, kind(a, b, Sum::kF16, false), wgmma_float);
    }
  }
}

void add_integers(Forms& forms, unsigned n) {
  constexpr std::array<Named, 2> kTypes{{{"s8", Element::kS8}, {"u8", Element::kU8}}};
  for (const auto& [a_name, a] : kTypes) {
    for (const auto& [b_name, b] : kTypes) {
      const std::string types = std::string(".s32.") + a_name + "." + b_name;
      add(forms, types, {n, a, b, Sum::kS32, false, false, false, false}, wgmma_integer);
      add(forms, ".satfinite" + types, {n, a, b, Sum::kS32, true, false, false, false}, wgmma_integer);
    }
  }
  add(forms, ".s32.b1.b1.and.popc", {n, Element::kB1, Element::kB1, Sum::kBits, false, false, false, false},
      wgmma_bits);
}

}  // namespace

void add_wgmma_forms(Forms& forms) {
  for (unsigned n = 8; n <= kMostColumns; n += 8) {
    add_floats(forms, n);
    if (n <= 32 || n % 16 == 0) add_integers(forms, n);
  }
  forms.push_back({"wgmma.fence.sync.aligned", "", fence});
  forms.push_back({"wgmma.commit_group.sync.aligned", "", commit_group});
  forms.push_back({"wgmma.wait_group.sync.aligned", "4", wait_group});
}

}  // namespace msa_ops::emulator::ptx
