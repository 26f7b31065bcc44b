// Arithmetic in fp16 and bf16, alone and in pairs. Everything is computed in fp64, exactly or rounded to odd, and rounded
// once more to the format: the result is the correctly rounded one.
#include <cmath>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"
#include "vector_rows.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using H = std::uint16_t;
using W = std::uint32_t;

struct Half {
  static constexpr H kSmallestNormal = 0x0400;
  static constexpr H kOne = 0x3c00;
  static constexpr const char* kName = "f16";
  static float wide(H bits) { return float_from_half(bits); }
  static H narrow(double value) { return half_from<>(value); }
};

struct Brain {
  static constexpr H kSmallestNormal = 0x0080;
  static constexpr H kOne = 0x3f80;
  static constexpr const char* kName = "bf16";
  static float wide(H bits) { return float_from_bfloat(bits); }
  static H narrow(double value) { return bfloat_from<>(value); }
};

enum class End { kPlain, kSaturate, kRelu };

template <class F, bool ftz>
float in(H bits) {
  if (ftz && (bits & 0x7fff) < F::kSmallestNormal) bits &= 0x8000;
  return F::wide(bits);
}

template <class F, bool ftz, End end>
H finish(double value) {
  if constexpr (end == End::kSaturate) {
    if (!(value > 0)) return 0;  // NaN too
    if (value > 1) return F::kOne;
  }
  H bits = F::narrow(value);
  // Flushed is what is still subnormal in 11 bits, rounded as if exponents had no end.
  if (ftz && std::fabs(value) < double{F::wide(F::kSmallestNormal)} * (1 - 0x1p-12)) bits &= 0x8000;
  if (end == End::kRelu && bits > 0x8000U) return 0;
  if (end != End::kPlain && bits == 0x8000) return 0;
  return bits;
}

template <class F, bool ftz, End end>
H add(H a, H b) { return finish<F, ftz, end>(add_to_odd(in<F, ftz>(a), in<F, ftz>(b))); }
template <class F, bool ftz, End end>
H sub(H a, H b) { return finish<F, ftz, end>(add_to_odd(in<F, ftz>(a), -double{in<F, ftz>(b)})); }
template <class F, bool ftz, End end>
H mul(H a, H b) { return finish<F, ftz, end>(double{in<F, ftz>(a)} * in<F, ftz>(b)); }
template <class F, bool ftz, End end>
H fma(H a, H b, H c) {
  return finish<F, ftz, end>(add_to_odd(double{in<F, ftz>(a)} * in<F, ftz>(b), in<F, ftz>(c)));
}
// A factor that marks what is out of bounds gives zero: the NaN 0x7ff7, of either sign, as an H200 takes it.
template <class F, End end>
H fma_oob(H a, H b, H c) {
  return (a & 0x7fff) == 0x7ff7 || (b & 0x7fff) == 0x7ff7 ? H{0} : fma<F, false, end>(a, b, c);
}

inline bool below(float a, float b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }

template <class F, bool ftz, bool nan, bool xorsign, bool least>
H extreme(H a, H b) {
  const H sign = xorsign ? (a ^ b) & 0x8000 : 0;
  if (xorsign) a &= 0x7fff, b &= 0x7fff;
  const float x = in<F, ftz>(a), y = in<F, ftz>(b);
  const bool first = std::isnan(x), second = std::isnan(y);
  if (nan ? first || second : first && second) return kNan16;
  const float chosen = first ? y : second ? x : below(x, y) == least ? x : y;
  return static_cast<H>(F::narrow(chosen) | sign);
}

template <class F, bool ftz>
H absolute(H a) {
  const float x = in<F, ftz>(a);
  return F::narrow(std::fabs(x));
}
template <class F, bool ftz>
H negate(H a) {
  const float x = in<F, ftz>(a);
  return F::narrow(-x);
}

template <H (*function)(H)>
W pair(W a) {
  return W{function(static_cast<H>(a >> 16))} << 16 | function(static_cast<H>(a));
}
template <H (*function)(H, H)>
W pair(W a, W b) {
  return W{function(static_cast<H>(a >> 16), static_cast<H>(b >> 16))} << 16 |
         function(static_cast<H>(a), static_cast<H>(b));
}
template <H (*function)(H, H, H)>
W pair(W a, W b, W c) {
  return W{function(static_cast<H>(a >> 16), static_cast<H>(b >> 16), static_cast<H>(c >> 16))} << 16 |
         function(static_cast<H>(a), static_cast<H>(b), static_cast<H>(c));
}

