// The conversions between integers and fp16, bf16, fp32 and fp64 that opcodes_convert.cpp does not do in one step of
// its own: every rounding, saturation and width, by way of fp64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "float_formats.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

enum class Type : std::uint8_t { kS8, kU8, kS16, kU16, kS32, kU32, kS64, kU64, kF16, kBf16, kF32, kF64 };

struct TypeInfo {
  const char* name;
  int bits;
  bool is_signed;
  const FloatFormat* format;  // nullptr: an integer
};

constexpr TypeInfo kTypes[] = {
    {"s8", 8, true, nullptr},   {"u8", 8, false, nullptr},   {"s16", 16, true, nullptr}, {"u16", 16, false, nullptr},
    {"s32", 32, true, nullptr}, {"u32", 32, false, nullptr}, {"s64", 64, true, nullptr}, {"u64", 64, false, nullptr},
    {"f16", 16, true, &kF16},   {"bf16", 16, true, &kBf16},  {"f32", 32, true, &kF32},   {"f64", 64, true, &kF64}};

struct Conversion {
  TypeInfo to, from;
  Rounding rounding = Rounding::kNearestEven;
  bool whole = false;  // to an integral value: .rni, .rzi, .rmi, .rpi
  bool ftz = false;
  bool saturate = false;
  bool relu = false;
  bool finite = false;
};

std::vector<Conversion>& conversions() {
  static auto* made = new std::vector<Conversion>();
  return *made;
}

double to_whole(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kTowardZero: return std::trunc(value);
    case Rounding::kDown: return std::floor(value);
    case Rounding::kUp: return std::ceil(value);
    default: return std::nearbyint(value);
  }
}

// An integer that fp64 does not hold keeps its low bits as one: rounded to odd.
double to_odd(std::uint64_t magnitude, bool negative) {
  double value = 0;
  if (magnitude >> 53 == 0) {
    value = static_cast<double>(magnitude);
  } else {
    const std::uint64_t kept = magnitude >> 11 | static_cast<std::uint64_t>((magnitude & 2047) != 0);
    value = static_cast<double>(kept) * 2048;
  }
  return negative ? -value : value;
}

double double_from(std::uint64_t magnitude, bool negative, Rounding rounding) {
  const int shift = magnitude >> 53 == 0 ? 0 : 11 - __builtin_clzll(magnitude);
  std::uint64_t kept = magnitude >> shift;
  const std::uint64_t rest = magnitude & ((std::uint64_t{1} << shift) - 1), half = (std::uint64_t{1} << shift) >> 1;
  const bool up = rounding == Rounding::kDown ? negative && rest != 0
                  : rounding == Rounding::kUp ? !negative && rest != 0
                  : rounding == Rounding::kNearestEven
                      ? rest > half || (rest == half && rest != 0 && (kept & 1) != 0)
                      : false;
  kept += up;
  const double value = std::ldexp(static_cast<double>(kept), shift);
  return negative ? -value : value;
}

std::uint64_t float_to_integer(double value, const Conversion& c) {
  if (std::isnan(value)) return c.from.bits == 64 || c.to.bits == 64 ? std::uint64_t{1} << (c.to.bits - 1) : 0;
  const double rounded = to_whole(value, c.rounding);
  const double end = std::ldexp(1.0, c.to.is_signed ? c.to.bits - 1 : c.to.bits);
  const std::uint64_t ones = c.to.bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << c.to.bits) - 1;
  if (rounded >= end) return c.to.is_signed ? ones >> 1 : ones;
  if (rounded < (c.to.is_signed ? -end : 0.0)) return c.to.is_signed ? std::uint64_t{1} << (c.to.bits - 1) : 0;
  if (rounded < 0) return static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded));
  return static_cast<std::uint64_t>(rounded);
}

std::uint64_t flushed(std::uint64_t bits, const FloatFormat& format) {
  return (bits & (format.sign() - 1)) < format.least_normal() ? bits & format.sign() : bits;
}

std::uint64_t finish(double value, const Conversion& c) {
  const FloatFormat& format = *c.to.format;
  if (c.saturate) value = !(value > 0) ? 0.0 : std::min(value, 1.0);
  if (c.relu && value <= 0) value = 0;
  const std::uint64_t bits = encode(value, format, c.rounding, c.finite);
  return c.ftz && c.to.bits == 32 ? flushed(bits, format) : bits;
}

std::uint64_t integer_to(std::uint64_t bits, const Conversion& c) {
  const int shift = 64 - c.from.bits;
  const bool negative = c.from.is_signed && static_cast<std::int64_t>(bits << shift) < 0;
  const std::uint64_t extended =
      c.from.is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift)
                       : bits << shift >> shift;
  const std::uint64_t magnitude = negative ? -extended : extended;
  if (c.to.format != nullptr) {
    return finish(c.to.bits == 64 ? double_from(magnitude, negative, c.rounding) : to_odd(magnitude, negative), c);
  }
  // Saturation of an integer.
  const std::uint64_t greatest = ~std::uint64_t{0} >> (64 - c.to.bits + (c.to.is_signed ? 1 : 0));
  if (negative) {
    if (!c.to.is_signed) return 0;
    return magnitude > greatest + 1 ? ~greatest : extended;
  }
  return std::min(magnitude, greatest);
}

