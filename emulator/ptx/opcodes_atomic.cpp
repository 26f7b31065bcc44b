// Atomic operations on memory. The lanes of a warp come in ascending order.
#include <algorithm>

#include "addresses.hpp"
#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

template <typename T>
T add(T a, T b) { return static_cast<T>(a + b); }  // unsigned: wraps
template <typename T>
T least(T a, T b) { return std::min(a, b); }
template <typename T>
T greatest(T a, T b) { return std::max(a, b); }
template <typename T>
T bit_and(T a, T b) { return a & b; }
template <typename T>
T bit_or(T a, T b) { return a | b; }
template <typename T>
T bit_xor(T a, T b) { return a ^ b; }
template <typename T>
T exchange(T, T b) { return b; }
float add_shared(float a, float b) { return canonical(a + b); }
float add_global(float a, float b) { return canonical(flush(flush(a) + flush(b))); }  // PTX: flushes subnormals

double add_double(double a, double b) {
  const double sum = a + b;
  if (!std::isnan(sum)) return sum;
  if (!std::isnan(a) && !std::isnan(b)) return bit_cast<double>(kNan64);
  return bit_cast<double>(bit_cast<std::uint64_t>(std::isnan(b) ? b : a) | kQuiet64);
}
// Up to a bound and back to zero; down to zero and back to the bound.
std::uint32_t increment(std::uint32_t a, std::uint32_t bound) { return a >= bound ? 0 : a + 1; }
std::uint32_t decrement(std::uint32_t a, std::uint32_t bound) { return a == 0 || a > bound ? bound : a - 1; }
std::uint16_t add_half(std::uint16_t a, std::uint16_t b) {
  return half_from<>(add_to_odd(float_from_half(a), float_from_half(b)));
}
std::uint16_t add_brain(std::uint16_t a, std::uint16_t b) {
  return bfloat_from<>(add_to_odd(float_from_bfloat(a), float_from_bfloat(b)));
}
template <std::uint16_t (*function)(std::uint16_t, std::uint16_t)>
std::uint32_t both_halves(std::uint32_t a, std::uint32_t b) {
  return std::uint32_t{function(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16))} << 16 |
         function(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b));
}

// Shared memory holds no value where it held none before, or where a register without a value went into it.
void note_undefined(PtxWarp& warp, const Instruction& i, const Operand& base, std::uint64_t address, std::size_t bytes,
                    unsigned lane) {
  SharedMemory& shared = warp.block().holder(address, static_cast<int>(lane)).shared();
  const bool returns = &base != &i.operands[0];
  const auto missing = shared.first_unwritten(address, bytes);
  if (missing && returns) warp.leave_undefined(i.operands[0], Mask{1} << lane, PtxWarp::Lack::kShared, *missing);
  if (missing && i.form->replaces) shared.mark_written(address, bytes);
  if (!returns && (warp.undefined(i.operands[1]) >> lane & 1) != 0) shared.unwrite(address, bytes);
}

// Only into shared memory may a register without a value go.
void check_undefined(PtxWarp& warp, const Instruction& i, MemorySpace space, Mask lanes) {
  warp.want_defined(i.operands[0], lanes);
  if (space != MemorySpace::kShared && space != MemorySpace::kCluster) warp.want_defined(i.operands[1], lanes);
}

void count_shared(PtxWarp& warp, std::uint64_t address, std::size_t bytes, unsigned lane) {
  const ThreadBlock& holder = warp.block().holder(address, static_cast<int>(lane));
  for (const bool write : {false, true}) warp.count_bytes(holder, write, bytes);
}

template <typename T, MemorySpace space, typename Function>
void update(PtxWarp& warp, const Instruction& i, const Operand& base, Mask lanes, Function function) {
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = address_of(warp, base, lane, i.offset, space);
    std::byte* place = access<Use::kUpdate>(warp, i, address, sizeof(T), space, lane);
    const bool global = space == MemorySpace::kGlobal ||
                        (space == MemorySpace::kGeneric && space_of(address) == MemorySpace::kGlobal);
    bool changed = false;
    {
      const auto lock = global ? warp.block().global().lock(address) : GlobalMemory::Lock(nullptr);
      T old;
      std::memcpy(&old, place, sizeof(T));
      const T now = function(lane, old);
      changed = std::memcmp(&old, &now, sizeof(T)) != 0;
      if (changed) std::memcpy(place, &now, sizeof(T));
    }
    if (changed) warp.note_change();
    if (!global) {  // the address is one of shared memory of the cluster now, also if it was generic
      note_undefined(warp, i, base, address, sizeof(T), lane);
      count_shared(warp, address, sizeof(T), lane);
    }
    if (global) {
      warp.count_read(sizeof(T));
      warp.count_written(sizeof(T));
    }
  });
}

template <typename T>
T as(std::uint64_t value) {
  T out;
  std::memcpy(&out, &value, sizeof(T));
  return out;
}
template <typename T>
std::uint64_t bits_of(T value) {
  std::uint64_t out = 0;
  std::memcpy(&out, &value, sizeof(T));
  return out;
}

