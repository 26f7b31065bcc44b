// Copies of boxes of tensors, and the tensor maps that describe them.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "addresses.hpp"
#include "landing.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"
#include "tensor_copy.hpp"
#include "tensor_map.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kGather = 4;  // rows of gather4 and scatter4
constexpr unsigned kColumn = 8, kColumnWithoutOffsets = 9;  // of pixels: im2col and im2col_no_offs

std::uint64_t shared_address(PtxWarp& warp, const Operand& operand, unsigned lane) {
  return address_of(warp, operand, lane, operand.addend, MemorySpace::kCluster);
}

// The map at a generic address, which may be a parameter of the kernel.
TensorMap map_at(PtxWarp& warp, const Operand& operand, unsigned lane, unsigned dimensions, bool im2col) {
  const int who = static_cast<int>(lane);
  const std::uint64_t address = warp.value(operand, lane) + operand.addend;
  const std::byte* bytes = warp.block().global().range(address, TensorMap::kBytes, 64, false, who);
  warp.block().cluster().watch().use_map(address, TensorMap::kBytes, who);
  const TensorMap map = TensorMap::decode(bytes);
  if (map.rank != dimensions) {
    throw Violation{FaultKind::kAsync,
                    "a tensor map of " + std::to_string(map.rank) + " dimensions in a copy of " +
                        std::to_string(dimensions),
                    who, address};
  }
  if (map.im2col != im2col) {
    throw Violation{FaultKind::kAsync, map.im2col ? "a tensor map of pixels (im2col) in a copy of a tile"
                                                  : "a tensor map of tiles in a copy of pixels (im2col)", who, address};
  }
  if (const std::string problem = map.problem(); !problem.empty()) {
    throw Violation{FaultKind::kAsync, "the tensor map has " + problem, who, address};
  }
  return map;
}

// The box that the operands from `first` on describe: the map and its coordinates.
Box box_of(PtxWarp& warp, const Instruction& i, unsigned first, unsigned lane, bool stores = false) {
  const bool rows = i.form->variant == kGather;
  const bool pixels = i.form->variant == kColumn || i.form->variant == kColumnWithoutOffsets;
  const unsigned dimensions = rows ? 2 : i.form->count;
  const TensorMap map = map_at(warp, i.operands[first], lane, dimensions, pixels);
  const auto coordinate = [&](unsigned at) {
    return std::int64_t{static_cast<std::int32_t>(warp.value(i.operands[first + 1 + at], lane))};
  };
  const auto check = [&](const Box::Coordinates& coordinates) {
    const std::string problem = problem_of(map, coordinates, stores);
    if (!problem.empty()) throw Violation{FaultKind::kAsync, "a tensor copy has " + problem, static_cast<int>(lane)};
  };
  Box::Coordinates start{};
  if (rows) {
    start[0] = coordinate(0);
    check(start);
    return Box(map, start, {coordinate(1), coordinate(2), coordinate(3), coordinate(4)});
  }
  for (unsigned at = 0; at < dimensions; ++at) start[at] = coordinate(at);
  check(start);
  if (!pixels) return Box(map, start);
  // Behind the mbarrier of a load, or the coordinates of a prefetch.
  std::array<std::int64_t, 3> offsets{};
  const unsigned behind = first + 1 + dimensions + (first == 1 ? 1 : 0);
  for (unsigned at = 0; i.form->variant == kColumn && at < dimensions - 2; ++at) {
    offsets[at] = static_cast<std::uint16_t>(warp.value(i.operands[behind + at], lane));
  }
  return Box(map, start, {}, offsets);
}

unsigned coordinates_of(const Instruction& i) { return i.form->variant == kGather ? 1 + kGather : i.form->count; }

void check_place(std::uint64_t address, int lane) {
  if (address % 128 != 0) {
    throw Violation{FaultKind::kMisaligned, "shared memory of a tensor copy; it takes 128 bytes", lane, address};
  }
}

