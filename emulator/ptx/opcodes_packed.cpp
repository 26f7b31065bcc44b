// Arithmetic of Blackwell and Rubin: pairs of fp32, fp32 with 16-bit operands, four numbers of 8 bits, extremes of three.
#include <array>
#include <cmath>

#include "float_formats.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"
#include "vector_rows.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::uint16_t, std::uint32_t, std::uint64_t;

// Every operation is done in fp64, exactly or rounded to odd, and rounded once more to fp32.
template <Rounding rounding, bool ftz, bool saturate>
float finish(double value) {
  if (std::isnan(value)) return saturate ? 0.0F : bit_cast<float>(kNan32);
  if (saturate) value = !(value > 0) ? 0.0 : std::min(value, 1.0);
  auto found = bit_cast<float>(static_cast<uint32_t>(encode(value, kF32, rounding, false)));
  if (ftz && std::fabs(found) == kLeastNormal32) return flush_tiny<rounding>(value);
  return ftz ? flush(found) : found;
}
template <bool ftz>
float in(float value) { return ftz ? flush(value) : value; }

// An exact sum of zero is -0 only if it is rounded down or both summands are -0.
template <Rounding rounding>
double sum(double a, double b) {
  const double found = add_to_odd(a, b);
  return found == 0 && rounding == Rounding::kDown && (std::signbit(a) || std::signbit(b)) ? -0.0 : found;
}

template <Rounding rounding, bool ftz>
float add(float a, float b) { return finish<rounding, ftz, false>(sum<rounding>(in<ftz>(a), in<ftz>(b))); }
template <Rounding rounding, bool ftz>
float sub(float a, float b) { return finish<rounding, ftz, false>(sum<rounding>(in<ftz>(a), -double{in<ftz>(b)})); }
template <Rounding rounding, bool ftz>
float mul(float a, float b) { return finish<rounding, ftz, false>(double{in<ftz>(a)} * in<ftz>(b)); }
template <Rounding rounding, bool ftz, bool saturate>
float fma(float a, float b, float c) {
  return finish<rounding, ftz, saturate>(sum<rounding>(double{in<ftz>(a)} * in<ftz>(b), in<ftz>(c)));
}

float low(uint64_t pair) { return bit_cast<float>(static_cast<uint32_t>(pair)); }
float high(uint64_t pair) { return bit_cast<float>(static_cast<uint32_t>(pair >> 32)); }
uint64_t pair_of(float high, float low) { return uint64_t{bit_cast<uint32_t>(high)} << 32 | bit_cast<uint32_t>(low); }

template <float (*function)(float, float)>
uint64_t both(uint64_t a, uint64_t b) { return pair_of(function(high(a), high(b)), function(low(a), low(b))); }
template <float (*function)(float, float, float)>
uint64_t both(uint64_t a, uint64_t b, uint64_t c) {
  return pair_of(function(high(a), high(b), high(c)), function(low(a), low(b), low(c)));
}

template <float (*wide)(uint16_t), float (*function)(float, float)>
float mixed(uint16_t a, float b) { return function(wide(a), b); }
template <float (*wide)(uint16_t), float (*function)(float, float, float)>
float mixed(uint16_t a, uint16_t b, float c) { return function(wide(a), wide(b), c); }
template <float (*wide)(uint16_t), float (*function)(float, float)>
uint64_t mixed_pair(uint32_t a, uint64_t b) {
  return pair_of(function(wide(static_cast<uint16_t>(a >> 16)), high(b)), function(wide(static_cast<uint16_t>(a)), low(b)));
}
template <float (*wide)(uint16_t), float (*function)(float, float, float)>
uint64_t mixed_pair(uint32_t a, uint64_t b, uint64_t c) {
  return pair_of(function(wide(static_cast<uint16_t>(a >> 16)), high(b), high(c)),
                 function(wide(static_cast<uint16_t>(a)), low(b), low(c)));
}

template <Rounding rounding, bool saturate>
float add_saturated(float a, float b) { return finish<rounding, false, saturate>(sum<rounding>(a, b)); }
template <Rounding rounding, bool saturate>
float sub_saturated(float a, float b) { return finish<rounding, false, saturate>(sum<rounding>(a, -double{b})); }

