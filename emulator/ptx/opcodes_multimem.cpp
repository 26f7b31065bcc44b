// multimem: loads, stores and reductions of multicast addresses, which stand for the same bytes on several devices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "addresses.hpp"
#include "float_formats.hpp"
#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"
#include "reduction.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// ---- how one register of each device become one

double add_double(double a, double b) {
  const double sum = a + b;
  return std::isnan(sum) ? bit_cast<double>(kNan64) : sum;
}

// Values of one element on all devices, in the order in which they are added.
template <typename T>
using Values = std::vector<T>;

template <typename T, T (*function)(T, T)>
T fold(const Values<T>& values) {
  T result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) result = function(result, values[i]);
  return result;
}

// Narrow formats: from bits to fp64, which holds all their numbers, and back.
enum class Narrow { kHalf, kBrain, kE4m3, kE5m2 };

template <Narrow format>
using Bits = std::conditional_t<format == Narrow::kHalf || format == Narrow::kBrain, std::uint16_t, std::uint8_t>;

template <Narrow format>
double wide(Bits<format> bits) {
  switch (format) {
    case Narrow::kHalf: return float_from_half(bits);
    case Narrow::kBrain: return float_from_bfloat(bits);
    case Narrow::kE4m3: return decode(bits, kE4m3);
    case Narrow::kE5m2: return decode(bits, kE5m2);
  }
  return 0;
}

// Halves to the next number above, of numbers below zero too: the reference of CUTLASS's GEMM with all-reduce, known good
// on silicon, rounds sums of FP8 so. What is too large becomes NaN (E4M3) or infinity (E5M2).
std::uint8_t eight_bits(double value, const FloatFormat& format) {
  if (std::isnan(value) || std::isinf(value)) return static_cast<std::uint8_t>(encode(value, format, Rounding::kNearestEven, false));
  const auto down = encode(value, format, Rounding::kDown, false), up = encode(value, format, Rounding::kUp, false);
  const double below = decode(down, format), above = decode(up, format);
  const bool ends = !std::isfinite(below) || !std::isfinite(above);
  if (ends) return static_cast<std::uint8_t>(encode(value, format, Rounding::kNearestAway, false));
  return static_cast<std::uint8_t>(value - below < above - value ? down : up);
}

template <Narrow format>
Bits<format> narrow(double value) {
  switch (format) {
    case Narrow::kHalf: return static_cast<Bits<format>>(half_from<>(value));
    case Narrow::kBrain: return static_cast<Bits<format>>(bfloat_from<>(value));
    case Narrow::kE4m3: return static_cast<Bits<format>>(eight_bits(value, kE4m3));
    case Narrow::kE5m2: return static_cast<Bits<format>>(eight_bits(value, kE5m2));
  }
  return 0;
}

enum class Sum { kSame, kHalf, kFloat };  // precision of the sum on its way

template <Narrow format, Sum precision>
Bits<format> sum(const Values<Bits<format>>& values) {
  double total = wide<format>(values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double value = wide<format>(values[i]);
    switch (precision) {
      case Sum::kSame: total = wide<format>(narrow<format>(add_to_odd(total, value))); break;
      case Sum::kHalf: total = float_from_half(half_from<>(add_to_odd(total, value))); break;
      case Sum::kFloat: total = static_cast<float>(total) + static_cast<float>(value); break;
    }
  }
  return narrow<format>(total);
}

template <Narrow format, bool is_least>
Bits<format> extreme(const Values<Bits<format>>& values) {
  double result = wide<format>(values[0]);
  for (const Bits<format> bits : values) {
    const auto a = static_cast<float>(result), b = static_cast<float>(wide<format>(bits));
    result = is_least ? lesser<false>(a, b) : greater<false>(a, b);
  }
  return narrow<format>(result);
}

// ---- instructions

