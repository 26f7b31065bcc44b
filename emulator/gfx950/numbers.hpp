// Floating-point formats of CDNA4 as bits: f16, bf16 and the OCP formats of 8, 6 and 4 bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace msa_ops::emulator::gfx950 {

inline float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline std::uint32_t as_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline double as_double(std::uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline std::uint64_t as_bits(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}

inline bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
inline std::uint32_t quieted(std::uint32_t bits) { return bits | 0x400000; }
constexpr std::uint32_t kNan32 = 0x7fc00000;

// A NaN result: the first operand that is one, quieted, or the default where the operation made it.
inline std::uint32_t nan_of(std::uint32_t result, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t made = is_nan(a) ? quieted(a) : is_nan(b) ? quieted(b) : kNan32;
  return is_nan(result) ? made : result;
}
inline std::uint32_t nan_of(std::uint32_t result, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t made = is_nan(a) ? quieted(a) : is_nan(b) ? quieted(b) : is_nan(c) ? quieted(c) : kNan32;
  return is_nan(result) ? made : result;
}

// Layout of a format. All of them have the sign on top.
struct Format {
  int exponent, mantissa, bias;
  bool has_infinity;       // the highest exponent is infinity and NaN
  bool nan_at_top;         // E4M3: only the highest code is NaN
  int width() const { return 1 + exponent + mantissa; }
};
constexpr Format kF16{5, 10, 15, true, false};
constexpr Format kBf16{8, 7, 127, true, false};
constexpr Format kE4m3{4, 3, 7, false, true};
constexpr Format kE5m2{5, 2, 15, true, false};
constexpr Format kE2m3{2, 3, 1, false, false};
constexpr Format kE3m2{3, 2, 3, false, false};
constexpr Format kE2m1{2, 1, 1, false, false};

constexpr std::uint32_t largest_of(const Format& f) {  // magnitude code of the largest finite number
  const std::uint32_t top = (1U << (f.exponent + f.mantissa)) - 1;
  if (f.has_infinity) return ((((1U << f.exponent) - 1) << f.mantissa)) - 1;
  return f.nan_at_top ? top - 1 : top;
}

inline double decode_double(const Format& f, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & ((1U << (f.exponent + f.mantissa)) - 1);
  const bool negative = (bits >> (f.exponent + f.mantissa) & 1) != 0;
  const int field = static_cast<int>(magnitude >> f.mantissa);
  const std::uint32_t fraction = magnitude & ((1U << f.mantissa) - 1);
  double value = 0;
  if (f.has_infinity && field == (1 << f.exponent) - 1) value = fraction != 0 ? NAN : INFINITY;
  else if (f.nan_at_top && magnitude == (1U << (f.exponent + f.mantissa)) - 1) value = NAN;
  else if (field == 0) value = std::ldexp(static_cast<double>(fraction), 1 - f.bias - f.mantissa);
  else value = std::ldexp(static_cast<double>(fraction | 1U << f.mantissa), field - f.bias - f.mantissa);
  return negative ? -value : value;
}

// Round to nearest even. Numbers beyond the largest become it if `saturate` or if there is nothing else, infinity
// otherwise (NaN in E4M3). `random`, if not null, is added below the last bit instead: stochastic rounding.
inline std::uint32_t encode(const Format& f, double value, bool saturate, const std::uint32_t* random = nullptr) {
  const std::uint32_t sign = std::signbit(value) ? 1U << (f.exponent + f.mantissa) : 0;
  const std::uint32_t top = (1U << (f.exponent + f.mantissa)) - 1;
  if (std::isnan(value)) {
    if (f.has_infinity) return sign | ((1U << f.exponent) - 1) << f.mantissa | 1U << (f.mantissa - 1);
    return f.nan_at_top ? sign | top : sign | largest_of(f);
  }
  const std::uint32_t infinity = f.has_infinity ? largest_of(f) + 1 : f.nan_at_top ? top : largest_of(f);
  if (std::isinf(value)) return sign | (saturate ? largest_of(f) : infinity);
  if (value == 0) return sign;
  int power = 0;
  std::frexp(value, &power);
  --power;  // value = 1.x * 2^power
  const int least = 1 - f.bias;
  const int unit = (power < least ? least : power) - f.mantissa;  // exponent of the last bit
  const double scaled = std::ldexp(std::fabs(value), -unit);
  double rounded = 0;
  if (random != nullptr) {
    rounded = std::floor(scaled + static_cast<double>(*random) * 0x1p-32);
  } else {
    rounded = std::nearbyint(scaled);
  }
  // rounded is below 2^(mantissa + 1), or equal to it: then the sum carries into the exponent by itself.
  const auto code = static_cast<std::uint64_t>(rounded) +
                    (power < least ? 0 : static_cast<std::uint64_t>(power - least) << f.mantissa);
  if (code > largest_of(f)) return sign | (saturate ? largest_of(f) : infinity);
  return sign | static_cast<std::uint32_t>(code);
}

inline std::uint16_t half_from(float value) {
  const std::uint32_t bits = as_bits(value);
  if (is_nan(bits)) return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x1ff));
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // below the smallest normal number: its last bit is 2^-24
    const auto code = static_cast<std::uint32_t>(std::nearbyint(as_float(magnitude) * 0x1p24F));
    return static_cast<std::uint16_t>(sign | code);
  }
  const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}
inline std::uint16_t half_from_double(double value) {
  if (std::isnan(value)) return half_from(static_cast<float>(value));
  return static_cast<std::uint16_t>(encode(kF16, value, false));
}

inline float half_to(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x8000) << 16, field = bits >> 10 & 31, fraction = bits & 1023;
  if (field == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return as_float(as_bits(magnitude) | sign);
  }
  return as_float(sign | (field == 31 ? 0x7f800000U : (field + 112) << 23) | fraction << 13);
}

inline std::uint32_t bfloat_from(float value) {
  const std::uint32_t bits = as_bits(value);
  if (is_nan(bits)) return quieted(bits) >> 16;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float bfloat_to(std::uint32_t bits) { return as_float(bits << 16); }

inline float flushed(float value) {
  const std::uint32_t bits = as_bits(value);
  return (bits & 0x7f800000) == 0 ? as_float(bits & 0x80000000) : value;
}

}  // namespace msa_ops::emulator::gfx950