// A copy's use of the tensor, as work that ends as `work` says.
void watch_box(PtxWarp& warp, const Box& box, bool write, bool strong, AccessId work, int lane) {
  GlobalWatch& watch = warp.block().cluster().watch();
  if (!watch.is_on()) return;
  box.for_ranges([&](std::uint64_t address, std::size_t bytes) {
    watch.use(address, bytes, write, {strong, Reach::kDevice, work}, lane);
  });
}

class LoadTensor : public AsyncOperation {
 public:
  LoadTensor(Box box, std::vector<SharedPlace> to) : box_(std::move(box)), to_(std::move(to)) {}
  void write() override {
    for (const SharedPlace& to : to_) {
      load_box(box_, to.block->shared().bytes(to.address, box_.extent()), to.address);
      to.block->shared().mark_written(to.address, box_.extent());
    }
  }

 private:
  Box box_;
  std::vector<SharedPlace> to_;
};

unsigned offsets_of(const Instruction& i) { return i.form->variant == kColumn ? i.form->count - 2U : 0; }

// [shared], [map, {coordinates}], [mbarrier]{, {offsets}}{, mask of blocks}{, policy}. With a pair of blocks the mbarrier may be in
// either block of the pair; when several blocks receive, it is that of the same parity in each pair.
template <bool multicast, bool pair>
void load_tensor(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const unsigned end = 2 + coordinates_of(i);
  const unsigned shift = warp.kernel().rank_shift();
  const std::uint64_t own = (std::uint64_t{1} << shift) - 1;
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const std::uint64_t to = shared_address(warp, i.operands[0], lane);
    const std::uint64_t barrier = shared_address(warp, i.operands[end], lane);
    Box box = box_of(warp, i, 1, lane);
    check_place(to, who);
    warp.count_read(box.check(warp.block().global(), false, who));
    Issue issue;
    std::vector<SharedPlace> destinations;
    const auto add = [&](std::uint64_t place, std::uint64_t signalled_at) {
      const SharedPlace destination = shared_place(warp, place, i.form->memory, lane);
      const MemorySpace space = pair ? MemorySpace::kCluster : i.form->memory;
      const SharedPlace signalled = shared_place(warp, signalled_at, space, lane);
      if (!pair && destination.block != signalled.block) {
        throw Violation{FaultKind::kAsync, "the mbarrier is in another block than the destination", who, signalled_at};
      }
      if (pair && destination.block->rank() / 2 != signalled.block->rank() / 2) {
        throw Violation{FaultKind::kAsync, "the mbarrier is in another pair of blocks than the destination", who,
                        signalled_at};
      }
      const Landing landing = landing_on(warp, signalled, static_cast<std::int64_t>(box.transaction_bytes()), who);
      destination.block->shared().will_write(place, box.extent(), 16, landing.access, who);
      if (destinations.empty()) watch_box(warp, box, false, false, landing.access, who);
      destinations.push_back(destination);
      warp.count_bytes(*destination.block, true, box.bytes());
      issue.signals.push_back(landing.signal);
      issue.blocks.push_back(destination.block);
    };
    if (multicast) {
      const std::uint64_t mask = warp.value(i.operands[end + 1 + offsets_of(i)], lane);
      for (std::uint64_t rank = 0; rank < 16; ++rank) {
        if ((mask >> rank & 1) == 0) continue;
        const std::uint64_t signalled = pair ? (rank & ~std::uint64_t{1}) | (barrier >> shift & 1) : rank;
        add((to & own) | rank << shift, (barrier & own) | signalled << shift);
      }
    } else {
      add(to, barrier);
    }
    issue.operation = std::make_unique<LoadTensor>(std::move(box), std::move(destinations));
    warp.block().cluster().async().issue(std::move(issue), warp.origin());
  });
}

class StoreTensor : public AsyncOperation {
 public:
  StoreTensor(Box box, SharedMemory& from, std::uint64_t address, Reduction reduction)
      : box_(std::move(box)), from_(from), address_(address), reduction_(reduction), taken_(box_.bytes()) {}
  void read() override { take_box(box_, from_.bytes(address_, box_.extent()), address_, taken_.data()); }
  void write() override {
    static std::mutex mutex;  // threads of the host may reduce into the same global memory
    std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
    if (reduction_ != nullptr) lock.lock();
    store_box(box_, taken_.data(), reduction_);
  }

