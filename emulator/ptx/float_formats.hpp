// Floating-point formats of any width, to and from fp64, which holds every value of the narrower ones.
#pragma once

#include <cstdint>

#include "numbers.hpp"

namespace msa_ops::emulator::ptx {

struct FloatFormat {
  // What the greatest exponent holds: infinity and NaN; numbers, but for NaN in all ones; numbers alone.
  enum class Top : std::uint8_t { kInfinity, kNan, kNumbers };
  int exponent;  // bits
  int mantissa;  // bits
  Top top;

  constexpr std::uint64_t sign() const { return std::uint64_t{1} << (exponent + mantissa); }
  constexpr std::uint64_t nan() const { return sign() - 1; }
  constexpr std::uint64_t infinity() const { return nan() >> mantissa << mantissa; }
  constexpr std::uint64_t greatest() const {
    return top == Top::kInfinity ? infinity() - 1 : top == Top::kNan ? nan() - 1 : nan();
  }
  constexpr std::uint64_t least_normal() const { return std::uint64_t{1} << mantissa; }
};

inline constexpr FloatFormat kF64{11, 52, FloatFormat::Top::kInfinity};
inline constexpr FloatFormat kF32{8, 23, FloatFormat::Top::kInfinity};
inline constexpr FloatFormat kF16{5, 10, FloatFormat::Top::kInfinity};
inline constexpr FloatFormat kBf16{8, 7, FloatFormat::Top::kInfinity};
inline constexpr FloatFormat kTf32{8, 10, FloatFormat::Top::kInfinity};
inline constexpr FloatFormat kE5m2{5, 2, FloatFormat::Top::kInfinity};
inline constexpr FloatFormat kE4m3{4, 3, FloatFormat::Top::kNan};
inline constexpr FloatFormat kE3m2{3, 2, FloatFormat::Top::kNumbers};
inline constexpr FloatFormat kE2m3{2, 3, FloatFormat::Top::kNumbers};
inline constexpr FloatFormat kE2m1{2, 1, FloatFormat::Top::kNumbers};

inline std::uint64_t magnitude_in(double value, int mantissa, int exponent, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearestEven: return magnitude_in<Rounding::kNearestEven>(value, mantissa, exponent);
    case Rounding::kTowardZero: return magnitude_in<Rounding::kTowardZero>(value, mantissa, exponent);
    case Rounding::kDown: return magnitude_in<Rounding::kDown>(value, mantissa, exponent);
    case Rounding::kUp: return magnitude_in<Rounding::kUp>(value, mantissa, exponent);
    case Rounding::kNearestAway: return magnitude_in<Rounding::kNearestAway>(value, mantissa, exponent);
  }
  return 0;
}

// Whether the rounding turns an overflow back to the greatest number.
inline bool turns_back(Rounding rounding, bool negative) {
  return rounding == Rounding::kTowardZero || (rounding == Rounding::kDown && !negative) ||
         (rounding == Rounding::kUp && negative);
}

// `finite`: whatever is too large, infinity too, becomes the greatest number (.satfinite).
inline std::uint64_t encode(double value, const FloatFormat& format, Rounding rounding, bool finite) {
  using Top = FloatFormat::Top;
  if (std::isnan(value)) return format.top == Top::kNumbers ? format.greatest() : format.nan();
  const bool negative = std::signbit(value);
  std::uint64_t magnitude = magnitude_in(value, format.mantissa, format.exponent, rounding);
  if (magnitude > format.greatest()) {
    const bool back = finite || format.top == Top::kNumbers || (turns_back(rounding, negative) && !std::isinf(value));
    magnitude = back ? format.greatest() : format.top == Top::kInfinity ? format.infinity() : format.nan();
  }
  return magnitude | (negative ? format.sign() : 0);
}

// NaN gives the NaN of fp64 with the same sign.
inline double decode(std::uint64_t bits, const FloatFormat& format) {
  using Top = FloatFormat::Top;
  const std::uint64_t magnitude = bits & (format.sign() - 1);
  double value = 0;
  if (format.top != Top::kNumbers && magnitude > format.greatest()) {
    value = format.top == Top::kInfinity && magnitude == format.infinity() ? INFINITY : NAN;
  } else {
    const auto field = static_cast<int>(magnitude >> format.mantissa);
    const std::uint64_t fraction = magnitude & (format.least_normal() - 1);
    const int bias = (1 << (format.exponent - 1)) - 1;
    const auto significand = static_cast<double>(field != 0 ? fraction | format.least_normal() : fraction);
    value = std::ldexp(significand, (field != 0 ? field : 1) - bias - format.mantissa);
  }
  return (bits & format.sign()) != 0 ? -value : value;
}

}  // namespace msa_ops::emulator::ptx