template <typename T, MemorySpace space, T (*function)(T, T)>
void atom(PtxWarp& warp, const Instruction& i, Mask lanes) {
  std::uint64_t old_values[kLanes];
  update<T, space>(warp, i, i.operands[1], lanes, [&](unsigned lane, T old) {
    old_values[lane] = bits_of(old);
    return function(old, as<T>(warp.value(i.operands[2], lane)));
  });
  for_lanes(lanes, [&](unsigned lane) { warp.set_value(i.operands[0], lane, old_values[lane]); });
}

template <typename T, MemorySpace space, T (*function)(T, T)>
void red(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (warp.any_undefined()) check_undefined(warp, i, space, lanes);
  update<T, space>(warp, i, i.operands[0], lanes, [&](unsigned lane, T old) {
    return function(old, as<T>(warp.value(i.operands[1], lane)));
  });
}

// fp32 sums in global memory are flushed, those in shared memory are not: a generic address tells.
template <bool returns>
void add_generic(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Mask global = 0;
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = address_of(warp, i.operands[returns ? 1 : 0], lane, i.offset, MemorySpace::kGeneric);
    if (space_of(address) == MemorySpace::kGlobal) global |= Mask{1} << lane;
  });
  constexpr MemorySpace kSpace = MemorySpace::kGeneric;
  for (const auto& [some, flushed] : {std::pair{global, true}, std::pair{lanes & ~global, false}}) {
    if (some == 0) continue;
    if constexpr (returns) (flushed ? atom<float, kSpace, add_global> : atom<float, kSpace, add_shared>)(warp, i, some);
    else (flushed ? red<float, kSpace, add_global> : red<float, kSpace, add_shared>)(warp, i, some);
  }
}

template <typename T, MemorySpace space>
void cas(PtxWarp& warp, const Instruction& i, Mask lanes) {
  std::uint64_t old_values[kLanes];
  update<T, space>(warp, i, i.operands[1], lanes, [&](unsigned lane, T old) {
    old_values[lane] = old;
    const bool equal = old == static_cast<T>(warp.value(i.operands[2], lane));
    return equal ? static_cast<T>(warp.value(i.operands[3], lane)) : old;
  });
  for_lanes(lanes, [&](unsigned lane) { warp.set_value(i.operands[0], lane, old_values[lane]); });
}

template <MemorySpace memory>
struct Adder {
  Forms& forms;
  std::string space = "";  // ".shared"

  void one(const std::string& kind, const std::string& operation, const char* operands, Handler handler,
           std::size_t bytes) {
    const std::string opcode = kind + space + "." + operation;
    forms.push_back({opcode, operands, handler, memory, static_cast<std::uint8_t>(bytes)});
    forms.back().reports_changes = true;
    if (kind == "red") forms.back().undefined = Form::Undefined::kHandled;
  }
  template <typename T, T (*function)(T, T)>
  void both(const std::string& operation) {
    one("atom", operation, "=v A v 8?", atom<T, memory, function>, sizeof(T));
    one("red", operation, "A v 8?", red<T, memory, function>, sizeof(T));
  }
  template <typename T>
  void order(const std::string& type) {
    both<T, least<T>>("min." + type);
    both<T, greatest<T>>("max." + type);
  }
  template <typename T>
  void bits(const std::string& type) {
    both<T, bit_and<T>>("and." + type);
    both<T, bit_or<T>>("or." + type);
    both<T, bit_xor<T>>("xor." + type);
    one("atom", "exch." + type, "=v A v 8?", atom<T, memory, exchange<T>>, sizeof(T));
    forms.back().replaces = true;
    one("atom", "cas." + type, "=v A v v 8?", cas<T, memory>, sizeof(T));
  }
  void all() {
    both<std::uint32_t, add<std::uint32_t>>("add.u32");
    both<std::uint32_t, add<std::uint32_t>>("add.s32");
    both<std::uint64_t, add<std::uint64_t>>("add.u64");
    if (memory == MemorySpace::kGeneric) {
      one("atom", "add.f32", "=v A v 8?", add_generic<true>, sizeof(float));
      one("red", "add.f32", "A v 8?", add_generic<false>, sizeof(float));
    } else {
      both<float, memory == MemorySpace::kGlobal ? add_global : add_shared>("add.f32");
    }
    both<double, add_double>("add.f64");
    both<std::uint16_t, add_half>("add.noftz.f16");
    both<std::uint32_t, both_halves<add_half>>("add.noftz.f16x2");
    both<std::uint16_t, add_brain>("add.noftz.bf16");
    both<std::uint32_t, both_halves<add_brain>>("add.noftz.bf16x2");
    both<std::uint32_t, increment>("inc.u32");
    both<std::uint32_t, decrement>("dec.u32");
    one("atom", "cas.b16", "=v A v v 8?", cas<std::uint16_t, memory>, sizeof(std::uint16_t));
    order<std::uint32_t>("u32");
    order<std::int32_t>("s32");
    order<std::uint64_t>("u64");
    order<std::int64_t>("s64");
    bits<std::uint32_t>("b32");
    bits<std::uint64_t>("b64");
  }
};

}  // namespace

void add_atomic_forms(Forms& forms) {
  Adder<MemorySpace::kGlobal>{forms, ".global"}.all();
  Adder<MemorySpace::kShared>{forms, ".shared"}.all();
  Adder<MemorySpace::kCluster>{forms, ".shared::cluster"}.all();
  Adder<MemorySpace::kGeneric>{forms}.all();
}

}  // namespace msa_ops::emulator::ptx
