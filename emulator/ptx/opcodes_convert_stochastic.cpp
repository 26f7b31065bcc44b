// Conversions of fp32 that round up as often as random bits of an operand say (`.rs`).
//
// The random number is a fraction of the distance to the next number: it is added, and the sum is cut. For fp16 it has 13
// bits, for bf16 16, for all others 8; each element has those that stand where it will stand in a register of as many
// fields of 16 or 8 bits.
#include <algorithm>
#include <cmath>

#include "float_formats.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::uint32_t, std::uint64_t;

struct Stochastic {
  const FloatFormat* to;
  unsigned count;   // elements
  unsigned field;   // bits of each in the result
  unsigned random;  // bits of each one's random number
  bool relu;
  bool finite;
};

std::vector<Stochastic>& conversions() {
  static auto* made = new std::vector<Stochastic>();
  return *made;
}

uint64_t round(float value, uint32_t random, const Stochastic& s) {
  const FloatFormat& format = *s.to;
  if (std::isnan(value)) return encode(value, format, Rounding::kTowardZero, s.finite);
  if (s.relu && value <= 0) value = 0;
  const double magnitude = std::fabs(value);
  const int least = 2 - (1 << (format.exponent - 1));  // power of the least normal number
  const int power = magnitude > 0 && std::isfinite(magnitude) ? std::max(std::ilogb(magnitude), least) : least;
  const double sum = magnitude + std::ldexp(random, power - format.mantissa - static_cast<int>(s.random));
  uint64_t bits = magnitude_in(sum, format.mantissa, format.exponent, Rounding::kTowardZero);
  if (bits > format.greatest()) {
    bits = s.finite || format.top == FloatFormat::Top::kNumbers ? format.greatest() : format.infinity();
  }
  return bits | (std::signbit(value) ? format.sign() : 0);
}

// The first operand becomes the highest element.
void convert(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Stochastic& s = conversions()[i.form->variant];
  const unsigned random_field = 32 / s.count;
  for_lanes(lanes, [&](unsigned lane) {
    const auto random = static_cast<uint32_t>(warp.value(i.operands[1 + s.count], lane));
    uint64_t result = 0;
    for (unsigned element = 0; element < s.count; ++element) {
      const float value = warp.row<float>(i.operands[s.count - element])[lane];
      const uint32_t own = random >> (random_field * element) & ((1U << s.random) - 1);
      result |= round(value, own, s) << (s.field * element);
    }
    warp.set_value(i.operands[0], lane, result);
  });
}

void add(Forms& forms, const std::string& opcode, const std::string& operands, const Stochastic& conversion) {
  forms.push_back({opcode, operands, convert});
  forms.back().variant = static_cast<uint32_t>(conversions().size());
  conversions().push_back(conversion);
}

}  // namespace

void add_stochastic_forms(Forms& forms) {
  for (const bool relu : {false, true}) {
    const std::string head = relu ? "cvt.rs.relu" : "cvt.rs";
    for (const bool finite : {false, true}) {
      const std::string middle = head + (finite ? ".satfinite" : "");
      add(forms, middle + ".f16x2.f32", "=4 4 4 4", {&kF16, 2, 16, 13, relu, finite});
      add(forms, middle + ".bf16x2.f32", "=4 4 4 4", {&kBf16, 2, 16, 16, relu, finite});
    }
    const std::string four = head + ".satfinite.";
    add(forms, four + "e4m3x4.f32", "=4 4*4 4", {&kE4m3, 4, 8, 8, relu, true});
    add(forms, four + "e5m2x4.f32", "=4 4*4 4", {&kE5m2, 4, 8, 8, relu, true});
    add(forms, four + "e2m3x4.f32", "=4 4*4 4", {&kE2m3, 4, 8, 8, relu, true});
    add(forms, four + "e3m2x4.f32", "=4 4*4 4", {&kE3m2, 4, 8, 8, relu, true});
    add(forms, four + "e2m1x4.f32", "=2 4*4 4", {&kE2m1, 4, 4, 8, relu, true});
  }
}

}  // namespace msa_ops::emulator::ptx