template <float (*wide)(uint16_t), Rounding rounding, bool saturate>
void add_mixed(Forms& forms, const std::string& rounding_name, const std::string& type) {
  using H = uint16_t;
  using F = float;
  const std::string tail = rounding_name + (saturate ? ".sat.f32." : ".f32.") + type;
  forms.push_back({"add" + tail, "=4 2 4", binary<F, H, F, mixed<wide, add_saturated<rounding, saturate>>>});
  forms.push_back({"sub" + tail, "=4 2 4", binary<F, H, F, mixed<wide, sub_saturated<rounding, saturate>>>});
  if (rounding_name.empty()) return;
  forms.push_back({"fma" + tail, "=4 2 2 4", ternary<F, H, H, F, mixed<wide, fma<rounding, false, saturate>>>});
}

template <Rounding rounding, bool ftz>
void add_pairs(Forms& forms, const std::string& rounding_name) {
  using Q = uint64_t;
  const std::string tail = rounding_name + (ftz ? ".ftz.f32x2" : ".f32x2");
  constexpr Handler one_add = binary<Q, Q, Q, both<add<rounding, ftz>>>, one_sub = binary<Q, Q, Q, both<sub<rounding, ftz>>>;
  constexpr Handler one_mul = binary<Q, Q, Q, both<mul<rounding, ftz>>>;
  constexpr Handler one_fma = ternary<Q, Q, Q, Q, both<fma<rounding, ftz, false>>>;
  Handler all_add = one_add, all_sub = one_sub, all_mul = one_mul, all_fma = one_fma;
  if constexpr (rounding == Rounding::kNearestEven) {
    // Registers of pairs beside each other are rows of fp32 of twice the length.
    using F = float;
    all_add = rows::binary<F, F, ftz ? rows::add_flushed : rows::add, one_add, 2>;
    all_sub = rows::binary<F, F, ftz ? rows::sub_flushed : rows::sub, one_sub, 2>;
    if constexpr (ftz) {
      all_mul = rows::binary_flushed<rows::mul_flushed, one_mul, 2>;
      all_fma = rows::ternary_flushed<rows::fma_flushed, one_fma, 2>;
    } else {
      all_mul = rows::binary<F, F, rows::mul, one_mul, 2>;
      all_fma = rows::ternary<F, F, rows::fma, one_fma, 2>;
    }
  }
  forms.push_back({"add" + tail, "=8 8 8", all_add});
  forms.push_back({"sub" + tail, "=8 8 8", all_sub});
  forms.push_back({"mul" + tail, "=8 8 8", all_mul});
  if (rounding_name.empty()) return;
  forms.push_back({"fma" + tail, "=8 8 8 8", all_fma});
}

template <float (*wide)(uint16_t), Rounding rounding>
void add_mixed_pairs(Forms& forms, const std::string& rounding_name, const std::string& type) {
  using Q = uint64_t;
  using W = uint32_t;
  const std::string types = ".f32x2." + type + "x2.f32x2";
  forms.push_back({"fma" + rounding_name + types + ".f32x2", "=8 4 8 8",
                   ternary<Q, W, Q, Q, mixed_pair<wide, fma<rounding, false, false>>>});
  forms.push_back({"add" + rounding_name + types, "=8 4 8", binary<Q, W, Q, mixed_pair<wide, add<rounding, false>>>});
  forms.push_back({"sub" + rounding_name + types, "=8 4 8", binary<Q, W, Q, mixed_pair<wide, sub<rounding, false>>>});
}

// Operations on pairs of fp32 whose results are 16 bits, rounded toward zero; FP16 flushes what is subnormal, before and
// after.
enum class Operation { kAdd, kSub, kMul };

template <bool half, Operation operation>
uint32_t narrow_pair(uint64_t a, uint64_t b) {
  constexpr auto rz = Rounding::kTowardZero;
  const auto one = [](float x, float y) -> uint32_t {
    const float left = in<half>(x), right = in<half>(y);
    const double value = operation == Operation::kMul   ? double{left} * right
                         : operation == Operation::kAdd ? sum<rz>(left, right)
                                                        : sum<rz>(left, -double{right});
    const FloatFormat& format = half ? kF16 : kBf16;
    const auto bits = static_cast<uint32_t>(encode(value, format, rz, false));
    const uint32_t sign = bits & static_cast<uint32_t>(format.sign());
    return half && (bits ^ sign) < format.least_normal() ? sign : bits;
  };
  return one(high(a), high(b)) << 16 | one(low(a), low(b));
}

