// Floating-point formats as bits. NaN results have the one pattern that NVIDIA's arithmetic gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lanes.hpp"

namespace msa_ops::emulator::ptx {

constexpr std::uint32_t kNan32 = 0x7fffffff;
constexpr std::uint64_t kNan64 = 0xfff8000000000000;  // of fp64 where no operand is one
constexpr std::uint64_t kQuiet64 = std::uint64_t{1} << 51;
constexpr std::uint16_t kNan16 = 0x7fff;  // of f16 and of bf16
constexpr std::uint8_t kNanE4m3 = 0x7f;

inline float canonical(float value) { return std::isnan(value) ? bit_cast<float>(kNan32) : value; }

inline float flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

constexpr float kLeastNormal32 = 0x1p-126F;

enum class Rounding { kNearestEven, kTowardZero, kDown, kUp, kNearestAway };

// Magnitude bits of a number that is not NaN in a format of `mantissa` and `exponent` bits with the usual bias, as if
// exponents had no upper end: the caller treats overflow. Infinity gives more than any finite number does.
template <Rounding rounding>
std::uint64_t magnitude_in(double value, int mantissa, int exponent) {
  const auto bits = bit_cast<std::uint64_t>(value) & ~(std::uint64_t{1} << 63);
  const bool negative = std::signbit(value);
  const int field = static_cast<int>(bits >> 52);
  const std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | (field != 0 ? std::uint64_t{1} << 52 : 0);
  const int power = field != 0 ? field - 1023 : -1022;
  const int least = 2 - (1 << (exponent - 1));  // of a normal number
  const int shift = std::min(52 - mantissa + (power < least ? least - power : 0), 63);
  std::uint64_t kept = significand >> shift;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = shift > 0 ? std::uint64_t{1} << (shift - 1) : 1;
  switch (rounding) {
    case Rounding::kNearestEven: kept += rest > half || (rest == half && (kept & 1) != 0); break;
    case Rounding::kNearestAway: kept += rest >= half; break;
    case Rounding::kDown: kept += negative && rest != 0; break;
    case Rounding::kUp: kept += !negative && rest != 0; break;
    case Rounding::kTowardZero: break;
  }
  return kept + (power > least ? static_cast<std::uint64_t>(power - least) << mantissa : 0U);
}

// Overflow gives infinity, or the greatest number where the rounding turns back from it.
template <Rounding rounding, int mantissa, int exponent>
std::uint16_t sixteen_bits(double value) {
  if (std::isnan(value)) return kNan16;
  constexpr std::uint64_t infinity = ((1U << exponent) - 1) << mantissa;
  const bool negative = std::signbit(value);
  std::uint64_t magnitude = magnitude_in<rounding>(value, mantissa, exponent);
  if (magnitude >= infinity) {
    const bool back = rounding == Rounding::kTowardZero || (rounding == Rounding::kDown && !negative) ||
                      (rounding == Rounding::kUp && negative);
    magnitude = back && !std::isinf(value) ? infinity - 1 : infinity;
  }
  return static_cast<std::uint16_t>(magnitude | (negative ? 0x8000U : 0U));
}

template <Rounding rounding = Rounding::kNearestEven>
std::uint16_t half_from(double value) { return sixteen_bits<rounding, 10, 5>(value); }
template <Rounding rounding = Rounding::kNearestEven>
std::uint16_t bfloat_from(double value) { return sixteen_bits<rounding, 7, 8>(value); }

inline float float_from_half(std::uint16_t bits) {
  constexpr float kRebias = 0x1p112F;  // from the bias 127 to the bias 15; also makes subnormal numbers normal
  if ((bits & 0x7c00) == 0x7c00) {
    if ((bits & 1023) != 0) return bit_cast<float>(kNan32);
    return (bits & 0x8000) != 0 ? -INFINITY : INFINITY;
  }
  const auto magnitude = bit_cast<float>(static_cast<std::uint32_t>(bits & 0x7fff) << 13) * kRebias;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline float float_from_bfloat(std::uint16_t bits) { return bit_cast<float>(std::uint32_t{bits} << 16); }

// a + b in fp64, rounded to odd: what is rounded once more to half the bits is then rounded correctly.
inline double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double of_b = sum - a;
  const double error = (a - (sum - of_b)) + (b - of_b);
  const auto bits = bit_cast<std::uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  return bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// A result that is rounded to the least normal number of fp32. It is flushed if 24 bits of it, rounded as if exponents
// had no end, are still subnormal.
template <Rounding rounding = Rounding::kNearestEven>
float flush_tiny(double unrounded) {
  const double magnitude = std::fabs(unrounded) * 0x1p126;
  const bool away = rounding == Rounding::kUp ? unrounded > 0 : rounding == Rounding::kDown && unrounded < 0;
  const bool tiny = rounding == Rounding::kNearestEven ? magnitude < 1 - 0x1p-25
                    : away                             ? magnitude <= 1 - 0x1p-24
                                                       : magnitude < 1;
  return std::copysign(tiny ? 0.0F : kLeastNormal32, static_cast<float>(unrounded));
}

// E4M3 without infinity; beyond 448 saturates.
inline std::uint8_t e4m3_from(double value) {
  if (std::isnan(value)) return kNanE4m3;
  const std::uint64_t magnitude = std::min<std::uint64_t>(magnitude_in<Rounding::kNearestEven>(value, 3, 4), 0x7e);
  return static_cast<std::uint8_t>(magnitude | (std::signbit(value) ? 0x80U : 0U));
}

inline std::uint16_t half_from_e4m3(std::uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return kNan16;
  const int field = bits >> 3 & 15;
  const auto mantissa = static_cast<float>(bits & 7);
  const float magnitude = field == 0 ? std::ldexp(mantissa, -9) : std::ldexp(mantissa + 8, field - 10);
  return half_from((bits & 0x80) != 0 ? -magnitude : magnitude);
}

// -0 is below +0. Without `nan` a NaN gives way to a number; two of them, or with it any, give the one NaN.
template <bool nan>
bool extreme_is_nan(float a, float b) {
  return nan ? std::isnan(a) || std::isnan(b) : std::isnan(a) && std::isnan(b);
}
inline bool below(float a, float b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }
template <bool nan>
float lesser(float a, float b) {
  if (extreme_is_nan<nan>(a, b)) return bit_cast<float>(kNan32);
  return std::isnan(a) || below(b, a) ? b : a;
}
template <bool nan>
float greater(float a, float b) {
  if (extreme_is_nan<nan>(a, b)) return bit_cast<float>(kNan32);
  return std::isnan(a) || below(a, b) ? b : a;
}

}  // namespace msa_ops::emulator::ptx
