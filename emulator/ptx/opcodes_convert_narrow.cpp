// Conversions to and from formats of 8 bits and less, tf32, and fp16 and bf16 with saturation or without sign; most of
// them make or take pairs.
#include <cmath>
#include <limits>

#include "float_formats.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::uint32_t, std::uint64_t;

// What is converted into a format: numbers of fp32 in registers of their own, or the elements of one register.
struct Narrowing {
  const FloatFormat* to;
  const FloatFormat* from;
  unsigned count;      // elements of the result
  unsigned field;      // bits of each there
  bool packed;         // the source is one register
  Rounding rounding;
  bool relu;
  bool finite;
};

std::vector<Narrowing>& narrowings() {
  static auto* made = new std::vector<Narrowing>();
  return *made;
}

uint64_t narrow(double value, const Narrowing& n) {
  if (n.relu && value <= 0) value = 0;
  const uint64_t bits = encode(value, *n.to, n.rounding, n.finite);
  return n.to == &kTf32 ? bits << 13 : bits;  // in the place of fp32
}

// Ties go away from zero. NaN and infinity lose their low bits, and what is left of them is made finite by one step, as
// an H200 does it.
template <bool finite>
uint32_t tf32_away(uint32_t a) {
  const uint32_t magnitude = a & 0x7fffffff;
  if (magnitude >= 0x7f800000) return (a & 0xffffe000) - (finite ? 0x2000 : 0);
  const uint32_t rounded = (magnitude + 0x1000) & 0xffffe000;
  const uint32_t kept = finite && rounded == 0x7f800000 ? rounded - 0x2000 : rounded;
  return (a & 0x80000000) | kept;
}

// The first operand of several becomes the highest element.
void narrow_lanes(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Narrowing& n = narrowings()[i.form->variant];
  const auto bits = static_cast<unsigned>(n.from->exponent + n.from->mantissa + 1);
  const uint64_t ones = (uint64_t{1} << bits) - 1;
  for_lanes(lanes, [&](unsigned lane) {
    uint64_t result = 0;
    for (unsigned element = 0; element < n.count; ++element) {
      const uint64_t source = n.packed ? warp.value(i.operands[1], lane) >> (bits * element)
                                       : warp.value(i.operands[n.count - element], lane);
      result |= narrow(decode(source & ones, *n.from), n) << (n.field * element);
    }
    warp.set_value(i.operands[0], lane, result);
  });
}

struct Widening {
  const FloatFormat* to;
  const FloatFormat* from;  // nullptr: S2F6, a signed byte of which six bits are the fraction
  unsigned field;           // bits of an element of the source
  bool relu;
  bool finite = false;
  bool scaled = false;      // by a power of two for each element, in UE8M0
};

std::vector<Widening>& widenings() {
  static auto* made = new std::vector<Widening>();
  return *made;
}

double value_of(uint64_t code, const FloatFormat* format) {
  if (format == nullptr) return static_cast<std::int8_t>(code) / 64.0;
  return decode(code & ((uint64_t{1} << (format->exponent + format->mantissa + 1)) - 1), *format);
}

// A power of two; 0xff is NaN.
double power_of_ue8m0(uint64_t field) { return field == 0xff ? NAN : std::ldexp(1.0, static_cast<int>(field) - 127); }

void widen_lanes(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Widening& w = widenings()[i.form->variant];
  for_lanes(lanes, [&](unsigned lane) {
    const uint64_t source = warp.value(i.operands[1], lane);
    const uint64_t scales = w.scaled ? warp.value(i.operands[2], lane) : 0;
    uint64_t result = 0;
    for (unsigned element = 0; element < 2; ++element) {
      double value = value_of(source >> (w.field * element), w.from);
      if (w.scaled) value *= power_of_ue8m0(scales >> (8 * element) & 0xff);
      if (w.relu && value <= 0) value = 0;
      result |= encode(value, *w.to, Rounding::kNearestEven, w.finite) << (16 * element);
    }
    warp.set_value(i.operands[0], lane, result);
  });
}

