// Conversions.
#include <cmath>
#include <limits>
#include <type_traits>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"
#include "vector_rows.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// An integer keeps its low bits, or is extended by its own sign; into a wider register by the destination's sign.
template <typename To, typename From>
void integer(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Operand& out = i.operands[0];
  const Operand& in = i.operands[1];
  for_lanes(lanes, [&](unsigned lane) {
    const auto value = static_cast<To>(static_cast<From>(warp.value(in, lane)));
    warp.set_value(out, lane, static_cast<std::uint64_t>(value));
  });
}

enum class Whole { kNearestEven, kTowardZero, kDown, kUp };

template <Whole rounding>
float whole(float value) {
  switch (rounding) {
    case Whole::kNearestEven: return std::nearbyint(value);
    case Whole::kTowardZero: return std::trunc(value);
    case Whole::kDown: return std::floor(value);
    case Whole::kUp: return std::ceil(value);
  }
  return value;
}

// Saturates; NaN gives 0 in 32 bits and less, the lowest bit pattern with only the top bit set in 64.
template <typename To, Whole rounding, bool ftz>
To to_integer(float value) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(value)) return sizeof(To) == 8 ? static_cast<To>(std::uint64_t{1} << 63) : To{0};
  const float rounded = whole<rounding>(ftz ? flush(value) : value);
  const float end = std::ldexp(1.0F, Limits::digits);  // one above the greatest
  if (rounded >= end) return Limits::max();
  if (rounded < (std::is_signed_v<To> ? -end : 0.0F)) return Limits::min();
  return static_cast<To>(rounded);
}

template <Whole rounding, bool ftz>
float to_whole(float value) { return canonical(whole<rounding>(ftz ? flush(value) : value)); }

template <typename From>
float from_integer(From value) { return static_cast<float>(value); }

template <bool ftz>
float same(float value) { return canonical(ftz ? flush(value) : value); }

template <std::uint16_t (*narrow)(double)>
std::uint16_t single(float value) { return narrow(value); }
template <std::uint16_t (*narrow)(double)>
std::uint32_t pair(float high, float low) { return std::uint32_t{narrow(high)} << 16 | narrow(low); }

std::uint16_t e4m3_pair(float high, float low) {
  return static_cast<std::uint16_t>(e4m3_from(high) << 8 | e4m3_from(low));
}
std::uint16_t e4m3_pair_from_halves(std::uint32_t halves) {
  return e4m3_pair(float_from_half(static_cast<std::uint16_t>(halves >> 16)),
                   float_from_half(static_cast<std::uint16_t>(halves)));
}
std::uint32_t halves_from_e4m3_pair(std::uint16_t pair) {
  return std::uint32_t{half_from_e4m3(static_cast<std::uint8_t>(pair >> 8))} << 16 |
         half_from_e4m3(static_cast<std::uint8_t>(pair));
}

template <typename T>
std::string at_least() { return std::to_string(sizeof(T) < 2 ? 2 : sizeof(T)); }

template <typename To, typename From>
void add_integer(Forms& forms, const std::string& to, const std::string& from) {
  if (to == from) return;
  forms.push_back({"cvt." + to + "." + from, "=w" + at_least<To>() + " w" + at_least<From>(), integer<To, From>});
}

template <typename To>
void add_integers(Forms& forms, const std::string& to) {
  add_integer<To, std::int8_t>(forms, to, "s8");
  add_integer<To, std::uint8_t>(forms, to, "u8");
  add_integer<To, std::int16_t>(forms, to, "s16");
  add_integer<To, std::uint16_t>(forms, to, "u16");
  add_integer<To, std::int32_t>(forms, to, "s32");
  add_integer<To, std::uint32_t>(forms, to, "u32");
  add_integer<To, std::int64_t>(forms, to, "s64");
  add_integer<To, std::uint64_t>(forms, to, "u64");
}

template <typename T, bool ftz>
void add_to_integer(Forms& forms, const std::string& type) {
  const std::string operands = "=" + std::to_string(sizeof(T)) + " 4";
  const std::string tail = std::string(ftz ? ".ftz." : ".") + type + ".f32";
  forms.push_back({"cvt.rni" + tail, operands, unary<T, float, to_integer<T, Whole::kNearestEven, ftz>>});
  forms.push_back({"cvt.rzi" + tail, operands, unary<T, float, to_integer<T, Whole::kTowardZero, ftz>>});
  forms.push_back({"cvt.rmi" + tail, operands, unary<T, float, to_integer<T, Whole::kDown, ftz>>});
  forms.push_back({"cvt.rpi" + tail, operands, unary<T, float, to_integer<T, Whole::kUp, ftz>>});
}

