// What the asynchronous copies do that combine values instead of replacing them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "numbers.hpp"

namespace msa_ops::emulator::ptx {

// Combines so many bytes at `to` with those at `from`, element by element.
using Reduction = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

struct NoReduction {
  static constexpr Reduction function = nullptr;
};

template <typename T, T (*combine)(T, T)>
struct Reduce {
  static void function(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
      T old, value;
      std::memcpy(&old, to + at, sizeof(T));
      std::memcpy(&value, from + at, sizeof(T));
      const T now = combine(old, value);
      std::memcpy(to + at, &now, sizeof(T));
    }
  }
};

namespace reductions {

template <typename T>
T add(T a, T b) { return static_cast<T>(a + b); }
template <typename T>
T least(T a, T b) { return std::min(a, b); }
template <typename T>
T greatest(T a, T b) { return std::max(a, b); }
template <typename T>
T both(T a, T b) { return a & b; }
template <typename T>
T either(T a, T b) { return a | b; }
template <typename T>
T differ(T a, T b) { return a ^ b; }
inline std::uint32_t increment(std::uint32_t a, std::uint32_t b) { return a >= b ? 0 : a + 1; }
inline std::uint32_t decrement(std::uint32_t a, std::uint32_t b) { return a == 0 || a > b ? b : a - 1; }
inline float add_float(float a, float b) { return canonical(a + b); }
inline double add_double(double a, double b) { return a + b; }

struct Half {
  static float wide(std::uint16_t bits) { return float_from_half(bits); }
  static std::uint16_t narrow(float value) { return half_from(value); }
};
struct Bfloat {
  static float wide(std::uint16_t bits) { return float_from_bfloat(bits); }
  static std::uint16_t narrow(float value) { return bfloat_from(value); }
};
template <typename Format>
std::uint16_t add_16(std::uint16_t a, std::uint16_t b) { return Format::narrow(Format::wide(a) + Format::wide(b)); }
// A number wins over NaN, and -0 is less than +0.
inline float least_float(float a, float b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
}
inline float greatest_float(float a, float b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
}
template <typename Format>
std::uint16_t least_16(std::uint16_t a, std::uint16_t b) {
  return Format::narrow(least_float(Format::wide(a), Format::wide(b)));
}
template <typename Format>
std::uint16_t greatest_16(std::uint16_t a, std::uint16_t b) {
  return Format::narrow(greatest_float(Format::wide(a), Format::wide(b)));
}

}  // namespace reductions

// Calls function(".add.u32" without its dot, an object whose type holds the function, bytes of an element, whether it
// exists into shared memory of the cluster, whether into global memory).
template <typename Function>
void for_reductions(Function function) {
  using namespace reductions;
  using U = std::uint32_t;
  using S = std::int32_t;
  using UL = std::uint64_t;
  using SL = std::int64_t;
  using H = std::uint16_t;
  function("add.u32", Reduce<U, add<U>>{}, 4, true, true);
  function("add.s32", Reduce<U, add<U>>{}, 4, true, true);
  function("add.u64", Reduce<UL, add<UL>>{}, 8, true, true);
  function("inc.u32", Reduce<U, increment>{}, 4, true, true);
  function("dec.u32", Reduce<U, decrement>{}, 4, true, true);
  function("min.u32", Reduce<U, least<U>>{}, 4, true, true);
  function("max.u32", Reduce<U, greatest<U>>{}, 4, true, true);
  function("min.s32", Reduce<S, least<S>>{}, 4, true, true);
  function("max.s32", Reduce<S, greatest<S>>{}, 4, true, true);
  function("min.u64", Reduce<UL, least<UL>>{}, 8, false, true);
  function("max.u64", Reduce<UL, greatest<UL>>{}, 8, false, true);
  function("min.s64", Reduce<SL, least<SL>>{}, 8, false, true);
  function("max.s64", Reduce<SL, greatest<SL>>{}, 8, false, true);
  function("and.b32", Reduce<U, both<U>>{}, 4, true, true);
  function("or.b32", Reduce<U, either<U>>{}, 4, true, true);
  function("xor.b32", Reduce<U, differ<U>>{}, 4, true, true);
  function("and.b64", Reduce<UL, both<UL>>{}, 8, false, true);
  function("or.b64", Reduce<UL, either<UL>>{}, 8, false, true);
  function("xor.b64", Reduce<UL, differ<UL>>{}, 8, false, true);
  function("add.f32", Reduce<float, add_float>{}, 4, false, true);
  function("add.f64", Reduce<double, add_double>{}, 8, false, true);
  function("add.noftz.f16", Reduce<H, add_16<Half>>{}, 2, false, true);
  function("add.noftz.bf16", Reduce<H, add_16<Bfloat>>{}, 2, false, true);
  function("min.f16", Reduce<H, least_16<Half>>{}, 2, false, true);
  function("max.f16", Reduce<H, greatest_16<Half>>{}, 2, false, true);
  function("min.bf16", Reduce<H, least_16<Bfloat>>{}, 2, false, true);
  function("max.bf16", Reduce<H, greatest_16<Bfloat>>{}, 2, false, true);
}

}  // namespace msa_ops::emulator::ptx
