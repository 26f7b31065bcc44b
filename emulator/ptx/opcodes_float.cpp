// Arithmetic in fp32, to nearest. Compiled without contraction: every operation here is the correctly rounded one of
// IEEE 754.
#include <cmath>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"
#include "vector_rows.hpp"

namespace msa_ops::emulator::ptx {
namespace {

template <bool ftz>
float in(float value) { return ftz ? flush(value) : value; }
template <bool ftz>
float result(float value) { return canonical(ftz ? flush(value) : value); }

template <bool ftz>
float add(float a, float b) { return result<ftz>(in<ftz>(a) + in<ftz>(b)); }
template <bool ftz>
float sub(float a, float b) { return result<ftz>(in<ftz>(a) - in<ftz>(b)); }
template <bool ftz>
float mul(float a, float b) {
  a = in<ftz>(a), b = in<ftz>(b);
  const float product = a * b;
  if (ftz && std::fabs(product) == kLeastNormal32) return flush_tiny(double{a} * b);
  return result<ftz>(product);
}
template <bool ftz>
float fma(float a, float b, float c) {
  a = in<ftz>(a), b = in<ftz>(b), c = in<ftz>(c);
  const float sum = std::fma(a, b, c);
  if (ftz && std::fabs(sum) == kLeastNormal32) return flush_tiny(add_to_odd(double{a} * b, c));
  return result<ftz>(sum);
}
template <bool ftz>
float div(float a, float b) { return result<ftz>(in<ftz>(a) / in<ftz>(b)); }
template <bool ftz>
float rcp(float a) { return result<ftz>(1.0F / in<ftz>(a)); }
template <bool ftz>
float root(float a) { return result<ftz>(std::sqrt(in<ftz>(a))); }
template <bool ftz>
float absolute(float a) { return canonical(std::fabs(in<ftz>(a))); }
template <bool ftz>
float negate(float a) { return canonical(-in<ftz>(a)); }

template <bool ftz, bool nan>
float minimum(float a, float b) { return lesser<nan>(in<ftz>(a), in<ftz>(b)); }
template <bool ftz, bool nan>
float maximum(float a, float b) { return greater<nan>(in<ftz>(a), in<ftz>(b)); }

template <bool ftz>
void add_fp32(Forms& forms) {
  const std::string f = ftz ? ".ftz" : "";
  using F = float;
  // Lane by lane, and all lanes at once.
  constexpr Handler one_add = binary<F, F, F, add<ftz>>, one_sub = binary<F, F, F, sub<ftz>>;
  constexpr Handler one_mul = binary<F, F, F, mul<ftz>>, one_fma = ternary<F, F, F, F, fma<ftz>>;
  constexpr Handler all_add = rows::binary<F, F, ftz ? rows::add_flushed : rows::add, one_add>;
  constexpr Handler all_sub = rows::binary<F, F, ftz ? rows::sub_flushed : rows::sub, one_sub>;
  Handler all_mul = rows::binary<F, F, rows::mul, one_mul>, all_fma = rows::ternary<F, F, rows::fma, one_fma>;
  if constexpr (ftz) {
    all_mul = rows::binary_flushed<rows::mul_flushed, one_mul>;
    all_fma = rows::ternary_flushed<rows::fma_flushed, one_fma>;
  }
  for (const std::string rn : {"", ".rn"}) {
    forms.push_back({"add" + rn + f + ".f32", "=4 4 4", all_add});
    forms.push_back({"sub" + rn + f + ".f32", "=4 4 4", all_sub});
    forms.push_back({"mul" + rn + f + ".f32", "=4 4 4", all_mul});
  }
  forms.push_back({"fma.rn" + f + ".f32", "=4 4 4 4", all_fma});
  forms.push_back({"div.rn" + f + ".f32", "=4 4 4", binary<F, F, F, div<ftz>>});
  forms.push_back({"rcp.rn" + f + ".f32", "=4 4", unary<F, F, rcp<ftz>>});
  forms.push_back({"sqrt.rn" + f + ".f32", "=4 4", unary<F, F, root<ftz>>});
  forms.push_back({"abs" + f + ".f32", "=4 4", unary<F, F, absolute<ftz>>});
  forms.push_back({"neg" + f + ".f32", "=4 4", unary<F, F, negate<ftz>>});
  constexpr Handler one_min = binary<F, F, F, minimum<ftz, false>>, one_max = binary<F, F, F, maximum<ftz, false>>;
  forms.push_back({"min" + f + ".f32", "=4 4 4", ftz ? one_min : rows::binary<F, F, rows::min, one_min>});
  forms.push_back({"max" + f + ".f32", "=4 4 4", ftz ? one_max : rows::binary<F, F, rows::max, one_max>});
  forms.push_back({"min" + f + ".NaN.f32", "=4 4 4", binary<F, F, F, minimum<ftz, true>>});
  forms.push_back({"max" + f + ".NaN.f32", "=4 4 4", binary<F, F, F, maximum<ftz, true>>});
}

}  // namespace

void add_float_forms(Forms& forms) {
  add_fp32<false>(forms);
  add_fp32<true>(forms);
}

}  // namespace msa_ops::emulator::ptx