// What the address of a lane leads to on every device. A generic one must be one of global memory.
std::vector<std::byte*> copies_of(PtxWarp& warp, const Instruction& i, const Operand& base, unsigned lane,
                                  std::size_t bytes, bool write, bool atomic = false) {
  std::uint64_t address = address_of(warp, base, lane, i.offset, i.form->memory);
  const int who = static_cast<int>(lane);
  if (i.form->memory == MemorySpace::kGeneric && space_of(address) != MemorySpace::kGlobal) {
    throw Violation{FaultKind::kMulticast, "multimem outside of global memory", who, address};
  }
  std::vector<std::byte*> all = warp.block().global().copies(address, bytes, bytes, write, who);
  for (const std::byte* one : all) {
    const auto place = reinterpret_cast<std::uint64_t>(one);
    if (atomic) watch_global<Use::kUpdate>(warp, i, place, bytes, who);
    else if (write) watch_global<Use::kWrite>(warp, i, place, bytes, who);
    else watch_global<Use::kRead>(warp, i, place, bytes, who);
  }
  return all;
}

// T: of the elements in a register; one register has `element` bytes.
template <typename T, T (*combine)(const Values<T>&)>
void load_reduce(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const unsigned count = i.form->count;
  const std::size_t element = i.form->element, bytes = element * count;
  std::vector<std::vector<std::byte*>> places(kLanes);
  for_lanes(lanes, [&](unsigned lane) { places[lane] = copies_of(warp, i, i.operands[count], lane, bytes, false); });
  Values<T> values;
  for_lanes(lanes, [&](unsigned lane) {
    values.resize(places[lane].size());
    const std::uint32_t* order = warp.matrix_order(values.size());
    for (unsigned at = 0; at < count; ++at) {
      std::uint64_t made = 0;
      for (std::size_t part = 0; part < element; part += sizeof(T)) {
        for (std::size_t device = 0; device < values.size(); ++device) {
          const std::size_t from = order != nullptr ? order[device] : device;
          std::memcpy(&values[device], places[lane][from] + at * element + part, sizeof(T));
        }
        const T result = combine(values);
        std::memcpy(reinterpret_cast<std::byte*>(&made) + part, &result, sizeof(T));
      }
      warp.set_value(i.operands[at], lane, made);
    }
    warp.count_read(bytes);
  });
}

void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t element = i.form->element, bytes = element * i.form->count;
  for_lanes(lanes, [&](unsigned lane) {
    for (std::byte* place : copies_of(warp, i, i.operands[0], lane, bytes, true)) {
      for (unsigned at = 0; at < i.form->count; ++at) {
        const std::uint64_t value = warp.value(i.operands[1 + at], lane);
        std::memcpy(place + at * element, &value, element);
      }
    }
    warp.count_written(bytes);
  });
}

// The values of memory and of the register are added as those of two devices.
template <typename T, T (*combine)(const Values<T>&)>
void reduce(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t element = i.form->element, bytes = element * i.form->count;
  Values<T> values(2);
  for_lanes(lanes, [&](unsigned lane) {
    for (std::byte* place : copies_of(warp, i, i.operands[0], lane, bytes, true, true)) {
      const auto lock = warp.block().global().lock(reinterpret_cast<std::uint64_t>(place));
      for (unsigned at = 0; at < i.form->count; ++at) {
        const std::uint64_t given = warp.value(i.operands[1 + at], lane);
        for (std::size_t part = 0; part < element; part += sizeof(T)) {
          std::byte* const to = place + at * element + part;
          std::memcpy(&values[0], to, sizeof(T));
          std::memcpy(&values[1], reinterpret_cast<const std::byte*>(&given) + part, sizeof(T));
          const T now = combine(values);
          std::memcpy(to, &now, sizeof(T));
        }
      }
    }
    warp.block().global().count_read(address_of(warp, i.operands[0], lane, i.offset, i.form->memory), bytes);
    warp.count_read(bytes);
    warp.count_written(bytes);
  });
}

// ---- the table: as ptxas 13.5 takes them

class Table {
 public:
  explicit Table(Forms& forms) : forms_(forms) {}