// d = {saturated a, saturated b} in halves; with c: in the low bytes, above them c's.
template <unsigned bits, bool is_signed, bool merge>
void pack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  constexpr std::int32_t least = is_signed ? -(1 << (bits - 1)) : 0, greatest = (1 << (bits - is_signed)) - 1;
  const auto saturated = [](std::int32_t value) {
    return static_cast<uint32_t>(value < least ? least : value > greatest ? greatest : value) & ((1U << bits) - 1);
  };
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<std::int32_t>(i.operands[1]);
  const auto* b = warp.row<std::int32_t>(i.operands[2]);
  const uint32_t* c = merge ? warp.row<uint32_t>(i.operands[3]) : nullptr;
  for_lanes(lanes, [&](unsigned lane) {
    uint32_t result = saturated(a[lane]) << bits | saturated(b[lane]);
    if constexpr (merge) result |= c[lane] << (2 * bits);
    out[lane] = result;
  });
}

void add_narrowing(Forms& forms, const std::string& opcode, const std::string& operands, const Narrowing& narrowing) {
  forms.push_back({opcode, operands, narrow_lanes});
  forms.back().variant = static_cast<uint32_t>(narrowings().size());
  narrowings().push_back(narrowing);
}

void add_widening(Forms& forms, const std::string& opcode, const std::string& operand, const Widening& widening) {
  forms.push_back({opcode, "=4 " + operand, widen_lanes});
  forms.back().variant = static_cast<uint32_t>(widenings().size());
  widenings().push_back(widening);
}

struct Named {
  const char* name;
  const FloatFormat* format;
};

void add_sixteen(Forms& forms, const Named& to) {
  for (const bool nearest : {true, false}) {
    const Rounding rounding = nearest ? Rounding::kNearestEven : Rounding::kTowardZero;
    for (const bool relu : {false, true}) {
      for (const bool finite : {false, true}) {
        if (!relu && !finite) continue;  // in opcodes_convert.cpp
        const std::string head = std::string(nearest ? "cvt.rn" : "cvt.rz") + (relu ? ".relu" : "") +
                                 (finite ? ".satfinite." : ".") + to.name;
        add_narrowing(forms, head + ".f32", "=2 4", {to.format, &kF32, 1, 16, false, rounding, relu, finite});
        add_narrowing(forms, head + "x2.f32", "=4 4 4", {to.format, &kF32, 2, 16, false, rounding, relu, finite});
      }
    }
  }
}

// Formats of six and four bits, and those of eight with bf16; `field`: the bits of an element in a pair.
void add_later(Forms& forms, const Named& to, unsigned field) {
  constexpr auto rn = Rounding::kNearestEven;
  const std::string pair = std::string(".") + to.name + "x2", narrow = field == 4 ? "1" : "2";
  const bool eight = to.format == &kE4m3 || to.format == &kE5m2;
  for (const bool relu : {false, true}) {
    const std::string relu_text = relu ? ".relu" : "", head = "cvt.rn.satfinite" + relu_text + pair;
    if (!eight) {
      add_narrowing(forms, head + ".f32", "=" + narrow + " 4 4", {to.format, &kF32, 2, field, false, rn, relu, true});
      add_narrowing(forms, head + ".f16x2", "=" + narrow + " 4", {to.format, &kF16, 2, field, true, rn, relu, true});
      add_widening(forms, "cvt.rn" + relu_text + ".f16x2" + pair, narrow, {&kF16, to.format, field, relu});
    }
    add_narrowing(forms, head + ".bf16x2", "=" + narrow + " 4", {to.format, &kBf16, 2, field, true, rn, relu, true});
    add_widening(forms, "cvt.rn" + relu_text + ".bf16x2" + pair, narrow, {&kBf16, to.format, field, relu});
  }
}

// Powers of two from 2^-127, without a sign; 0xff is NaN. The sign of the source does not count.
uint32_t ue8m0_from(uint32_t bits, bool up, bool finite) {
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0xff;
  uint32_t field = magnitude >> 23;
  if (up && (magnitude & 0x7fffff) != 0 && magnitude > 0x400000) ++field;
  return finite && field == 0xff ? 0xfe : field;
}
template <bool up, bool finite>
std::uint16_t ue8m0_pair(uint32_t high, uint32_t low) {
  return static_cast<std::uint16_t>(ue8m0_from(high, up, finite) << 8 | ue8m0_from(low, up, finite));
}
template <bool up, bool finite>
std::uint16_t ue8m0_pair_of_brains(uint32_t pair) {
  return ue8m0_pair<up, finite>(pair & 0xffff0000, pair << 16);
}
uint32_t brains_from_ue8m0(std::uint16_t pair) {
  const auto one = [](uint32_t field) { return field == 0xff ? kNan16 : field == 0 ? 0x40U : field << 7; };
  return one(pair >> 8) << 16 | one(pair & 0xff);
}
template <bool up, bool finite>
void add_ue8m0(Forms& forms) {
  const std::string head = std::string(up ? "cvt.rp" : "cvt.rz") + (finite ? ".satfinite" : "") + ".ue8m0x2";
  forms.push_back({head + ".f32", "=2 4 4", binary<std::uint16_t, uint32_t, uint32_t, ue8m0_pair<up, finite>>});
  forms.push_back({head + ".bf16x2", "=2 4", unary<std::uint16_t, uint32_t, ue8m0_pair_of_brains<up, finite>>});
}

