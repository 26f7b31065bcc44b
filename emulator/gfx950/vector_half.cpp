// Arithmetic in fp16 and with bf16 on 64 lanes: computed in wider precision and rounded once.
#include <algorithm>
#include <cmath>

#include "lane_functions.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32, F = Type::kF32, H = Type::kF16, P = Type::kPkF16, S = Type::kB16;
constexpr Encoding V1 = Encoding::kVop1, V2 = Encoding::kVop2, V3 = Encoding::kVop3, VP = Encoding::kVop3p;

std::uint32_t round16(double value) { return std::isnan(value) ? 0x7e00U : half_from_double(value); }
// Sums and products of two halves are exact or correctly rounded twice without harm in fp32.
std::uint32_t add16(std::uint32_t a, std::uint32_t b) {
  const float r = half_to(a) + half_to(b);
  return std::isnan(r) ? 0x7e00U : half_from(r);
}
std::uint32_t sub16(std::uint32_t a, std::uint32_t b) {
  const float r = half_to(a) - half_to(b);
  return std::isnan(r) ? 0x7e00U : half_from(r);
}
std::uint32_t mul16(std::uint32_t a, std::uint32_t b) {
  const float r = half_to(a) * half_to(b);
  return std::isnan(r) ? 0x7e00U : half_from(r);
}

// The product is exact in fp64, and so is the sum unless it is wider than 53 bits; then the low bits that are lost
// only matter as "not a tie", which is put back.
std::uint32_t fma16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const double product = static_cast<double>(half_to(a)) * half_to(b), addend = half_to(c);
  double sum = product + addend;
  if (std::isfinite(sum)) {
    const double back = sum - product, error = (product - (sum - back)) + (addend - back);
    if (error != 0) sum = std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
  }
  return round16(sum);
}
bool nan16(std::uint32_t a) { return (a & 0x7fff) > 0x7c00; }
std::uint32_t max16(std::uint32_t a, std::uint32_t b) {
  if (nan16(a)) return nan16(b) ? a | 0x200 : b;
  if (nan16(b)) return a;
  const float x = half_to(a), y = half_to(b);
  if (x == 0 && y == 0) return a & b;
  return x > y ? a : b;
}
std::uint32_t min16(std::uint32_t a, std::uint32_t b) {
  if (nan16(a)) return nan16(b) ? a | 0x200 : b;
  if (nan16(b)) return a;
  const float x = half_to(a), y = half_to(b);
  if (x == 0 && y == 0) return a | b;
  return x < y ? a : b;
}
std::uint32_t maximum16(std::uint32_t a, std::uint32_t b) {
  return nan16(a) ? a | 0x200 : nan16(b) ? b | 0x200 : max16(a, b);
}
std::uint32_t minimum16(std::uint32_t a, std::uint32_t b) {
  return nan16(a) ? a | 0x200 : nan16(b) ? b | 0x200 : min16(a, b);
}
std::uint32_t med16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  if (nan16(a) || nan16(b) || nan16(c)) return min16(min16(a, b), c);
  return max16(min16(a, b), min16(max16(a, b), c));
}
template <typename Function>
std::uint32_t through(std::uint32_t a, Function function) {
  if (nan16(a)) return a | 0x200;
  return round16(function(static_cast<double>(half_to(a))));
}
std::uint32_t to_integer(std::uint32_t a, double low, double high) {
  const double value = half_to(a);
  if (std::isnan(value)) return 0;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::min(std::max(std::trunc(value), low), high))) &
         0xffff;
}

std::uint32_t both(std::uint32_t low, std::uint32_t high) { return (low & 0xffff) | high << 16; }
#define HALVES2(FUNCTION) LANES2(both(FUNCTION(a & 0xffff, b & 0xffff), FUNCTION(a >> 16, b >> 16)))
#define HALVES3(FUNCTION) \
  LANES3(both(FUNCTION(a & 0xffff, b & 0xffff, c & 0xffff), FUNCTION(a >> 16, b >> 16, c >> 16)))

// Exact products of two pairs and the accumulator, added in double and rounded once.
template <bool bfloat>
std::uint32_t dot2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto value = [](std::uint32_t bits) {
    return static_cast<double>(bfloat ? bfloat_to(bits & 0xffff) : half_to(bits & 0xffff));
  };
  const auto sum =
      static_cast<float>(value(a) * value(b) + value(a >> 16) * value(b >> 16) + static_cast<double>(as_float(c)));
  return std::isnan(sum) ? kNan32 : as_bits(sum);
}

// v_mad_mix: each operand is fp32, or one half of the register; op_sel_hi says that it is a half, op_sel which.
float mix_operand(const Operand& operand, std::uint32_t bits) {
  // A constant like 1.0 is one of 16 bits where a half is meant.
  const auto number = static_cast<std::int32_t>(bits);
  const bool is_float = operand.kind == Operand::Kind::kConstant && (number < -16 || number > 64);
  if (operand.high_for_high && is_float) bits = half_from(as_float(bits));
  float value = operand.high_for_high ? half_to(operand.high ? bits >> 16 : bits & 0xffff) : as_float(bits);
  if (operand.negate_high) value = std::fabs(value);
  return operand.negate ? -value : value;
}
float mix(const VectorOperation& o, unsigned lane) {
  const auto& s = o.instruction.sources;
  return std::fma(mix_operand(s[0], o.a[lane]), mix_operand(s[1], o.b[lane]), mix_operand(s[2], o.c[lane]));
}
void mix_float(VectorOperation& o) {
  for (unsigned l = 0; l < kLanes; ++l) o.d[l] = as_bits(mix(o, l));
}
template <bool high>
void mix_half(VectorOperation& o) {
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint32_t value = half_from(mix(o, l));
    o.d[l] = high ? (o.d[l] & 0xffff) | value << 16 : (o.d[l] & 0xffff0000) | value;
  }
  o.mask = high ? 12 : 3;
}

}  // namespace

