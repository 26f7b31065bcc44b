// Approximate functions of fp32. Without .ftz the multifunction unit sees operands scaled into its range, as in the
// machine code that ptxas makes of these instructions.
#include <cmath>

#include "approximate.hpp"
#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr float kSmallestNormal = 0x1p-126F;
constexpr float kGreatestRcp = 0x1p126F;  // above it the reciprocal is subnormal
constexpr float kTurns = 0.15915493667125701904F;  // 1 / (2 pi), as the machine code has it

bool small(float a) { return std::fabs(a) < kSmallestNormal; }

float rcp(float a) {
  const float scale = small(a) ? 0x1p24F : std::fabs(a) > kGreatestRcp ? 0.25F : 1.0F;
  const float scaled = a * scale;
  return canonical(unit_rcp(scaled) * scale);
}
float rsqrt(float a) { return small(a) ? unit_rsqrt(a * 0x1p24F) * 0x1p12F : unit_rsqrt(a); }
float sqrt(float a) { return small(a) ? unit_sqrt(a * 0x1p24F) * 0x1p-12F : unit_sqrt(a); }
float lg2(float a) { return small(a) ? canonical(unit_lg2(a * 0x1p24F) - 24) : unit_lg2(a); }
float ex2(float a) {
  if (!(a < -126)) return unit_ex2(a);
  const float half = unit_ex2(a * 0.5F);
  return half * half;
}

void ex2_flushed(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (lanes != kAllLanes) return unary<float, float, unit_ex2>(warp, i, lanes);
  unit_ex2(warp.row<float>(i.operands[1]), warp.out<float>(i.operands[0]));
}

// The product is rounded toward zero.
float turns(float a) {
  const double exact = double{a} * kTurns;
  if (!std::isfinite(exact)) return canonical(static_cast<float>(exact));
  const auto near = static_cast<float>(exact);
  return std::fabs(double{near}) > std::fabs(exact) ? std::nextafterf(near, 0) : near;
}
template <bool ftz>
float sin(float a) { return unit_sin(turns(ftz ? flush(a) : a)); }
template <bool ftz>
float cos(float a) { return unit_cos(turns(ftz ? flush(a) : a)); }

// Quotients by way of the reciprocal, scaled as in the machine code.
template <bool ftz>
float div_approx(float a, float b) {
  if (!ftz && small(b)) a *= 0x1p24F, b *= 0x1p24F;
  if (ftz) a = flush(a);
  const float found = canonical(a * unit_rcp(b));
  return ftz ? flush(found) : found;
}
template <bool ftz>
float div_full(float a, float b) {
  if (ftz) a = flush(a), b = flush(b);
  if (std::fabs(b) > kGreatestRcp) a *= 0.25F, b *= 0.25F;
  if (ftz) a = flush(a);
  return div_approx<ftz>(a, b);
}

// The unit's fp32 result, cut to 16 bits; what is too large is infinite.
template <float (*wide)(std::uint16_t), std::uint16_t (*cut)(double), int most, float (*function)(float)>
std::uint16_t sixteen(std::uint16_t a) {
  const float found = function(wide(a));
  if (std::isfinite(found) && found >= std::ldexp(1.0F, most)) return cut(INFINITY);
  return cut(found);
}
template <std::uint16_t (*function)(std::uint16_t)>
std::uint32_t pair(std::uint32_t a) {
  return std::uint32_t{function(static_cast<std::uint16_t>(a >> 16))} << 16 | function(static_cast<std::uint16_t>(a));
}
template <std::uint16_t (*function)(std::uint16_t)>
void add_sixteen(Forms& forms, const std::string& opcode) {
  forms.push_back({opcode, "=2 2", unary<std::uint16_t, std::uint16_t, function>});
  forms.push_back({opcode + "x2", "=4 4", unary<std::uint32_t, std::uint32_t, pair<function>>});
}

template <std::uint32_t (*function)(std::uint32_t)>
std::uint64_t upper(std::uint64_t a) { return std::uint64_t{function(static_cast<std::uint32_t>(a >> 32))} << 32; }

template <float (*function)(float)>
void add(Forms& forms, const std::string& opcode) {
  forms.push_back({opcode, "=4 4", unary<float, float, function>});
}

}  // namespace

void add_approximate_forms(Forms& forms) {
  add<rcp>(forms, "rcp.approx.f32");
  add<rsqrt>(forms, "rsqrt.approx.f32");
  add<sqrt>(forms, "sqrt.approx.f32");
  add<lg2>(forms, "lg2.approx.f32");
  add<ex2>(forms, "ex2.approx.f32");
  add<sin<false>>(forms, "sin.approx.f32");
  add<cos<false>>(forms, "cos.approx.f32");
  add<unit_tanh>(forms, "tanh.approx.f32");
  add<unit_rcp>(forms, "rcp.approx.ftz.f32");
  add<unit_rsqrt>(forms, "rsqrt.approx.ftz.f32");
  add<unit_sqrt>(forms, "sqrt.approx.ftz.f32");
  add<unit_lg2>(forms, "lg2.approx.ftz.f32");
  forms.push_back({"ex2.approx.ftz.f32", "=4 4", ex2_flushed});
  add<sin<true>>(forms, "sin.approx.ftz.f32");
  add<cos<true>>(forms, "cos.approx.ftz.f32");
  using D = std::uint64_t;
  forms.push_back({"rcp.approx.ftz.f64", "=8 8", unary<D, D, upper<unit_rcp64>>});
  forms.push_back({"rsqrt.approx.ftz.f64", "=8 8", unary<D, D, upper<unit_rsqrt64>>});
  using F = float;
  forms.push_back({"div.approx.f32", "=4 4 4", binary<F, F, F, div_approx<false>>});
  forms.push_back({"div.approx.ftz.f32", "=4 4 4", binary<F, F, F, div_approx<true>>});
  forms.push_back({"div.full.f32", "=4 4 4", binary<F, F, F, div_full<false>>});
  forms.push_back({"div.full.ftz.f32", "=4 4 4", binary<F, F, F, div_full<true>>});
  constexpr auto half = half_from<Rounding::kTowardZero>;
  constexpr auto brain = bfloat_from<Rounding::kTowardZero>;
  add_sixteen<sixteen<float_from_half, half, 16, unit_ex2>>(forms, "ex2.approx.f16");
  add_sixteen<sixteen<float_from_bfloat, brain, 128, unit_ex2>>(forms, "ex2.approx.ftz.bf16");
  add_sixteen<sixteen<float_from_half, half, 16, unit_tanh>>(forms, "tanh.approx.f16");
  add_sixteen<sixteen<float_from_bfloat, brain, 128, unit_tanh>>(forms, "tanh.approx.bf16");
}

}  // namespace msa_ops::emulator::ptx