template <bool half>
void add_narrow_pairs(Forms& forms, const std::string& tail) {
  using Q = uint64_t;
  using W = uint32_t;
  forms.push_back({"add" + tail, "=4 8 8", binary<W, Q, Q, narrow_pair<half, Operation::kAdd>>});
  forms.push_back({"sub" + tail, "=4 8 8", binary<W, Q, Q, narrow_pair<half, Operation::kSub>>});
  forms.push_back({"mul" + tail, "=4 8 8", binary<W, Q, Q, narrow_pair<half, Operation::kMul>>});
}

template <Rounding rounding>
void add_rounding(Forms& forms, const std::string& name) {
  add_pairs<rounding, false>(forms, name);
  add_pairs<rounding, true>(forms, name);
  add_mixed<float_from_half, rounding, false>(forms, name, "f16");
  add_mixed<float_from_half, rounding, true>(forms, name, "f16");
  add_mixed<float_from_bfloat, rounding, false>(forms, name, "bf16");
  add_mixed<float_from_bfloat, rounding, true>(forms, name, "bf16");
  if (name.empty()) return;
  add_mixed_pairs<float_from_half, rounding>(forms, name, "f16");
  add_mixed_pairs<float_from_bfloat, rounding>(forms, name, "bf16");
}

// ---- four numbers of 8 bits: an exact product, with a summand or not, rounded once

struct Format8 {
  const char* name;
  const FloatFormat* format;  // nullptr: UE8M0
  unsigned bits;              // of an element in its register
  const char* operand;
};
constexpr Format8 kResults[] = {{"e4m3x4", &kE4m3, 8, "4"}, {"e5m2x4", &kE5m2, 8, "4"}};
constexpr Format8 kFirst[] = {{"e2m1x4", &kE2m1, 4, "2"},   {"e2m1p4x4", &kE2m1, 8, "4"}, {"e4m3x4", &kE4m3, 8, "4"},
                              {"e5m2x4", &kE5m2, 8, "4"}, {"e2m3x4", &kE2m3, 8, "4"},   {"e3m2x4", &kE3m2, 8, "4"}};
constexpr Format8 kSecond[] = {{"e4m3x4", &kE4m3, 8, "4"}, {"e5m2x4", &kE5m2, 8, "4"}, {"ue8m0x4", nullptr, 8, "4"},
                               {"e2m1x4", &kE2m1, 4, "2"}};

struct Product8 {
  Format8 result, first, second;
  bool multiply, summand, negate, finite;
};
std::vector<Product8>& products() {
  static auto* made = new std::vector<Product8>();
  return *made;
}

// The values of all bytes of a format.
using Values = std::array<double, 256>;
Values values_of(const FloatFormat* format) {
  Values made{};
  for (unsigned code = 0; code < made.size(); ++code) {
    made[code] = format != nullptr ? decode(code & (2 * format->sign() - 1), *format)
                 : code == 0xff    ? NAN
                                   : std::ldexp(1.0, static_cast<int>(code) - 127);
  }
  return made;
}
const double* table_of(const FloatFormat* format) {
  static const Values e4m3 = values_of(&kE4m3), e5m2 = values_of(&kE5m2), e2m3 = values_of(&kE2m3);
  static const Values e3m2 = values_of(&kE3m2), e2m1 = values_of(&kE2m1), ue8m0 = values_of(nullptr);
  return (format == nullptr  ? ue8m0
          : format == &kE4m3 ? e4m3
          : format == &kE5m2 ? e5m2
          : format == &kE2m3 ? e2m3
          : format == &kE3m2 ? e3m2
                             : e2m1)
      .data();
}

unsigned code(const Format8& format, uint64_t bits, unsigned index) {
  return bits >> (format.bits * index) & ((1U << format.bits) - 1);
}

