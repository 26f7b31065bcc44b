#include "vector_rows.hpp"

#include <cmath>

#include "numbers.hpp"

// Once for every width of vectors. Arithmetic is not contracted, so that all give the same bits; fma is one instruction
// where the processor has it, and the C library's function elsewhere.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ROWS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define EACH_LANE _Pragma("GCC ivdep") for (unsigned i = 0; i < count; ++i)
#else
#define ROWS
#define EACH_LANE for (unsigned i = 0; i < count; ++i)
#endif
#define INLINE inline __attribute__((always_inline))

namespace msa_ops::emulator::ptx::rows {
namespace {

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;

INLINE uint32_t bits(float value) { return bit_cast<uint32_t>(value); }
INLINE float number(uint32_t value) { return bit_cast<float>(value); }

INLINE float one_nan(float value) { return value == value ? value : number(kNan32); }

INLINE float flushed(float value) {
  const uint32_t sign = bits(value) & 0x80000000U;
  return (bits(value) & 0x7f800000U) == 0 ? number(sign) : value;
}

INLINE bool is_least(float value) { return (bits(value) & 0x7fffffffU) == bits(kLeastNormal32); }

INLINE float wide(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16, magnitude = half & 0x7fffU;
  const uint32_t finite = bits(number(magnitude << 13) * 0x1p112F);
  const uint32_t special = magnitude > 0x7c00U ? kNan32 : sign | 0x7f800000U;
  return number(magnitude >= 0x7c00U ? special : sign | finite);
}

// Adding a number whose last place is the result's rounds as wanted.
INLINE uint16_t half_of(float value) {
  const uint32_t sign = bits(value) >> 16 & 0x8000U, magnitude = bits(value) & 0x7fffffffU;
  const uint32_t field = magnitude >> 23 < 113 ? 113 : magnitude >> 23;
  const uint32_t last = field < 240 ? field + 13 : 253;  // what is beyond is replaced below
  const float anchor = number(last << 23);
  const uint32_t steps = bits(number(magnitude) + anchor) - bits(anchor);
  const uint32_t finite = ((field - 113) << 10) + steps;
  const uint32_t found = magnitude >= bits(65520.0F) ? 0x7c00U : finite;
  return static_cast<uint16_t>(magnitude > 0x7f800000U ? kNan16 : sign | found);
}

// Of a number of fp64 that has been rounded to odd.
INLINE uint16_t half_of(double value) {
  const uint64_t all = bit_cast<uint64_t>(value), magnitude = all & ~(uint64_t{1} << 63);
  const uint64_t sign = all >> 48 & 0x8000U;
  constexpr uint64_t kLeast = 1023 - 14;
  const uint64_t field = (magnitude >> 52) < kLeast ? kLeast : magnitude >> 52;
  const uint64_t last = field < 1100 ? field + 42 : 1200;
  const auto anchor = bit_cast<double>(last << 52);
  const uint64_t steps = bit_cast<uint64_t>(bit_cast<double>(magnitude) + anchor) - bit_cast<uint64_t>(anchor);
  const uint64_t finite = ((field - kLeast) << 10) + steps;
  const uint64_t found = magnitude >= bit_cast<uint64_t>(65520.0) ? 0x7c00U : finite;
  return static_cast<uint16_t>(magnitude > 0x7ff0000000000000U ? kNan16 : sign | found);
}

INLINE double odd_sum(double a, double b) {
  const double sum = a + b, of_b = sum - a;
  const double error = (a - (sum - of_b)) + (b - of_b);
  const auto all = bit_cast<uint64_t>(sum);
  const bool is_special = (all >> 52 & 2047) == 2047;
  const bool keeps = is_special | (error == 0) | ((all & 1) != 0);
  const uint64_t moved = (error > 0) == (sum > 0) ? all + 1 : all - 1;
  return bit_cast<double>(keeps ? all : moved);
}

INLINE uint16_t bfloat_of(float value) {
  const uint32_t magnitude = bits(value) & 0x7fffffffU;
  const uint32_t rounded = (bits(value) + 0x7fffU + (bits(value) >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(magnitude > 0x7f800000U ? kNan16 : rounded);
}

INLINE uint32_t e4m3_of(float value) {
  const uint32_t sign = bits(value) >> 24 & 0x80U, magnitude = bits(value) & 0x7fffffffU;
  const uint32_t field = magnitude >> 23 < 121 ? 121 : magnitude >> 23;
  const uint32_t last = field < 230 ? field + 20 : 253;
  const float anchor = number(last << 23);
  const uint32_t steps = bits(number(magnitude) + anchor) - bits(anchor);
  const uint32_t finite = ((field - 121) << 3) + steps;
  const uint32_t found = magnitude >= bits(448.0F) ? 0x7eU : finite;
  return magnitude > 0x7f800000U ? uint32_t{kNanE4m3} : sign | found;
}

// -0 is below +0.
INLINE bool is_below(float a, float b) { return (a < b) | ((a == b) & ((bits(a) & ~bits(b)) >> 31 != 0)); }

}  // namespace

ROWS void add(const float* a, const float* b, float* out, unsigned count) { EACH_LANE out[i] = one_nan(a[i] + b[i]); }
ROWS void sub(const float* a, const float* b, float* out, unsigned count) { EACH_LANE out[i] = one_nan(a[i] - b[i]); }
ROWS void mul(const float* a, const float* b, float* out, unsigned count) { EACH_LANE out[i] = one_nan(a[i] * b[i]); }
ROWS void fma(const float* a, const float* b, const float* c, float* out, unsigned count) {
  EACH_LANE out[i] = one_nan(__builtin_fmaf(a[i], b[i], c[i]));
}
ROWS void min(const float* a, const float* b, float* out, unsigned count) {
  EACH_LANE {
    const float chosen = (a[i] != a[i]) | is_below(b[i], a[i]) ? b[i] : a[i];
    out[i] = one_nan(chosen);
  }
}
ROWS void max(const float* a, const float* b, float* out, unsigned count) {
  EACH_LANE {
    const float chosen = (a[i] != a[i]) | is_below(a[i], b[i]) ? b[i] : a[i];
    out[i] = one_nan(chosen);
  }
}

ROWS void add_flushed(const float* a, const float* b, float* out, unsigned count) {
  EACH_LANE out[i] = one_nan(flushed(flushed(a[i]) + flushed(b[i])));
}
ROWS void sub_flushed(const float* a, const float* b, float* out, unsigned count) {
  EACH_LANE out[i] = one_nan(flushed(flushed(a[i]) - flushed(b[i])));
}
ROWS bool mul_flushed(const float* a, const float* b, float* out, unsigned count) {
  uint32_t some = 0;
  EACH_LANE {
    const float product = flushed(a[i]) * flushed(b[i]);
    some |= is_least(product);
    out[i] = one_nan(flushed(product));
  }
  return some != 0;
}
ROWS bool fma_flushed(const float* a, const float* b, const float* c, float* out, unsigned count) {
  uint32_t some = 0;
  EACH_LANE {
    const float sum = __builtin_fmaf(flushed(a[i]), flushed(b[i]), flushed(c[i]));
    some |= is_least(sum);
    out[i] = one_nan(flushed(sum));
  }
  return some != 0;
}

// Sums and products of fp16 in fp32, which has twice its bits and two more: rounding once more changes nothing.
ROWS void half_add(const uint16_t* a, const uint16_t* b, uint16_t* out, unsigned count) {
  EACH_LANE out[i] = half_of(wide(a[i]) + wide(b[i]));
}
ROWS void half_sub(const uint16_t* a, const uint16_t* b, uint16_t* out, unsigned count) {
  EACH_LANE out[i] = half_of(wide(a[i]) - wide(b[i]));
}
ROWS void half_mul(const uint16_t* a, const uint16_t* b, uint16_t* out, unsigned count) {
  EACH_LANE out[i] = half_of(wide(a[i]) * wide(b[i]));
}
ROWS void half_fma(const uint16_t* a, const uint16_t* b, const uint16_t* c, uint16_t* out, unsigned count) {
  EACH_LANE out[i] = half_of(odd_sum(double{wide(a[i]) * wide(b[i])}, double{wide(c[i])}));
}

ROWS void halves_from(const float* in, uint16_t* out, unsigned count) { EACH_LANE out[i] = half_of(in[i]); }
ROWS void half_pairs_from(const float* high, const float* low, uint32_t* out, unsigned count) {
  EACH_LANE out[i] = uint32_t{half_of(high[i])} << 16 | half_of(low[i]);
}
ROWS void bfloats_from(const float* in, uint16_t* out, unsigned count) { EACH_LANE out[i] = bfloat_of(in[i]); }
ROWS void bfloat_pairs_from(const float* high, const float* low, uint32_t* out, unsigned count) {
  EACH_LANE out[i] = uint32_t{bfloat_of(high[i])} << 16 | bfloat_of(low[i]);
}
ROWS void e4m3_pairs_from(const float* high, const float* low, uint16_t* out, unsigned count) {
  EACH_LANE out[i] = static_cast<uint16_t>(e4m3_of(high[i]) << 8 | e4m3_of(low[i]));
}
ROWS void floats_from_halves(const uint16_t* in, float* out, unsigned count) { EACH_LANE out[i] = wide(in[i]); }

}  // namespace msa_ops::emulator::ptx::rows