 private:
  Box box_;
  SharedMemory& from_;
  std::uint64_t address_;
  Reduction reduction_;
  std::vector<std::byte> taken_;
};

// How a kind of reduction combines elements of a map's type; none if it does not.
std::optional<Reduction> reduction_of(const std::string& kind, TensorMap::Type type) {
  using Type = TensorMap::Type;
  std::string name;
  switch (type) {
    case Type::kU32: name = "u32"; break;
    case Type::kS32: name = "s32"; break;
    case Type::kU64: name = "u64"; break;
    case Type::kS64: name = kind == "add" ? "u64" : "s64"; break;
    case Type::kF16: name = "f16"; break;
    case Type::kBf16: name = "bf16"; break;
    case Type::kF32:
    case Type::kTf32: name = "f32"; break;
    case Type::kF64: name = "f64"; break;
    default: return std::nullopt;
  }
  const bool bits = kind == "and" || kind == "or" || kind == "xor";
  if (bits) name = "b" + name.substr(1);
  if (kind == "add" && (name == "f16" || name == "bf16")) name = "noftz." + name;
  std::optional<Reduction> found;
  for_reductions([&](const std::string& other, auto operation, unsigned, bool, bool global) {
    if (global && other == kind + "." + name) found = decltype(operation)::function;
  });
  return found;
}

const std::string kKinds[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};

// [map, {coordinates}], [shared]{, policy}
template <int kind>
void store_tensor(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Ordering& ordering = warp.ordering();
  const unsigned end = 1 + coordinates_of(i);
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    Box box = box_of(warp, i, 0, lane, true);
    const std::uint64_t from = shared_address(warp, i.operands[end], lane);
    check_place(from, who);
    const SharedPlace source = shared_place(warp, from, MemorySpace::kShared, lane);
    Reduction reduction = nullptr;
    if constexpr (kind >= 0) {
      const auto found = reduction_of(kKinds[kind], box.map().type);
      if (!found) {
        throw Violation{FaultKind::kAsync, "a reduction " + kKinds[kind] + " that the tensor's type does not have",
                        who};
      }
      reduction = *found;
    }
    const std::uint64_t group = warp.bulk_groups().open(lane);
    const auto [reading, writing] = warp.bulk_groups().actors(lane, ordering);
    const AccessId access = ordering.of_work(reading, static_cast<Clock>(group), false);
    source.block->shared().will_read(from, box.extent(), 16, access, who);
    warp.count_bytes(*source.block, false, box.bytes());
    warp.count_written(box.check(warp.block().global(), true, who));
    watch_box(warp, box, true, reduction != nullptr, ordering.of_work(writing, static_cast<Clock>(group), false), who);
    Issue issue;
    issue.operation = std::make_unique<StoreTensor>(std::move(box), source.block->shared(), from, reduction);
    issue.queue = warp.bulk_groups().queue(lane);
    issue.group = group;
    // Not issue.blocks: the shared memory of a block that has ended stays until the engine has read it.
    warp.block().cluster().async().issue(std::move(issue), warp.origin());
  });
}

void prefetch_tensor(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    box_of(warp, i, 0, lane).check(warp.block().global_for_prefetch(), false, static_cast<int>(lane));
  });
}

// ---- changing maps

std::byte* map_bytes(PtxWarp& warp, const Instruction& i, unsigned lane) {
  const int who = static_cast<int>(lane);
  const std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, i.form->memory);
  if (address % 64 != 0) throw Violation{FaultKind::kMisaligned, "a tensor map; it takes 64 bytes", who, address};
  if (i.form->memory == MemorySpace::kShared) {
    SharedMemory& shared = shared_place(warp, address, MemorySpace::kShared, lane).block->shared();
    for (unsigned at = 0; at < TensorMap::kUsedBytes; at += 16) shared.read(address + at, 16, who);
    for (unsigned at = 0; at < TensorMap::kUsedBytes; at += 16) shared.write(address + at, 16, who);
    return shared.bytes(address, TensorMap::kBytes);
  }
  std::byte* const bytes = warp.block().global().range(address, TensorMap::kBytes, 64, true, who);
  warp.block().cluster().watch().use(address, TensorMap::kBytes, true, {}, who);
  return bytes;
}

