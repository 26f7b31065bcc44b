// Arithmetic in fp32 and fp64 on 64 lanes, and the packed fp32 of two registers.
#include <algorithm>
#include <cmath>

#include "lane_functions.hpp"
#include "wave.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MSA_OPS_FMA_CLONES __attribute__((target_clones("default", "arch=haswell")))
#else
#define MSA_OPS_FMA_CLONES
#endif

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32, F = Type::kF32, D = Type::kF64, X = Type::kPkF32;
constexpr Encoding V1 = Encoding::kVop1, V2 = Encoding::kVop2, V3 = Encoding::kVop3, VP = Encoding::kVop3p;

void add_rows(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* __restrict d, unsigned count) {
  for (unsigned i = 0; i < count; ++i) d[i] = nan_of(as_bits(as_float(a[i]) + as_float(b[i])), a[i], b[i]);
}
void sub_rows(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* __restrict d, unsigned count) {
  for (unsigned i = 0; i < count; ++i) d[i] = nan_of(as_bits(as_float(a[i]) - as_float(b[i])), a[i], b[i]);
}
void mul_rows(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* __restrict d, unsigned count) {
  for (unsigned i = 0; i < count; ++i) d[i] = nan_of(as_bits(as_float(a[i]) * as_float(b[i])), a[i], b[i]);
}
MSA_OPS_FMA_CLONES
void fma_rows(const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c, std::uint32_t* __restrict d,
              unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    float x, y, z;
    __builtin_memcpy(&x, &a[i], 4);
    __builtin_memcpy(&y, &b[i], 4);
    __builtin_memcpy(&z, &c[i], 4);
    const float value = __builtin_fmaf(x, y, z);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    d[i] = bits;
  }
}
void fix_nans(const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c, std::uint32_t* __restrict d,
              unsigned count) {
  for (unsigned i = 0; i < count; ++i) d[i] = nan_of(d[i], a[i], b[i], c[i]);
}
void fma_fixed(const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c, std::uint32_t* d,
               unsigned count) {
  alignas(64) std::uint32_t result[2 * kLanes];
  fma_rows(a, b, c, result, count);
  fix_nans(a, b, c, result, count);
  std::copy(result, result + count, d);
}

// maxNum and minNum of IEEE 754-2008: a quiet NaN loses against a number; +0 is larger than -0.
std::uint32_t max_num(std::uint32_t a, std::uint32_t b) {
  if (is_nan(a)) return is_nan(b) ? quieted(a) : b;
  if (is_nan(b)) return a;
  const float x = as_float(a), y = as_float(b);
  if (x == 0 && y == 0) return a & b;
  return x > y ? a : b;
}
std::uint32_t min_num(std::uint32_t a, std::uint32_t b) {
  if (is_nan(a)) return is_nan(b) ? quieted(a) : b;
  if (is_nan(b)) return a;
  const float x = as_float(a), y = as_float(b);
  if (x == 0 && y == 0) return a | b;
  return x < y ? a : b;
}
// maximum and minimum of IEEE 754-2019: NaN wins.
std::uint32_t maximum(std::uint32_t a, std::uint32_t b) {
  return is_nan(a) ? quieted(a) : is_nan(b) ? quieted(b) : max_num(a, b);
}
std::uint32_t minimum(std::uint32_t a, std::uint32_t b) {
  return is_nan(a) ? quieted(a) : is_nan(b) ? quieted(b) : min_num(a, b);
}
std::uint32_t med3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  if (is_nan(a) || is_nan(b) || is_nan(c)) return min_num(min_num(a, b), c);
  return max_num(min_num(a, b), min_num(max_num(a, b), c));
}