  void one(const std::string& kind, const std::string& tail, const char* operands, Handler handler, std::size_t element,
           unsigned count = 1) {
    const std::string vector = count == 1 ? "" : ".v" + std::to_string(count);
    const std::size_t dot = tail.rfind('.');
    for (const std::string space : {".global", ""}) {
      Form form{"multimem." + kind + space + tail.substr(0, dot) + vector + tail.substr(dot), operands, handler,
                space.empty() ? MemorySpace::kGeneric : MemorySpace::kGlobal, static_cast<std::uint8_t>(element),
                static_cast<std::uint8_t>(count)};
      forms_.push_back(form);
    }
  }
  template <typename T, T (*function)(T, T)>
  void both(const std::string& tail, unsigned count = 1) {
    one("ld_reduce", tail, "=v A", load_reduce<T, fold<T, function>>, sizeof(T), count);
    one("red", tail, "A v", reduce<T, fold<T, function>>, sizeof(T), count);
  }
  void stored(const std::string& type, std::size_t element, unsigned count = 1) {
    one("st", "." + type, "A v", store, element, count);
  }

  template <typename U, typename S>
  void integers(const std::string& bits) {
    both<U, reductions::add<U>>(".add.u" + bits);
    if (bits == "32") both<U, reductions::add<U>>(".add.s32");
    both<U, reductions::least<U>>(".min.u" + bits), both<U, reductions::greatest<U>>(".max.u" + bits);
    both<S, reductions::least<S>>(".min.s" + bits), both<S, reductions::greatest<S>>(".max.s" + bits);
    both<U, reductions::both<U>>(".and.b" + bits), both<U, reductions::either<U>>(".or.b" + bits), both<U, reductions::differ<U>>(".xor.b" + bits);
    for (const char* sign : {"b", "u", "s"}) stored(sign + bits, sizeof(U));
  }

  // Types whose registers hold one, two or four elements; vectors have 4, 8 or 16 bytes in all.
  template <Narrow format>
  void narrow_type(const std::string& type) {
    using T = Bits<format>;
    constexpr Sum kOther = sizeof(T) == 2 ? Sum::kFloat : Sum::kHalf;
    const std::string accumulated = sizeof(T) == 2 ? ".acc::f32" : ".acc::f16";
    for (unsigned packed = 1; packed * sizeof(T) <= 4; packed *= 2) {
      const std::string name = "." + type + (packed == 1 ? "" : "x" + std::to_string(packed));
      const std::size_t element = packed * sizeof(T);
      for (const unsigned count : {1U, 2U, 4U, 8U}) {
        if (element * count < 4 || element * count > 16) continue;
        one("ld_reduce", ".add" + name, "=v A", load_reduce<T, sum<format, Sum::kSame>>, element, count);
        one("ld_reduce", ".add" + accumulated + name, "=v A", load_reduce<T, sum<format, kOther>>, element, count);
        one("ld_reduce", ".min" + name, "=v A", load_reduce<T, extreme<format, true>>, element, count);
        one("ld_reduce", ".max" + name, "=v A", load_reduce<T, extreme<format, false>>, element, count);
        stored(name.substr(1), element, count);
        if (sizeof(T) != 2) continue;
        one("red", ".add" + name, "A v", reduce<T, sum<format, Sum::kSame>>, element, count);
        if (count == 1) continue;
        one("red", ".min" + name, "A v", reduce<T, extreme<format, true>>, element, count);
        one("red", ".max" + name, "A v", reduce<T, extreme<format, false>>, element, count);
      }
    }
  }

 private:
  Forms& forms_;
};

}  // namespace

void add_multimem_forms(Forms& forms) {
  Table table(forms);
  table.integers<std::uint32_t, std::int32_t>("32");
  table.integers<std::uint64_t, std::int64_t>("64");
  for (const unsigned count : {1U, 2U, 4U}) {
    table.both<float, reductions::add_float>(".add.f32", count);
    table.stored("f32", sizeof(float), count);
  }
  table.both<double, add_double>(".add.f64");
  table.stored("f64", sizeof(double));
  table.narrow_type<Narrow::kHalf>("f16");
  table.narrow_type<Narrow::kBrain>("bf16");
  table.narrow_type<Narrow::kE4m3>("e4m3");
  table.narrow_type<Narrow::kE5m2>("e5m2");
}

}  // namespace msa_ops::emulator::ptx