// [map]{, dimension}, value
template <bool dimensioned>
void replace(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto field = static_cast<TensorMap::Field>(i.form->variant);
  for_lanes(lanes, [&](unsigned lane) {
    const auto dimension = dimensioned ? static_cast<unsigned>(warp.value(i.operands[1], lane)) : 0;
    const std::uint64_t value = warp.value(i.operands[dimensioned ? 2 : 1], lane);
    if (dimension >= TensorMap::kMostDimensions) {
      throw Violation{FaultKind::kAsync, "dimension " + std::to_string(dimension) + " of a tensor map",
                      static_cast<int>(lane)};
    }
    TensorMap::replace(map_bytes(warp, i, lane), field, dimension, value);
  });
}

// [global], [shared], 128: by the whole warp
void copy_map(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto first = static_cast<unsigned>(__builtin_ctz(lanes));
  const int who = static_cast<int>(first);
  const std::uint64_t to = warp.value(i.operands[0], first) + i.operands[0].addend;
  const std::uint64_t from = shared_address(warp, i.operands[1], first);
  std::byte* destination = warp.block().global().range(to, TensorMap::kBytes, 128, true, who);
  SharedMemory& shared = shared_place(warp, from, MemorySpace::kShared, first).block->shared();
  for (unsigned at = 0; at < TensorMap::kUsedBytes; at += 16) {
    std::memcpy(destination + at, shared.read(from + at, 16, who), 16);
  }
  GlobalWatch& watch = warp.block().cluster().watch();
  watch.use(to, TensorMap::kBytes, true, {}, who);
  watch.release_maps();
  warp.ordering().fence(i.scope);
  // Compilers leave the rest without a value in shared memory.
  std::memset(destination + TensorMap::kUsedBytes, 0, TensorMap::kBytes - TensorMap::kUsedBytes);
}

void release_maps(PtxWarp& warp, const Instruction& i, Mask) {
  warp.block().cluster().watch().release_maps();
  warp.ordering().fence(i.scope);
}

void acquire_map(PtxWarp& warp, const Instruction& i, Mask lanes) {
  warp.ordering().fence(i.scope);
  std::uint64_t last = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, MemorySpace::kGeneric);
    if (address != last) warp.block().cluster().watch().acquire_map(address);
    last = address;
  });
}

}  // namespace