void multiply8(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Product8& p = products()[i.form->variant];
  const double *first = table_of(p.first.format), *second = table_of(p.second.format);
  const double* summand = table_of(p.result.format);
  for_lanes(lanes, [&](unsigned lane) {
    const uint64_t a = warp.value(i.operands[1], lane), b = warp.value(i.operands[2], lane);
    const uint64_t c = p.summand && p.multiply ? warp.value(i.operands[3], lane) : 0;
    uint64_t result = 0;
    for (unsigned index = 0; index < 4; ++index) {
      double value = first[code(p.first, a, index)];
      if (p.multiply) value *= second[code(p.second, b, index)];
      if (p.summand) value = add_to_odd(value, (p.negate ? -1 : 1) * summand[code(p.result, p.multiply ? c : b, index)]);
      result |= encode(value, *p.result.format, Rounding::kNearestEven, p.finite) << (8 * index);
    }
    warp.set_value(i.operands[0], lane, result);
  });
}

void add_product(Forms& forms, const std::string& name, const std::string& types, const std::string& operands,
                 Product8 product) {
  for (const char* rn : {"", ".rn"}) {
    for (const bool finite : {false, true}) {
      if (name == "fma" && rn[0] == '\0') continue;
      forms.push_back({name + rn + (finite ? ".satfinite" : "") + types, operands, multiply8});
      forms.back().variant = static_cast<uint32_t>(products().size());
      product.finite = finite;
      products().push_back(product);
    }
  }
}

void add_products(Forms& forms) {
  for (const Format8& d : kResults) {
    for (const Format8& a : kFirst) {
      for (const Format8& b : kSecond) {
        const std::string types = std::string(".") + d.name + "." + a.name + "." + b.name;
        const std::string operands = std::string("=4 ") + a.operand + " " + b.operand;
        add_product(forms, "mul", types, operands, {d, a, b, true, false, false, false});
        add_product(forms, "fma", types, operands + " 4", {d, a, b, true, true, false, false});
      }
      const std::string types = std::string(".") + d.name + "." + a.name;
      add_product(forms, "add", types, std::string("=4 ") + a.operand + " 4", {d, a, d, false, true, false, false});
      add_product(forms, "sub", types, std::string("=4 ") + a.operand + " 4", {d, a, d, false, true, true, false});
    }
  }
}

// ---- extremes of three

inline bool below(float a, float b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }

template <bool ftz, bool nan, bool magnitudes, bool least>
float extreme3(float a, float b, float c) {
  float chosen = bit_cast<float>(kNan32);
  for (float value : {a, b, c}) {
    if (ftz) value = flush(value);
    if (magnitudes) value = std::fabs(value);
    if (std::isnan(value)) {
      if (nan) return bit_cast<float>(kNan32);
      continue;
    }
    if (std::isnan(chosen) || below(value, chosen) == least) chosen = value;
  }
  return chosen;
}

template <bool ftz, bool nan, bool magnitudes>
void add_extremes(Forms& forms) {
  using F = float;
  const std::string tail = std::string(ftz ? ".ftz" : "") + (nan ? ".NaN" : "") + (magnitudes ? ".abs" : "") + ".f32 of3";
  forms.push_back({"min" + tail, "=4 4 4 4", ternary<F, F, F, F, extreme3<ftz, nan, magnitudes, true>>});
  forms.push_back({"max" + tail, "=4 4 4 4", ternary<F, F, F, F, extreme3<ftz, nan, magnitudes, false>>});
}

}  // namespace

void add_packed_forms(Forms& forms) {
  add_rounding<Rounding::kNearestEven>(forms, "");
  add_rounding<Rounding::kNearestEven>(forms, ".rn");
  add_rounding<Rounding::kTowardZero>(forms, ".rz");
  add_rounding<Rounding::kDown>(forms, ".rm");
  add_rounding<Rounding::kUp>(forms, ".rp");
  add_narrow_pairs<true>(forms, ".rz.ftz.f16x2.f32x2.f32x2");
  add_narrow_pairs<false>(forms, ".rz.bf16x2.f32x2.f32x2");
  add_products(forms);
  add_extremes<false, false, false>(forms);
  add_extremes<false, false, true>(forms);
  add_extremes<false, true, false>(forms);
  add_extremes<false, true, true>(forms);
  add_extremes<true, false, false>(forms);
  add_extremes<true, false, true>(forms);
  add_extremes<true, true, false>(forms);
  add_extremes<true, true, true>(forms);
}

}  // namespace msa_ops::emulator::ptx
