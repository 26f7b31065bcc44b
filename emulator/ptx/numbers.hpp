// Floating-point formats as bits. NaN results have the one pattern that NVIDIA's arithmetic gives.
#pragma once

#include <cmath>
#include <cstdint>

#include "lanes.hpp"

namespace msa_ops::emulator::ptx {

constexpr std::uint32_t kNan32 = 0x7fffffff;
constexpr std::uint16_t kNan16 = 0x7fff;  // of f16 and of bf16
constexpr std::uint8_t kNanE4m3 = 0x7f;

inline float canonical(float value) { return std::isnan(value) ? bit_cast<float>(kNan32) : value; }

inline float flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

enum class Rounding { kNearestEven, kTowardZero };

// Magnitude bits of a number that is not NaN in a format of `mantissa` and `exponent` bits with the usual bias, as if
// exponents had no upper end: the caller treats overflow.
inline std::uint32_t magnitude_in(float value, int mantissa, int exponent, Rounding rounding) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value) & 0x7fffffff;
  const int field = static_cast<int>(bits >> 23);
  const std::uint32_t significand = (bits & 0x7fffff) | (field != 0 ? 0x800000U : 0U);
  const int power = field != 0 ? field - 127 : -126;
  const int least = 2 - (1 << (exponent - 1));  // of a normal number
  const int shift = 23 - mantissa + (power < least ? least - power : 0);
  if (shift > 25) return 0;
  std::uint32_t kept = significand >> shift;
  if (rounding == Rounding::kNearestEven) {
    const std::uint32_t rest = significand & ((1U << shift) - 1);
    const std::uint32_t half = 1U << (shift - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  }
  return kept + (power > least ? static_cast<std::uint32_t>(power - least) << mantissa : 0U);
}

inline std::uint16_t sixteen_bits(float value, int mantissa, int exponent, Rounding rounding) {
  if (std::isnan(value)) return kNan16;
  const std::uint32_t infinity = ((1U << exponent) - 1) << mantissa;
  std::uint32_t magnitude = magnitude_in(value, mantissa, exponent, rounding);
  if (magnitude >= infinity) {
    magnitude = rounding == Rounding::kNearestEven || std::isinf(value) ? infinity : infinity - 1;
  }
  return static_cast<std::uint16_t>(magnitude | (std::signbit(value) ? 0x8000U : 0U));
}

template <Rounding rounding = Rounding::kNearestEven>
std::uint16_t half_from(float value) { return sixteen_bits(value, 10, 5, rounding); }
template <Rounding rounding = Rounding::kNearestEven>
std::uint16_t bfloat_from(float value) { return sixteen_bits(value, 7, 8, rounding); }

inline float float_from_half(std::uint16_t bits) {
  const int field = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  float magnitude = 0;
  if (field == 31) {
    if ((bits & 1023) != 0) return bit_cast<float>(kNan32);
    magnitude = INFINITY;
  } else {
    magnitude = field == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, field - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline float float_from_bfloat(std::uint16_t bits) { return bit_cast<float>(std::uint32_t{bits} << 16); }

// E4M3 without infinity; beyond 448 saturates.
inline std::uint8_t e4m3_from(float value) {
  if (std::isnan(value)) return kNanE4m3;
  std::uint32_t magnitude = magnitude_in(value, 3, 4, Rounding::kNearestEven);
  if (magnitude > 0x7e) magnitude = 0x7e;
  return static_cast<std::uint8_t>(magnitude | (std::signbit(value) ? 0x80U : 0U));
}

inline std::uint16_t half_from_e4m3(std::uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return kNan16;
  const int field = bits >> 3 & 15;
  const auto mantissa = static_cast<float>(bits & 7);
  const float magnitude = field == 0 ? std::ldexp(mantissa, -9) : std::ldexp(mantissa + 8, field - 10);
  return half_from((bits & 0x80) != 0 ? -magnitude : magnitude);
}

}  // namespace msa_ops::emulator::ptx