void add_tensor_forms(Forms& forms) {
  const auto add = [&](const std::string& opcode, const std::string& operands, Handler handler, MemorySpace space,
                       unsigned dimensions, unsigned variant) {
    Form form;
    form.opcode = opcode;
    form.operands = operands;
    form.handler = handler;
    form.memory = space;
    form.count = static_cast<std::uint8_t>(dimensions);
    form.variant = variant;
    forms.push_back(std::move(form));
  };
  const std::string landed = ".mbarrier::complete_tx::bytes", multicast = ".multicast::cluster";
  for (unsigned dimensions = 1; dimensions <= TensorMap::kMostDimensions; ++dimensions) {
    for (const unsigned variant : {0U, kGather, kColumn}) {
      const bool rows = variant == kGather, pixels = variant == kColumn;
      if ((rows && dimensions != 2) || (pixels && dimensions < 3)) continue;
      const std::string d = "." + std::to_string(dimensions) + "d";
      const std::string map = "M" + std::to_string(rows ? 1 + kGather : dimensions);
      const std::string gather = rows ? ".tile::gather4" : pixels ? ".im2col" : "";
      const std::string scatter = rows ? ".tile::scatter4" : pixels ? ".im2col_no_offs" : "";
      const std::string offsets = !pixels ? "" : dimensions == 3 ? " 2*1" : dimensions == 4 ? " 2,2" : " 2,2,2";
      const std::string load = "cp.async.bulk.tensor" + d;
      for (const std::string group : {"", ".cta_group::1", ".cta_group::2"}) {
        const bool pair = group == ".cta_group::2";
        for (const MemorySpace space : {MemorySpace::kCluster, MemorySpace::kShared}) {
          const std::string name = space == MemorySpace::kShared ? ".shared" : ".shared::cluster";
          add(load + name + ".global" + gather + landed + group, "S " + map + " S" + offsets + " 8?",
              pair ? load_tensor<false, true> : load_tensor<false, false>, space, dimensions, variant);
        }
        add(load + ".shared::cluster.global" + gather + landed + multicast + group, "S " + map + " S" + offsets + " 2 8?",
            pair ? load_tensor<true, true> : load_tensor<true, false>, MemorySpace::kCluster, dimensions, variant);
      }
      const std::string store = d + ".global.shared" + scatter;
      const unsigned stored = pixels ? kColumnWithoutOffsets : variant;
      add("cp.async.bulk.tensor" + store + ".bulk_group", map + " S 8?", store_tensor<-1>, MemorySpace::kShared,
          dimensions, stored);
      add("cp.async.bulk.prefetch.tensor" + d + ".L2.global" + gather, map + offsets + " 8?", prefetch_tensor,
          MemorySpace::kGlobal, dimensions, variant);
      if (rows) continue;
      const Handler reductions[] = {store_tensor<0>, store_tensor<1>, store_tensor<2>, store_tensor<3>,
                                    store_tensor<4>, store_tensor<5>, store_tensor<6>, store_tensor<7>};
      for (unsigned kind = 0; kind < 8; ++kind) {
        const std::string mode = pixels ? ".im2col_no_offs" : "";
        add("cp.reduce.async.bulk.tensor" + d + ".global.shared." + kKinds[kind] + mode + ".bulk_group", map + " S 8?",
            reductions[kind], MemorySpace::kShared, dimensions, stored);
      }
    }
  }
  using Field = TensorMap::Field;
  const auto add_field = [&](const std::string& name, const std::string& type, Field field, bool dimensioned) {
    for (const MemorySpace space : {MemorySpace::kGlobal, MemorySpace::kShared, MemorySpace::kGeneric}) {
      const std::string where = space == MemorySpace::kGlobal   ? ".global"
                                : space == MemorySpace::kShared ? ".shared::cta"
                                                                : "";
      add("tensormap.replace.tile." + name + where + ".b1024." + type,
          std::string("A ") + (dimensioned ? "4 " : "") + (type == "b64" ? "8" : "4"),
          dimensioned ? replace<true> : replace<false>, space, 0, static_cast<unsigned>(field));
    }
  };
  add_field("global_address", "b64", Field::kAddress, false);
  add_field("rank", "b32", Field::kRank, false);
  add_field("box_dim", "b32", Field::kBox, true);
  add_field("global_dim", "b32", Field::kSize, true);
  add_field("global_stride", "b64", Field::kStride, true);
  add_field("element_stride", "b32", Field::kStep, true);
  add_field("elemtype", "b32", Field::kType, false);
  add_field("interleave_layout", "b32", Field::kInterleave, false);
  add_field("swizzle_mode", "b32", Field::kSwizzle, false);
  add_field("swizzle_atomicity", "b32", Field::kAtomicity, false);
  add_field("fill_mode", "b32", Field::kFill, false);
  for (const std::string scope : {"cta", "cluster", "gpu", "sys"}) {
    add("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release." + scope + ".sync.aligned", "G S 4",
        copy_map, MemorySpace::kShared, 0, 0);
    add("fence.proxy.tensormap::generic.release." + scope, "", release_maps, MemorySpace::kNone, 0, 0);
    add("fence.proxy.tensormap::generic.acquire." + scope, "A 4", acquire_map, MemorySpace::kGeneric, 0, 0);
  }
}

}  // namespace msa_ops::emulator::ptx