// Both the instruction on one number and the one on pairs, under every spelling.
template <H (*function)(H)>
void add_unary(Forms& forms, const std::string& name, const std::string& type) {
  forms.push_back({name + "." + type, "=2 2", unary<H, H, function>});
  forms.push_back({name + "." + type + "x2", "=4 4", unary<W, W, pair<function>>});
}
template <H (*function)(H, H)>
void add_binary(Forms& forms, const std::string& name, const std::string& type) {
  forms.push_back({name + "." + type, "=2 2 2", binary<H, H, H, function>});
  forms.push_back({name + "." + type + "x2", "=4 4 4", binary<W, W, W, pair<function>>});
}
template <H (*function)(H, H, H)>
void add_ternary(Forms& forms, const std::string& name, const std::string& type) {
  forms.push_back({name + "." + type, "=2 2 2 2", ternary<H, H, H, H, function>});
  forms.push_back({name + "." + type + "x2", "=4 4 4 4", ternary<W, W, W, W, pair<function>>});
}

// The plain operations of fp16, all lanes at once.
void add_half_sums(Forms& forms) {
  const auto add_one = [&](const std::string& name, Handler one, Handler two) {
    forms.push_back({name + ".f16", "=2 2 2", one});
    forms.push_back({name + ".f16x2", "=4 4 4", two});
  };
  constexpr End plain = End::kPlain;
  for (const std::string rn : {"", ".rn"}) {
    add_one("add" + rn, rows::binary<H, H, rows::half_add, binary<H, H, H, add<Half, false, plain>>>,
            rows::binary<H, H, rows::half_add, binary<W, W, W, pair<add<Half, false, plain>>>, 2>);
    add_one("sub" + rn, rows::binary<H, H, rows::half_sub, binary<H, H, H, sub<Half, false, plain>>>,
            rows::binary<H, H, rows::half_sub, binary<W, W, W, pair<sub<Half, false, plain>>>, 2>);
    add_one("mul" + rn, rows::binary<H, H, rows::half_mul, binary<H, H, H, mul<Half, false, plain>>>,
            rows::binary<H, H, rows::half_mul, binary<W, W, W, pair<mul<Half, false, plain>>>, 2>);
  }
  forms.push_back({"fma.rn.f16", "=2 2 2 2",
                   rows::ternary<H, H, rows::half_fma, ternary<H, H, H, H, fma<Half, false, plain>>>});
  forms.push_back({"fma.rn.f16x2", "=4 4 4 4",
                   rows::ternary<H, H, rows::half_fma, ternary<W, W, W, W, pair<fma<Half, false, plain>>>, 2>});
}

template <class F, bool ftz, End end>
void add_sums(Forms& forms, const std::string& tail) {
  for (const std::string rn : {"", ".rn"}) {
    add_binary<add<F, ftz, end>>(forms, "add" + rn + tail, F::kName);
    add_binary<sub<F, ftz, end>>(forms, "sub" + rn + tail, F::kName);
    add_binary<mul<F, ftz, end>>(forms, "mul" + rn + tail, F::kName);
  }
  add_ternary<fma<F, ftz, end>>(forms, "fma.rn" + tail, F::kName);
}

template <class F, bool ftz, bool nan, bool xorsign>
void add_extremes(Forms& forms) {
  const std::string tail =
      std::string(ftz ? ".ftz" : "") + (nan ? ".NaN" : "") + (xorsign ? ".xorsign.abs" : "");
  add_binary<extreme<F, ftz, nan, xorsign, true>>(forms, "min" + tail, F::kName);
  add_binary<extreme<F, ftz, nan, xorsign, false>>(forms, "max" + tail, F::kName);
}

template <class F, bool ftz>
void add_all_extremes(Forms& forms) {
  add_extremes<F, ftz, false, false>(forms);
  add_extremes<F, ftz, true, false>(forms);
  add_extremes<F, ftz, false, true>(forms);
  add_extremes<F, ftz, true, true>(forms);
}

template <class F>
void add_format(Forms& forms) {
  add_ternary<fma<F, false, End::kRelu>>(forms, "fma.rn.relu", F::kName);
  add_ternary<fma_oob<F, End::kPlain>>(forms, "fma.rn.oob", F::kName);
  add_ternary<fma_oob<F, End::kRelu>>(forms, "fma.rn.oob.relu", F::kName);
  add_unary<absolute<F, false>>(forms, "abs", F::kName);
  add_unary<negate<F, false>>(forms, "neg", F::kName);
  add_all_extremes<F, false>(forms);
}

}  // namespace

void add_half_forms(Forms& forms) {
  add_half_sums(forms);
  add_sums<Brain, false, End::kPlain>(forms, "");
  add_format<Half>(forms);
  add_format<Brain>(forms);
  // What only fp16 has.
  add_sums<Half, true, End::kPlain>(forms, ".ftz");
  add_sums<Half, false, End::kSaturate>(forms, ".sat");
  add_sums<Half, true, End::kSaturate>(forms, ".ftz.sat");
  add_ternary<fma<Half, true, End::kRelu>>(forms, "fma.rn.ftz.relu", "f16");
  add_ternary<fma_oob<Half, End::kSaturate>>(forms, "fma.rn.oob.sat", "f16");
  add_unary<absolute<Half, true>>(forms, "abs.ftz", "f16");
  add_unary<negate<Half, true>>(forms, "neg.ftz", "f16");
  add_all_extremes<Half, true>(forms);
}

}  // namespace msa_ops::emulator::ptx