template <bool ftz>
void add_from_float(Forms& forms) {
  add_to_integer<std::int16_t, ftz>(forms, "s16");
  add_to_integer<std::uint16_t, ftz>(forms, "u16");
  add_to_integer<std::int32_t, ftz>(forms, "s32");
  add_to_integer<std::uint32_t, ftz>(forms, "u32");
  add_to_integer<std::int64_t, ftz>(forms, "s64");
  add_to_integer<std::uint64_t, ftz>(forms, "u64");
  const std::string tail = ftz ? ".ftz.f32.f32" : ".f32.f32";
  forms.push_back({"cvt.rni" + tail, "=4 4", unary<float, float, to_whole<Whole::kNearestEven, ftz>>});
  forms.push_back({"cvt.rzi" + tail, "=4 4", unary<float, float, to_whole<Whole::kTowardZero, ftz>>});
  forms.push_back({"cvt.rmi" + tail, "=4 4", unary<float, float, to_whole<Whole::kDown, ftz>>});
  forms.push_back({"cvt.rpi" + tail, "=4 4", unary<float, float, to_whole<Whole::kUp, ftz>>});
  if (ftz) forms.push_back({"cvt.ftz.f32.f32", "=4 4", unary<float, float, same<ftz>>});
}

template <typename From>
void add_from_integer(Forms& forms, const std::string& from) {
  forms.push_back({"cvt.rn.f32." + from, "=4 " + std::to_string(sizeof(From)), unary<float, From, from_integer<From>>});
}

}  // namespace

void add_convert_forms(Forms& forms) {
  add_integers<std::int8_t>(forms, "s8");
  add_integers<std::uint8_t>(forms, "u8");
  add_integers<std::int16_t>(forms, "s16");
  add_integers<std::uint16_t>(forms, "u16");
  add_integers<std::int32_t>(forms, "s32");
  add_integers<std::uint32_t>(forms, "u32");
  add_integers<std::int64_t>(forms, "s64");
  add_integers<std::uint64_t>(forms, "u64");
  add_from_float<false>(forms);
  add_from_float<true>(forms);
  add_from_integer<std::int16_t>(forms, "s16");
  add_from_integer<std::uint16_t>(forms, "u16");
  add_from_integer<std::int32_t>(forms, "s32");
  add_from_integer<std::uint32_t>(forms, "u32");
  add_from_integer<std::int64_t>(forms, "s64");
  add_from_integer<std::uint64_t>(forms, "u64");
  using H = std::uint16_t;
  using W = std::uint32_t;
  constexpr auto rz = Rounding::kTowardZero;
  forms.push_back({"cvt.f32.f16", "=4 2", rows::unary<float, H, rows::floats_from_halves, unary<float, H, float_from_half>>});
  forms.push_back({"cvt.f32.bf16", "=4 2", unary<float, H, float_from_bfloat>});
  forms.push_back({"cvt.rn.f16.f32", "=2 4", rows::unary<H, float, rows::halves_from, unary<H, float, single<half_from<>>>>});
  forms.push_back({"cvt.rz.f16.f32", "=2 4", unary<H, float, single<half_from<rz>>>});
  forms.push_back({"cvt.rn.bf16.f32", "=2 4", rows::unary<H, float, rows::bfloats_from, unary<H, float, single<bfloat_from<>>>>});
  forms.push_back({"cvt.rz.bf16.f32", "=2 4", unary<H, float, single<bfloat_from<rz>>>});
  forms.push_back({"cvt.rn.f16x2.f32", "=4 4 4",
                   rows::binary<W, float, rows::half_pairs_from, binary<W, float, float, pair<half_from<>>>>});
  forms.push_back({"cvt.rz.f16x2.f32", "=4 4 4", binary<W, float, float, pair<half_from<rz>>>});
  forms.push_back({"cvt.rn.bf16x2.f32", "=4 4 4",
                   rows::binary<W, float, rows::bfloat_pairs_from, binary<W, float, float, pair<bfloat_from<>>>>});
  forms.push_back({"cvt.rz.bf16x2.f32", "=4 4 4", binary<W, float, float, pair<bfloat_from<rz>>>});
  forms.push_back({"cvt.rn.satfinite.e4m3x2.f32", "=2 4 4",
                   rows::binary<H, float, rows::e4m3_pairs_from, binary<H, float, float, e4m3_pair>>});
  forms.push_back({"cvt.rn.satfinite.e4m3x2.f16x2", "=2 4", unary<H, W, e4m3_pair_from_halves>});
  forms.push_back({"cvt.rn.f16x2.e4m3x2", "=4 2", unary<W, H, halves_from_e4m3_pair>});
}

}  // namespace msa_ops::emulator::ptx