// ---- functions of one float; results are those of double precision rounded once, which is within the accuracy of
// 1 ULP that the manual states. v_exp, v_log and v_rsq treat subnormal numbers as zero.
template <typename Function>
std::uint32_t through_double(std::uint32_t a, Function function) {
  if (is_nan(a)) return quieted(a);
  const auto value = static_cast<float>(function(static_cast<double>(as_float(a))));
  return std::isnan(value) ? kNan32 : as_bits(value);
}
std::uint32_t exp2_of(std::uint32_t a) {
  return as_bits(
      flushed(as_float(through_double(as_bits(flushed(as_float(a))), [](double x) { return std::exp2(x); }))));
}
std::uint32_t log2_of(std::uint32_t a) {
  return through_double(as_bits(flushed(as_float(a))), [](double x) { return std::log2(x); });
}
std::uint32_t rcp_of(std::uint32_t a) { return through_double(a, [](double x) { return 1 / x; }); }
std::uint32_t rsq_of(std::uint32_t a) {
  return through_double(as_bits(flushed(as_float(a))), [](double x) { return 1 / std::sqrt(x); });
}
std::uint32_t sqrt_of(std::uint32_t a) { return through_double(a, [](double x) { return std::sqrt(x); }); }
// The operand is in turns; beyond 2^8 turns the manual says nothing.
std::uint32_t sin_of(std::uint32_t a) {
  return through_double(
      a, [](double x) { return std::isinf(x) ? NAN : std::sin((x - std::floor(x)) * 6.283185307179586476925); });
}
std::uint32_t cos_of(std::uint32_t a) {
  return through_double(
      a, [](double x) { return std::isinf(x) ? NAN : std::cos((x - std::floor(x)) * 6.283185307179586476925); });
}
std::uint32_t fract_of(std::uint32_t a) {
  if (is_nan(a)) return quieted(a);
  const float x = as_float(a);
  if (std::isinf(x)) return kNan32;
  return as_bits(std::min(x - std::floor(x), 0x1.fffffep-1F));
}

template <typename Function>
void doubles(VectorOperation& o, Function function) {
  for (unsigned l = 0; l < kLanes; ++l) set_wide(o.d, l, as_bits(static_cast<double>(function(l))));
}
double at(const std::uint32_t* row, unsigned lane) { return as_double(wide(row, lane)); }

std::uint32_t ldexp32(std::uint32_t a, std::uint32_t b) {
  if (is_nan(a)) return quieted(a);
  const auto power = static_cast<std::int32_t>(b);
  return as_bits(std::ldexp(as_float(a), std::max(std::min(power, 1000), -1000)));
}
std::uint32_t frexp_exponent(std::uint32_t a) {
  const float x = as_float(a);
  if (std::isnan(x) || std::isinf(x) || x == 0) return 0;
  int power = 0;
  std::frexp(x, &power);
  return static_cast<std::uint32_t>(power);
}
std::uint32_t frexp_mantissa(std::uint32_t a) {
  const float x = as_float(a);
  if (std::isnan(x)) return quieted(a);
  if (std::isinf(x) || x == 0) return a;
  int power = 0;
  return as_bits(std::frexp(x, &power));
}

int exponent(std::uint32_t bits) { return static_cast<int>(bits >> 23 & 255); }
bool is_denormal(float value) { return value != 0 && std::fabs(value) < 0x1p-126F; }

// Scales the numerator or the denominator of a division so that none of its steps leaves the range; the mask tells
// v_div_fmas that the quotient must be scaled back.
void div_scale(VectorOperation& o) {
  Mask out = 0;
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint32_t s0 = o.a[l], s1 = o.b[l], s2 = o.c[l];
    const float x = as_float(s0), denominator = as_float(s1), numerator = as_float(s2);
    float value = x;
    bool scaled = false;
    const bool tiny_reciprocal = is_denormal(static_cast<float>(1.0 / static_cast<double>(denominator)));
    const bool tiny_quotient =
        is_denormal(static_cast<float>(static_cast<double>(numerator) / static_cast<double>(denominator)));
    if (numerator == 0 || denominator == 0) {
      value = NAN;
    } else if (exponent(s2) - exponent(s1) >= 96) {
      scaled = true;
      if (s0 == s1) value = std::ldexp(x, 64);
    } else if (is_denormal(denominator)) {
      value = std::ldexp(x, 64);
    } else if (tiny_reciprocal && tiny_quotient) {
      // The manual says 64 here, which would make infinity of every denominator that gets here.
      scaled = true;
      if (s0 == s1) value = std::ldexp(x, -64);
    } else if (tiny_reciprocal) {
      value = std::ldexp(x, -64);
    } else if (tiny_quotient) {
      scaled = true;
      if (s0 == s2) value = std::ldexp(x, 64);
    } else if (exponent(s2) <= 23) {
      value = std::ldexp(x, 64);
    }
    o.d[l] = std::isnan(value) ? kNan32 : as_bits(value);
    out |= Mask{scaled} << l;
  }
  o.mask = out;
}

void div_fmas(VectorOperation& o) {
  alignas(64) std::uint32_t result[kLanes];
  fma_fixed(o.a, o.b, o.c, result, kLanes);
  for (unsigned l = 0; l < kLanes; ++l) {
    if ((o.carry >> l & 1) != 0 && !is_nan(result[l])) {
      result[l] = as_bits(std::ldexp(as_float(result[l]), exponent(o.c[l]) > 127 ? 64 : -64));
    }
    o.d[l] = result[l];
  }
}