// One exponent bit more than E4M3 and no sign; 0xff is the only NaN.
constexpr FloatFormat kUe5m3{5, 3, FloatFormat::Top::kNan};
template <const FloatFormat& to>
uint32_t pair_from_ue5m3(std::uint16_t pair) {
  const auto one = [](uint32_t code) {
    return static_cast<uint32_t>(encode(decode(code, kUe5m3), to, Rounding::kNearestEven, false));
  };
  return one(pair >> 8) << 16 | one(pair & 0xff);
}

// The sign of the source does not count, as for UE8M0.
template <Rounding rounding, bool finite>
uint64_t ue5m3_from(double value) { return encode(std::fabs(value), kUe5m3, rounding, finite); }
template <Rounding rounding, bool finite>
std::uint16_t ue5m3_pair(float high, float low) {
  return static_cast<std::uint16_t>(ue5m3_from<rounding, finite>(high) << 8 | ue5m3_from<rounding, finite>(low));
}
template <Rounding rounding, bool finite, float (*wide)(std::uint16_t)>
std::uint16_t ue5m3_pair_of_sixteen(uint32_t pair) {
  return ue5m3_pair<rounding, finite>(wide(static_cast<std::uint16_t>(pair >> 16)), wide(static_cast<std::uint16_t>(pair)));
}
template <Rounding rounding, bool finite>
void add_ue5m3(Forms& forms, const std::string& name) {
  using H = std::uint16_t;
  using W = uint32_t;
  const std::string head = "cvt." + name + (finite ? ".satfinite" : "") + ".ue5m3x2";
  forms.push_back({head + ".f32", "=2 4 4", binary<H, float, float, ue5m3_pair<rounding, finite>>});
  forms.push_back({head + ".f16x2", "=2 4", unary<H, W, ue5m3_pair_of_sixteen<rounding, finite, float_from_half>>});
  forms.push_back({head + ".bf16x2", "=2 4", unary<H, W, ue5m3_pair_of_sixteen<rounding, finite, float_from_bfloat>>});
}
template <Rounding rounding>
void add_ue5m3(Forms& forms, const std::string& name) {
  add_ue5m3<rounding, false>(forms, name);
  add_ue5m3<rounding, true>(forms, name);
}

// To bf16 with saturation, with a scale for each element, or both; `from` as in Widening.
void add_scaled(Forms& forms, const std::string& name, const FloatFormat* from, unsigned field) {
  const std::string operand = field == 4 ? "1" : "2", tail = ".bf16x2." + name + "x2";
  for (const char* modifiers : {"", ".relu", ".satfinite", ".relu.satfinite", ".satfinite.relu"}) {
    const std::string head = std::string("cvt.rn") + modifiers;
    const bool relu = head.find("relu") != std::string::npos, finite = head.find("finite") != std::string::npos;
    const bool made = from != nullptr && !finite;  // by add_later
    if (!made) add_widening(forms, head + tail, operand, {&kBf16, from, field, relu, finite, false});
    add_widening(forms, head + ".scaled::n2::ue8m0" + tail, operand + " 2", {&kBf16, from, field, relu, finite, true});
  }
}