std::vector<Form> vector_half_forms() {
  std::vector<Form> made;
  const auto add = [&](Encoding e, unsigned n, const char* name, Type d, Type a, Type b, Type c, VectorFunction f,
                       std::uint32_t flags = 0) { made.push_back(vector_form(e, n, name, d, a, b, c, f, flags)); };
  add(V2, 31, "v_add_f16", H, H, H, N, LANES2(add16(a, b)));
  add(V2, 32, "v_sub_f16", H, H, H, N, LANES2(sub16(a, b)));
  add(V2, 33, "v_subrev_f16", H, H, H, N, LANES2(sub16(b, a)));
  add(V2, 34, "v_mul_f16", H, H, H, N, LANES2(mul16(a, b)));
  add(V2, 45, "v_max_f16", H, H, H, N, LANES2(max16(a, b)));
  add(V2, 46, "v_min_f16", H, H, H, N, LANES2(min16(a, b)));
  add(V2, 51, "v_ldexp_f16", H, H, S, N,
      LANES2(nan16(a) ? a | 0x200
                      : round16(std::ldexp(static_cast<double>(half_to(a)), static_cast<std::int16_t>(b)))));
  add(
      V2, 55, "v_dot2c_f32_f16", F, B, B, N,
      [](VectorOperation& o) {
        for (unsigned l = 0; l < kLanes; ++l) o.d[l] = dot2<false>(o.a[l], o.b[l], o.d[l]);
      },
      kReadsDestination);
  add(
      V2, 22, "v_dot2c_f32_bf16", F, B, B, N,
      [](VectorOperation& o) {
        for (unsigned l = 0; l < kLanes; ++l) o.d[l] = dot2<true>(o.a[l], o.b[l], o.d[l]);
      },
      kReadsDestination);
  add(V3, 500, "v_min3_f16", H, H, H, H, LANES3(min16(min16(a, b), c)));
  add(V3, 503, "v_max3_f16", H, H, H, H, LANES3(max16(max16(a, b), c)));
  add(V3, 506, "v_med3_f16", H, H, H, H, LANES3(med16(a, b, c)));
  add(V3, 518, "v_fma_f16", H, H, H, H, LANES3(fma16(a, b, c)));
  add(V3, 672, "v_pack_b32_f16", B, H, H, N, LANES2((a & 0xffff) | b << 16));
  add(V1, 57, "v_cvt_f16_u16", H, S, N, N, LANES1(half_from(static_cast<float>(a & 0xffff))));
  add(V1, 58, "v_cvt_f16_i16", H, S, N, N, LANES1(half_from(static_cast<float>(static_cast<std::int16_t>(a)))));
  add(V1, 59, "v_cvt_u16_f16", S, H, N, N, LANES1(to_integer(a, 0, 65535)));
  add(V1, 60, "v_cvt_i16_f16", S, H, N, N, LANES1(to_integer(a, -32768, 32767)));
  add(V1, 61, "v_rcp_f16", H, H, N, N, LANES1(through(a, [](double x) { return 1 / x; })), kTranscendental);
  add(V1, 62, "v_sqrt_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::sqrt(x); })), kTranscendental);
  add(V1, 63, "v_rsq_f16", H, H, N, N, LANES1(through(a, [](double x) { return 1 / std::sqrt(x); })), kTranscendental);
  add(V1, 64, "v_log_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::log2(x); })), kTranscendental);
  add(V1, 65, "v_exp_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::exp2(x); })), kTranscendental);
  add(V1, 68, "v_floor_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::floor(x); })));
  add(V1, 69, "v_ceil_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::ceil(x); })));
  add(V1, 70, "v_trunc_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::trunc(x); })));
  add(V1, 71, "v_rndne_f16", H, H, N, N, LANES1(through(a, [](double x) { return std::nearbyint(x); })));
  add(VP, 14, "v_pk_fma_f16", P, P, P, P, HALVES3(fma16));
  add(VP, 15, "v_pk_add_f16", P, P, P, N, HALVES2(add16));
  add(VP, 16, "v_pk_mul_f16", P, P, P, N, HALVES2(mul16));
  add(VP, 17, "v_pk_min_f16", P, P, P, N, HALVES2(min16));
  add(VP, 18, "v_pk_max_f16", P, P, P, N, HALVES2(max16));
  add(VP, 27, "v_pk_minimum3_f16", P, P, P, P,
      LANES3(both(minimum16(minimum16(a & 0xffff, b & 0xffff), c & 0xffff),
                  minimum16(minimum16(a >> 16, b >> 16), c >> 16))));
  add(VP, 28, "v_pk_maximum3_f16", P, P, P, P,
      LANES3(both(maximum16(maximum16(a & 0xffff, b & 0xffff), c & 0xffff),
                  maximum16(maximum16(a >> 16, b >> 16), c >> 16))));
  add(VP, 26, "v_dot2_f32_bf16", F, B, B, F, LANES3(dot2<true>(a, b, c)));
  add(VP, 35, "v_dot2_f32_f16", F, B, B, F, LANES3(dot2<false>(a, b, c)));
  add(VP, 32, "v_mad_mix_f32", F, B, B, B, mix_float);
  add(VP, 33, "v_mad_mixlo_f16", B, B, B, B, mix_half<false>, kPartial);
  add(VP, 34, "v_mad_mixhi_f16", B, B, B, B, mix_half<true>, kPartial);
  return made;
}

}  // namespace msa_ops::emulator::gfx950