std::uint32_t div_fixup(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t sign = (b ^ c) & 0x80000000;
  const float denominator = as_float(b), numerator = as_float(c);
  if (is_nan(c)) return quieted(c);
  if (is_nan(b)) return quieted(b);
  if (numerator == 0 && denominator == 0) return 0xffc00000;
  if (std::isinf(numerator) && std::isinf(denominator)) return 0xffc00000;
  if (denominator == 0 || std::isinf(numerator)) return sign | 0x7f800000;
  if (std::isinf(denominator) || numerator == 0) return sign;
  if (exponent(c) - exponent(b) < -150) return sign;
  // The steps make NaN of the largest quotients.
  if (exponent(c) - exponent(b) > 128) return sign | 0x7f800000;
  if (exponent(b) == 255) return sign | 0x7f800000;
  return is_nan(a) ? quieted(a) : sign | (a & 0x7fffffff);
}

}  // namespace

std::vector<Form> vector_float_forms() {
  std::vector<Form> made;
  const auto add = [&](Encoding e, unsigned n, const char* name, Type d, Type a, Type b, Type c, VectorFunction f,
                       std::uint32_t flags = 0) { made.push_back(vector_form(e, n, name, d, a, b, c, f, flags)); };
  add(V2, 1, "v_add_f32", F, F, F, N, [](VectorOperation& o) { add_rows(o.a, o.b, o.d, kLanes); });
  add(V2, 2, "v_sub_f32", F, F, F, N, [](VectorOperation& o) { sub_rows(o.a, o.b, o.d, kLanes); });
  add(V2, 3, "v_subrev_f32", F, F, F, N, [](VectorOperation& o) { sub_rows(o.b, o.a, o.d, kLanes); });
  add(V2, 5, "v_mul_f32", F, F, F, N, [](VectorOperation& o) { mul_rows(o.a, o.b, o.d, kLanes); });
  add(V2, 10, "v_min_f32", F, F, F, N, LANES2(min_num(a, b)));
  add(V2, 11, "v_max_f32", F, F, F, N, LANES2(max_num(a, b)));
  add(V2, 23, "v_fmamk_f32", F, F, F, F, [](VectorOperation& o) { fma_fixed(o.a, o.b, o.c, o.d, kLanes); });
  add(V2, 24, "v_fmaak_f32", F, F, F, F, [](VectorOperation& o) { fma_fixed(o.a, o.b, o.c, o.d, kLanes); });
  add(
      V2, 59, "v_fmac_f32", F, F, F, N, [](VectorOperation& o) { fma_fixed(o.a, o.b, o.d, o.d, kLanes); },
      kReadsDestination);
  add(V3, 459, "v_fma_f32", F, F, F, F, [](VectorOperation& o) { fma_fixed(o.a, o.b, o.c, o.d, kLanes); });
  add(V3, 464, "v_min3_f32", F, F, F, F, LANES3(min_num(min_num(a, b), c)));
  add(V3, 467, "v_max3_f32", F, F, F, F, LANES3(max_num(max_num(a, b), c)));
  add(V3, 470, "v_med3_f32", F, F, F, F, LANES3(med3(a, b, c)));
  add(V3, 680, "v_minimum3_f32", F, F, F, F, LANES3(minimum(minimum(a, b), c)));
  add(V3, 681, "v_maximum3_f32", F, F, F, F, LANES3(maximum(maximum(a, b), c)));
  add(V3, 673, "v_mul_legacy_f32", F, F, F, N,
      LANES2(as_float(a) == 0 || as_float(b) == 0 ? 0U : nan_of(as_bits(as_float(a) * as_float(b)), a, b)));
  add(V3, 648, "v_ldexp_f32", F, F, B, N, LANES2(ldexp32(a, b)));
  add(V3, 480, "v_div_scale_f32", F, F, F, F, div_scale, kWritesVcc);
  add(V3, 482, "v_div_fmas_f32", F, F, F, F, div_fmas, kReadsVcc);
  add(V3, 478, "v_div_fixup_f32", F, F, F, F, LANES3(div_fixup(a, b, c)));
  add(VP, 48, "v_pk_fma_f32", X, X, X, X, [](VectorOperation& o) { fma_fixed(o.a, o.b, o.c, o.d, 2 * kLanes); });
  add(VP, 49, "v_pk_mul_f32", X, X, X, N, [](VectorOperation& o) { mul_rows(o.a, o.b, o.d, 2 * kLanes); });
  add(VP, 50, "v_pk_add_f32", X, X, X, N, [](VectorOperation& o) { add_rows(o.a, o.b, o.d, 2 * kLanes); });

  add(V1, 27, "v_fract_f32", F, F, N, N, LANES1(fract_of(a)));
  add(V1, 28, "v_trunc_f32", F, F, N, N, LANES1(is_nan(a) ? quieted(a) : as_bits(std::trunc(as_float(a)))));
  add(V1, 29, "v_ceil_f32", F, F, N, N, LANES1(is_nan(a) ? quieted(a) : as_bits(std::ceil(as_float(a)))));
  add(V1, 30, "v_rndne_f32", F, F, N, N, LANES1(is_nan(a) ? quieted(a) : as_bits(std::nearbyint(as_float(a)))));
  add(V1, 31, "v_floor_f32", F, F, N, N, LANES1(is_nan(a) ? quieted(a) : as_bits(std::floor(as_float(a)))));
  add(V1, 32, "v_exp_f32", F, F, N, N, LANES1(exp2_of(a)), kTranscendental);
  add(V1, 33, "v_log_f32", F, F, N, N, LANES1(log2_of(a)), kTranscendental);
  add(V1, 34, "v_rcp_f32", F, F, N, N, LANES1(rcp_of(a)), kTranscendental);
  add(V1, 35, "v_rcp_iflag_f32", F, F, N, N, LANES1(rcp_of(a)), kTranscendental);
  add(V1, 36, "v_rsq_f32", F, F, N, N, LANES1(rsq_of(a)), kTranscendental);
  add(V1, 39, "v_sqrt_f32", F, F, N, N, LANES1(sqrt_of(a)), kTranscendental);
  add(V1, 41, "v_sin_f32", F, F, N, N, LANES1(sin_of(a)), kTranscendental);
  add(V1, 42, "v_cos_f32", F, F, N, N, LANES1(cos_of(a)), kTranscendental);
  add(V1, 75, "v_exp_legacy_f32", F, F, N, N, LANES1(exp2_of(a)), kTranscendental);
  add(V1, 76, "v_log_legacy_f32", F, F, N, N, LANES1(log2_of(a)), kTranscendental);
  add(V1, 51, "v_frexp_exp_i32_f32", B, F, N, N, LANES1(frexp_exponent(a)));
  add(V1, 52, "v_frexp_mant_f32", F, F, N, N, LANES1(frexp_mantissa(a)));

  // fp64; NaN payloads are the host's.
  add(
      V2, 4, "v_fmac_f64", D, D, D, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::fma(at(o.a, l), at(o.b, l), at(o.d, l)); }); },
      kReadsDestination);
  add(V3, 460, "v_fma_f64", D, D, D, D,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::fma(at(o.a, l), at(o.b, l), at(o.c, l)); }); });
  add(V3, 640, "v_add_f64", D, D, D, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return at(o.a, l) + at(o.b, l); }); });
  add(V3, 641, "v_mul_f64", D, D, D, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return at(o.a, l) * at(o.b, l); }); });
  add(V3, 642, "v_min_f64", D, D, D, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::fmin(at(o.a, l), at(o.b, l)); }); });
  add(V3, 643, "v_max_f64", D, D, D, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::fmax(at(o.a, l), at(o.b, l)); }); });
  add(V3, 644, "v_ldexp_f64", D, D, B, N, [](VectorOperation& o) {
    doubles(o, [&](unsigned l) { return std::ldexp(at(o.a, l), static_cast<std::int32_t>(o.b[l])); });
  });
  add(V1, 23, "v_trunc_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::trunc(at(o.a, l)); }); });
  add(V1, 24, "v_ceil_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::ceil(at(o.a, l)); }); });
  add(V1, 25, "v_rndne_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::nearbyint(at(o.a, l)); }); });
  add(V1, 26, "v_floor_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::floor(at(o.a, l)); }); });
  add(
      V1, 37, "v_rcp_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return 1 / at(o.a, l); }); }, kTranscendental);
  add(
      V1, 38, "v_rsq_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return 1 / std::sqrt(at(o.a, l)); }); }, kTranscendental);
  add(
      V1, 40, "v_sqrt_f64", D, D, N, N,
      [](VectorOperation& o) { doubles(o, [&](unsigned l) { return std::sqrt(at(o.a, l)); }); }, kTranscendental);
  return made;
}

}  // namespace msa_ops::emulator::gfx950
