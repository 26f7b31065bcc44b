// Atomic operations on memory. The lanes of a warp come in ascending order.
#include <algorithm>

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

template <typename T, bool shared, typename Function>
void update(PtxWarp& warp, const Instruction& i, const Operand& base, Mask lanes, Function function) {
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    std::uint64_t address = warp.value(base, lane) + i.offset;
    if (shared) address &= 0xffffffffU;
    std::byte* place;
    if (shared) {
      warp.block().shared().read(address, sizeof(T), who);  // it must have been written
      place = warp.block().shared().write(address, sizeof(T), who);
    } else {
      place = warp.block().global().at(address, sizeof(T), true, who);
    }
    T old;
    std::memcpy(&old, place, sizeof(T));
    const T now = function(lane, old);
    std::memcpy(place, &now, sizeof(T));
  });
  if (!shared) {
    const std::uint64_t bytes = sizeof(T) * static_cast<unsigned>(__builtin_popcount(lanes));
    warp.count_read(bytes);
    warp.count_written(bytes);
  }
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

template <typename T, bool shared, T (*function)(T, T)>
void atom(PtxWarp& warp, const Instruction& i, Mask lanes) {
  std::uint64_t old_values[kLanes];
  update<T, shared>(warp, i, i.operands[1], lanes, [&](unsigned lane, T old) {
    old_values[lane] = bits_of(old);
    return function(old, as<T>(warp.value(i.operands[2], lane)));
  });
  for_lanes(lanes, [&](unsigned lane) { warp.set_value(i.operands[0], lane, old_values[lane]); });
}

template <typename T, bool shared, T (*function)(T, T)>
void red(PtxWarp& warp, const Instruction& i, Mask lanes) {
  update<T, shared>(warp, i, i.operands[0], lanes, [&](unsigned lane, T old) {
    return function(old, as<T>(warp.value(i.operands[1], lane)));
  });
}

template <typename T, bool shared>
void cas(PtxWarp& warp, const Instruction& i, Mask lanes) {
  std::uint64_t old_values[kLanes];
  update<T, shared>(warp, i, i.operands[1], lanes, [&](unsigned lane, T old) {
    old_values[lane] = old;
    const bool equal = old == static_cast<T>(warp.value(i.operands[2], lane));
    return equal ? static_cast<T>(warp.value(i.operands[3], lane)) : old;
  });
  for_lanes(lanes, [&](unsigned lane) { warp.set_value(i.operands[0], lane, old_values[lane]); });
}

template <bool shared>
struct Adder {
  Forms& forms;
  std::string space = shared ? "shared" : "global";
  MemorySpace memory = shared ? MemorySpace::kShared : MemorySpace::kGlobal;

  void one(const std::string& kind, const std::string& operation, const char* operands, Handler handler,
           std::size_t bytes) {
    const std::string opcode = kind + "." + space + "." + operation;
    forms.push_back({opcode, operands, handler, memory, static_cast<std::uint8_t>(bytes)});
  }
  template <typename T, T (*function)(T, T)>
  void both(const std::string& operation) {
    one("atom", operation, "=v A v", atom<T, shared, function>, sizeof(T));
    one("red", operation, "A v", red<T, shared, function>, sizeof(T));
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
    one("atom", "exch." + type, "=v A v", atom<T, shared, exchange<T>>, sizeof(T));
    one("atom", "cas." + type, "=v A v v", cas<T, shared>, sizeof(T));
  }
  void all() {
    both<std::uint32_t, add<std::uint32_t>>("add.u32");
    both<std::uint32_t, add<std::uint32_t>>("add.s32");
    both<std::uint64_t, add<std::uint64_t>>("add.u64");
    both<float, shared ? add_shared : add_global>("add.f32");
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
  Adder<false>{forms}.all();
  Adder<true>{forms}.all();
}

}  // namespace msa_ops::emulator::ptx