// From or to fp64 a NaN keeps its sign and the upper bits of its payload, and becomes quiet.
std::uint64_t nan_between(std::uint64_t bits, const FloatFormat& from, const FloatFormat& to) {
  const std::uint64_t payload = bits & (from.least_normal() - 1);
  const std::uint64_t kept = to.mantissa >= from.mantissa ? payload << (to.mantissa - from.mantissa)
                                                          : payload >> (from.mantissa - to.mantissa);
  return to.infinity() | kept | to.least_normal() >> 1 | ((bits & from.sign()) != 0 ? to.sign() : 0);
}

std::uint64_t convert_one(std::uint64_t bits, const Conversion& c) {
  if (c.from.format == nullptr) return integer_to(bits, c);
  if (c.from.format == c.to.format && c.to.bits > 16 && !c.whole && !c.ftz && !c.saturate) return bits;  // a move
  // ptxas flushes nothing on the way to fp16.
  if (c.ftz && c.from.format == &kF32 && c.to.format != &kF16) {
    bits = (bits & kF32.nan()) > kF32.infinity() ? kF32.nan() : flushed(bits, kF32);
  }
  double value = decode(c.from.bits == 64 ? bits : bits & ((std::uint64_t{1} << c.from.bits) - 1), *c.from.format);
  if (c.to.format == nullptr) return float_to_integer(value, c);
  if (std::isnan(value) && !c.saturate && (c.to.bits == 64 || c.from.bits == 64)) {
    return nan_between(bits, *c.from.format, *c.to.format);
  }
  if (c.whole) value = to_whole(value, c.rounding);
  return finish(value, c);
}

void convert(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Conversion& c = conversions()[i.form->variant];
  const Operand& out = i.operands[0];
  const Operand& in = i.operands[1];
  // A narrow result in a wider register is extended by its sign.
  const int shift = c.to.format == nullptr && c.to.is_signed ? 64 - c.to.bits : 0;
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t bits = convert_one(warp.value(in, lane), c);
    warp.set_value(out, lane, static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift));
  });
}

struct RoundingName {
  const char* name;
  Rounding rounding;
};
constexpr RoundingName kRoundings[] = {{".rn", Rounding::kNearestEven},
                                       {".rz", Rounding::kTowardZero},
                                       {".rm", Rounding::kDown},
                                       {".rp", Rounding::kUp}};

class Adder {
 public:
  explicit Adder(Forms& forms) : forms_(forms) {
    for (const Form& form : forms) known_.insert(form.opcode);
  }
  void add(const Conversion& c, const std::string& modifiers) {
    const std::string opcode = "cvt" + modifiers + "." + c.to.name + "." + c.from.name;
    if (!known_.insert(opcode).second) return;
    forms_.push_back({opcode, "=" + operand(c.to) + " " + operand(c.from), convert});
    forms_.back().variant = static_cast<std::uint32_t>(conversions().size());
    conversions().push_back(c);
  }

 private:
  // Registers may be wider than integers, and than what is narrower than any register.
  static std::string operand(const TypeInfo& type) {
    return (type.format == nullptr ? "w" : "") + std::to_string(std::max(type.bits / 8, 2));
  }
  Forms& forms_;
  std::unordered_set<std::string> known_;
};

bool holds(const TypeInfo& to, const TypeInfo& from) {
  return to.format != nullptr && from.format != nullptr && to.format->exponent >= from.format->exponent &&
         to.format->mantissa >= from.format->mantissa;
}

// Whether the integer type holds every value of the other.
bool contains(const TypeInfo& to, const TypeInfo& from) {
  return from.is_signed ? to.is_signed && to.bits >= from.bits
                        : to.is_signed ? to.bits > from.bits : to.bits >= from.bits;
}

void add_between(Adder& adder, const TypeInfo& to, const TypeInfo& from) {
  Conversion plain{to, from};
  const bool floats = to.format != nullptr && from.format != nullptr;
  const bool same = floats && to.format == from.format;
  const bool brain = to.format == &kBf16 || from.format == &kBf16;
  // bf16 has no .sat, and nothing to do with bytes.
  if (brain && (to.bits == 8 || from.bits == 8)) return;
  for (const bool saturate : {false, true}) {
    if (saturate && brain) continue;
    for (const bool ftz : {false, true}) {
      if (ftz && to.format != &kF32 && from.format != &kF32) continue;
      const std::string tail = std::string(ftz ? ".ftz" : "") + (saturate ? ".sat" : "");
      Conversion c = plain;
      c.ftz = ftz;
      c.saturate = saturate;
      if (to.format == nullptr && from.format == nullptr) {
        if (saturate && !contains(to, from)) adder.add(c, tail);
        continue;
      }
      const bool exact = holds(to, from);
      if (exact && !(brain && same)) adder.add(c, tail);
      for (const RoundingName& rounding : kRoundings) {
        c.rounding = rounding.rounding;
        const bool to_integer = to.format == nullptr;
        c.whole = to_integer || same;
        if (c.whole) adder.add(c, rounding.name + ("i" + tail));
        else if (!exact) adder.add(c, rounding.name + tail);
      }
      c.whole = false;
      // Triton writes it without a rounding; ptxas makes the same of it as with .rn.
      c.rounding = Rounding::kNearestEven;
      if (to.format == &kBf16 && from.format == &kF16) adder.add(c, tail);
    }
  }
}

}  // namespace

void add_general_conversion_forms(Forms& forms) {
  Adder adder(forms);
  for (const TypeInfo& to : kTypes) {
    for (const TypeInfo& from : kTypes) {
      if (&to != &from || to.format != nullptr) add_between(adder, to, from);
      else adder.add({to, from}, "");  // a move, of no more bits than the type has
    }
  }
}

}  // namespace msa_ops::emulator::ptx
