// Conversions to and from formats of 8 bits and less, tf32, and fp16 and bf16 with saturation or without sign; most of
// them make or take pairs.
#include <cmath>

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
  const FloatFormat* from;
  unsigned field;  // bits of an element of the source
  bool relu;
};

std::vector<Widening>& widenings() {
  static auto* made = new std::vector<Widening>();
  return *made;
}

void widen_lanes(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Widening& w = widenings()[i.form->variant];
  const auto bits = static_cast<unsigned>(w.from->exponent + w.from->mantissa + 1);
  for_lanes(lanes, [&](unsigned lane) {
    const uint64_t source = warp.value(i.operands[1], lane);
    uint64_t result = 0;
    for (unsigned element = 0; element < 2; ++element) {
      double value = decode(source >> (w.field * element) & ((uint64_t{1} << bits) - 1), *w.from);
      if (w.relu && value <= 0) value = 0;
      result |= encode(value, *w.to, Rounding::kNearestEven, false) << (16 * element);
    }
    warp.set_value(i.operands[0], lane, result);
  });
}

// d = {saturated a, saturated b} in halves; with c: in the low bytes, above them c's.
template <typename To, bool merge>
void pack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  using Limits = std::numeric_limits<To>;
  constexpr unsigned bits = 8 * sizeof(To);
  const auto saturated = [](std::int32_t value) {
    const std::int64_t wide = value;
    const std::int64_t kept = wide < Limits::min() ? Limits::min() : wide > Limits::max() ? Limits::max() : wide;
    return static_cast<uint32_t>(kept) & ((1U << bits) - 1);
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

void add_widening(Forms& forms, const std::string& opcode, const Widening& widening) {
  forms.push_back({opcode, "=4 2", widen_lanes});
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

void add_eight(Forms& forms, const Named& to) {
  constexpr auto rn = Rounding::kNearestEven;
  for (const bool relu : {false, true}) {
    const std::string relu_text = relu ? ".relu" : "";
    const std::string pair = std::string(".") + to.name + "x2";
    if (relu || to.format != &kE4m3) {  // the others are in opcodes_convert.cpp
      const std::string head = "cvt.rn.satfinite" + relu_text + pair;
      add_narrowing(forms, head + ".f32", "=2 4 4", {to.format, &kF32, 2, 8, false, rn, relu, true});
      add_narrowing(forms, head + ".f16x2", "=2 4", {to.format, &kF16, 2, 8, true, rn, relu, true});
      add_widening(forms, "cvt.rn" + relu_text + ".f16x2" + pair, {&kF16, to.format, 8, relu});
    }
  }
}

void add_tf32(Forms& forms) {
  for (const bool finite : {false, true}) {
    const std::string tail = std::string(finite ? ".satfinite" : "") + ".tf32.f32";
    forms.push_back({"cvt.rna" + tail, "=4 4", finite ? unary<uint32_t, uint32_t, tf32_away<true>>
                                                     : unary<uint32_t, uint32_t, tf32_away<false>>});
    for (const bool relu : {false, true}) {
      if (finite) continue;  // of later chips
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
  forms.push_back({"cvt.pack.sat.s16.s32", "=4 4 4", pack<std::int16_t, false>});
  forms.push_back({"cvt.pack.sat.u16.s32", "=4 4 4", pack<std::uint16_t, false>});
  forms.push_back({"cvt.pack.sat.s8.s32.b32", "=4 4 4 4", pack<std::int8_t, true>});
  forms.push_back({"cvt.pack.sat.u8.s32.b32", "=4 4 4 4", pack<std::uint8_t, true>});
}

}  // namespace msa_ops::emulator::ptx
