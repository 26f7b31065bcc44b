#include "formats.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace msa_ops::emulator::matrix {
namespace {

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

const float kNan = float_of(0x7fffffff);

using Table = std::array<float, 256>;

// Which codes of a format stand for no finite number.
enum class Specials { kNone, kAllOnesIsNan, kIeee };

Table small_floats(int exponent_bits, int mantissa_bits, int bias, bool is_signed, Specials specials) {
  Table made{};
  const int magnitude_bits = exponent_bits + mantissa_bits;
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned magnitude = code & ((1U << magnitude_bits) - 1);
    const unsigned mantissa = magnitude & ((1U << mantissa_bits) - 1);
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                                : std::ldexp(static_cast<float>(mantissa + (1U << mantissa_bits)),
                                             exponent - bias - mantissa_bits);
    if (specials == Specials::kAllOnesIsNan && magnitude == (1U << magnitude_bits) - 1) value = kNan;
    if (specials == Specials::kIeee && exponent == (1 << exponent_bits) - 1) value = mantissa == 0 ? INFINITY : kNan;
    const bool negative = is_signed && (code >> magnitude_bits & 1) != 0;
    made[code] = negative && !std::isnan(value) ? -value : value;
  }
  return made;
}

Table integers(bool is_signed, unsigned bits) {
  Table made{};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned low = code & ((1U << bits) - 1);
    const bool negative = is_signed && (low >> (bits - 1)) != 0;
    made[code] = static_cast<float>(static_cast<int>(low) - (negative ? 1 << bits : 0));
  }
  return made;
}

Table powers() {
  Table made{};
  for (int code = 0; code < 255; ++code) made[static_cast<std::size_t>(code)] = std::ldexp(1.0F, code - 127);
  made[255] = kNan;
  return made;
}

}  // namespace

const float* values_of(Element element) {
  static const Table e4m3 = small_floats(4, 3, 7, true, Specials::kAllOnesIsNan);
  static const Table e5m2 = small_floats(5, 2, 15, true, Specials::kIeee);
  static const Table e2m3 = small_floats(2, 3, 1, true, Specials::kNone);
  static const Table e3m2 = small_floats(3, 2, 3, true, Specials::kNone);
  static const Table e2m1 = small_floats(2, 1, 1, true, Specials::kNone);
  static const Table s8 = integers(true, 8), u8 = integers(false, 8), s4 = integers(true, 4), u4 = integers(false, 4);
  switch (element) {
    case Element::kE4m3: return e4m3.data();
    case Element::kE5m2: return e5m2.data();
    case Element::kE2m3: return e2m3.data();
    case Element::kE3m2: return e3m2.data();
    case Element::kE2m1: return e2m1.data();
    case Element::kS8: return s8.data();
    case Element::kU8: return u8.data();
    case Element::kS4: return s4.data();
    case Element::kU4: return u4.data();
    default: throw std::logic_error("not a format of 8 bits or less");
  }
}

const float* values_of(Scale scale) {
  static const Table ue8m0 = powers();
  static const Table ue4m3 = small_floats(4, 3, 7, false, Specials::kAllOnesIsNan);
  static const Table ue5m3 = small_floats(5, 3, 15, false, Specials::kAllOnesIsNan);
  switch (scale) {
    case Scale::kUe8m0: return ue8m0.data();
    case Scale::kUe4m3: return ue4m3.data();
    case Scale::kUe5m3: return ue5m3.data();
  }
  throw std::logic_error("not a format of scales");
}

void floats_from(Element element, const std::uint8_t* codes, float* out, std::size_t count) {
  const float* values = values_of(element);
  for (std::size_t i = 0; i < count; ++i) out[i] = values[codes[i]];
}

void floats_from(Element element, const std::uint16_t* codes, float* out, std::size_t count) {
  if (element == Element::kBf16) {
    for (std::size_t i = 0; i < count; ++i) out[i] = float_of(std::uint32_t{codes[i]} << 16);
    return;
  }
  if (element != Element::kF16) throw std::logic_error("not a format of 16 bits");
  // A number of fp16 is one of fp32 with another bias; multiplying corrects it, subnormal numbers included.
  const float scale = float_of(0x77800000);  // 2^112
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t sign = (codes[i] & 0x8000U) << 16;
    const std::uint32_t magnitude = codes[i] & 0x7fffU;
    const std::uint32_t finite = bits_of_float(float_of(magnitude << 13) * scale);
    const std::uint32_t special = magnitude > 0x7c00U ? 0x7fffffffU : 0x7f800000U;
    out[i] = float_of(sign | (magnitude >= 0x7c00U ? special : finite));
  }
}

void floats_from_tf32(const std::uint32_t* codes, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = float_of(codes[i] & 0xffffe000U);
}

namespace {

// Codes of less than 8 bits, a byte each.
template <typename Number>
void values_from_narrow(Element element, const unsigned char* packed, Number* out, std::size_t count) {
  const float* values = values_of(element);
  const unsigned bits = bits_of(element);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bit = i * bits;
    unsigned word = packed[bit / 8];
    if (bit % 8 + bits > 8) word |= unsigned{packed[bit / 8 + 1]} << 8;
    out[i] = static_cast<Number>(values[word >> (bit % 8) & ((1U << bits) - 1)]);
  }
}

}  // namespace

void floats_from_packed(Element element, const void* packed, float* out, std::size_t count) {
  const auto* bytes = static_cast<const unsigned char*>(packed);
  if (element == Element::kTf32) {
    std::memcpy(out, bytes, count * 4);
    for (std::size_t i = 0; i < count; ++i) out[i] = float_of(bits_of_float(out[i]) & 0xffffe000U);
  } else if (bits_of(element) == 16) {
    constexpr std::size_t kPart = 256;
    std::uint16_t codes[kPart];
    for (std::size_t at = 0; at < count; at += kPart) {
      const std::size_t part = count - at < kPart ? count - at : kPart;
      std::memcpy(codes, bytes + at * 2, part * 2);
      floats_from(element, codes, out + at, part);
    }
  } else if (bits_of(element) == 8) {
    floats_from(element, bytes, out, count);
  } else {
    values_from_narrow(element, bytes, out, count);
  }
}

void integers_from_packed(Element element, const void* packed, std::int32_t* out, std::size_t count) {
  values_from_narrow(element, static_cast<const unsigned char*>(packed), out, count);
}

std::uint16_t half_from(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  if (magnitude >= 65520.0F) return sign | 0x7c00;
  // Adding a number whose last place is the result's rounds as wanted.
  const std::uint32_t field = (bits >> 23 & 255) < 113 ? 113 : bits >> 23 & 255;
  const float anchor = float_of((field + 13) << 23);
  const std::uint32_t steps = bits_of_float(magnitude + anchor) - bits_of_float(anchor);
  return static_cast<std::uint16_t>(sign | (((field - 113) << 10) + steps));
}

}  // namespace msa_ops::emulator::matrix