void add_eight(Forms& forms, const Named& to) {
  constexpr auto rn = Rounding::kNearestEven;
  for (const bool relu : {false, true}) {
    const std::string relu_text = relu ? ".relu" : "";
    const std::string pair = std::string(".") + to.name + "x2";
    if (relu || to.format != &kE4m3) {  // the others are in opcodes_convert.cpp
      const std::string head = "cvt.rn.satfinite" + relu_text + pair;
      add_narrowing(forms, head + ".f32", "=2 4 4", {to.format, &kF32, 2, 8, false, rn, relu, true});
      add_narrowing(forms, head + ".f16x2", "=2 4", {to.format, &kF16, 2, 8, true, rn, relu, true});
      add_widening(forms, "cvt.rn" + relu_text + ".f16x2" + pair, "2", {&kF16, to.format, 8, relu});
    }
  }
}

void add_tf32(Forms& forms) {
  for (const bool finite : {false, true}) {
    const std::string tail = std::string(finite ? ".satfinite" : "") + ".tf32.f32";
    forms.push_back({"cvt.rna" + tail, "=4 4", finite ? unary<uint32_t, uint32_t, tf32_away<true>>
                                                     : unary<uint32_t, uint32_t, tf32_away<false>>});
    for (const bool relu : {false, true}) {
      const std::string middle = relu ? ".relu" : "";
      add_narrowing(forms, "cvt.rn" + middle + tail, "=4 4",
                    {&kTf32, &kF32, 1, 32, false, Rounding::kNearestEven, relu, finite});
      add_narrowing(forms, "cvt.rz" + middle + tail, "=4 4",
                    {&kTf32, &kF32, 1, 32, false, Rounding::kTowardZero, relu, finite});
    }
  }
}

}  // namespace

void add_narrow_conversion_forms(Forms& forms) {
  add_sixteen(forms, {"f16", &kF16});
  add_sixteen(forms, {"bf16", &kBf16});
  add_eight(forms, {"e4m3", &kE4m3});
  add_eight(forms, {"e5m2", &kE5m2});
  add_tf32(forms);
  add_later(forms, {"e4m3", &kE4m3}, 8);
  add_later(forms, {"e5m2", &kE5m2}, 8);
  add_later(forms, {"e2m3", &kE2m3}, 8);
  add_later(forms, {"e3m2", &kE3m2}, 8);
  add_later(forms, {"e2m1", &kE2m1}, 4);
  add_scaled(forms, "e4m3", &kE4m3, 8);
  add_scaled(forms, "e5m2", &kE5m2, 8);
  add_scaled(forms, "e2m3", &kE2m3, 8);
  add_scaled(forms, "e3m2", &kE3m2, 8);
  add_scaled(forms, "e2m1", &kE2m1, 4);
  add_scaled(forms, "s2f6", nullptr, 8);
  add_ue8m0<false, false>(forms);
  add_ue8m0<false, true>(forms);
  add_ue8m0<true, false>(forms);
  add_ue8m0<true, true>(forms);
  using W = uint32_t;
  forms.push_back({"cvt.rn.bf16x2.ue8m0x2", "=4 2", unary<W, std::uint16_t, brains_from_ue8m0>});
  forms.push_back({"cvt.rn.f16x2.ue5m3x2", "=4 2", unary<W, std::uint16_t, pair_from_ue5m3<kF16>>});
  forms.push_back({"cvt.rn.bf16x2.ue5m3x2", "=4 2", unary<W, std::uint16_t, pair_from_ue5m3<kBf16>>});
  add_ue5m3<Rounding::kNearestEven>(forms, "rn");
  add_ue5m3<Rounding::kTowardZero>(forms, "rz");
  add_ue5m3<Rounding::kUp>(forms, "rp");
  forms.push_back({"cvt.pack.sat.s16.s32", "=4 4 4", pack<16, true, false>});
  forms.push_back({"cvt.pack.sat.u16.s32", "=4 4 4", pack<16, false, false>});
  forms.push_back({"cvt.pack.sat.s8.s32.b32", "=4 4 4 4", pack<8, true, true>});
  forms.push_back({"cvt.pack.sat.u8.s32.b32", "=4 4 4 4", pack<8, false, true>});
  forms.push_back({"cvt.pack.sat.s4.s32.b32", "=4 4 4 4", pack<4, true, true>});
  forms.push_back({"cvt.pack.sat.u4.s32.b32", "=4 4 4 4", pack<4, false, true>});
  forms.push_back({"cvt.pack.sat.s2.s32.b32", "=4 4 4 4", pack<2, true, true>});
  forms.push_back({"cvt.pack.sat.u2.s32.b32", "=4 4 4 4", pack<2, false, true>});
}

}  // namespace msa_ops::emulator::ptx
