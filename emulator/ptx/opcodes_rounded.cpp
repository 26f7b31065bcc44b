// Arithmetic in fp32 and fp64 under every rounding, and what fp64 has besides.
#include <cfenv>
#include <cmath>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// The processor's rounding for the length of a block. What is computed there passes through volatile variables, so that
// the compiler moves nothing across.
class RoundingScope {
 public:
  explicit RoundingScope(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

// fp32 has one NaN. fp64 hands on that of an operand, made quiet.
float nan_of(float, float, float, bool) { return bit_cast<float>(kNan32); }
double nan_of(double first, double second, double third, bool only_invalid) {
  if (only_invalid) return bit_cast<double>(kNan64);
  const double chosen = std::isnan(first) ? first : std::isnan(second) ? second : third;
  return bit_cast<double>(bit_cast<std::uint64_t>(chosen) | kQuiet64);
}

template <typename T>
T flushed(T value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

constexpr Rounding rounding_of(int mode) {
  return mode == FE_TOWARDZERO ? Rounding::kTowardZero
         : mode == FE_DOWNWARD ? Rounding::kDown
         : mode == FE_UPWARD   ? Rounding::kUp
                               : Rounding::kNearestEven;
}

enum class Operation { kAdd, kSub, kMul, kDiv, kFma, kRcp, kSqrt };
constexpr unsigned operands_of(Operation operation) {
  return operation == Operation::kFma ? 3 : operation == Operation::kRcp || operation == Operation::kSqrt ? 1 : 2;
}

template <Operation operation, typename T>
T apply(T a, T b, T c) {
  switch (operation) {
    case Operation::kAdd: return a + b;
    case Operation::kSub: return a - b;
    case Operation::kMul: return a * b;
    case Operation::kDiv: return a / b;
    case Operation::kFma: return std::fma(a, b, c);
    case Operation::kRcp: return T{1} / a;
    case Operation::kSqrt: return std::sqrt(a);
  }
  return a;
}

template <typename T, Operation operation, int mode, bool ftz, bool saturate>
void rounded(PtxWarp& warp, const Instruction& i, Mask lanes) {
  constexpr unsigned count = operands_of(operation);
  T* out = warp.out<T>(i.operands[0]);
  const T* a = warp.row<T>(i.operands[1]);
  const T* b = count > 1 ? warp.row<T>(i.operands[2]) : a;
  const T* c = count > 2 ? warp.row<T>(i.operands[3]) : a;
  volatile T results[kLanes];
  {
    const RoundingScope scope(mode);
    for_lanes(lanes, [&](unsigned lane) {
      const volatile T x = ftz ? flushed(a[lane]) : a[lane];
      const volatile T y = ftz ? flushed(b[lane]) : b[lane];
      const volatile T z = ftz ? flushed(c[lane]) : c[lane];
      results[lane] = apply<operation, T>(x, y, z);
    });
  }
  for_lanes(lanes, [&](unsigned lane) {
    T value = results[lane];
    if (std::isnan(value)) {
      // The operand that comes first: of a quotient the dividend, else the second, the third, the first.
      const T x = a[lane], y = b[lane], z = c[lane];
      const bool only_invalid = !std::isnan(x) && !std::isnan(y) && !std::isnan(z);
      value = operation == Operation::kDiv ? nan_of(x, y, y, only_invalid) : nan_of(y, count > 2 ? z : x, x, only_invalid);
    }
    if constexpr (ftz && (operation == Operation::kMul || operation == Operation::kFma)) {
      if (std::fabs(value) == kLeastNormal32) {
        const double product = double{flushed(a[lane])} * flushed(b[lane]);
        value = flush_tiny<rounding_of(mode)>(operation == Operation::kMul ? product : add_to_odd(product, flushed(c[lane])));
      }
    }
    if (ftz) value = flushed(value);
    if (saturate) value = !(value > 0) ? T{0} : value > 1 ? T{1} : value;
    out[lane] = value;
  });
}

template <typename T, int mode, bool ftz, bool saturate>
void add_rounding(Forms& forms, const std::string& rounding) {
  const std::string tail = std::string(ftz ? ".ftz" : "") + (saturate ? ".sat" : "") + (sizeof(T) == 4 ? ".f32" : ".f64");
  const std::string one = sizeof(T) == 4 ? "=4 4" : "=8 8", two = one + one.substr(2), three = two + one.substr(2);
  const bool is_default = mode == FE_TONEAREST && sizeof(T) == 4 && !saturate;  // in opcodes_float.cpp
  const bool bare = rounding.empty();
  if (!is_default) {
    forms.push_back({"add" + rounding + tail, two, rounded<T, Operation::kAdd, mode, ftz, saturate>});
    forms.push_back({"sub" + rounding + tail, two, rounded<T, Operation::kSub, mode, ftz, saturate>});
    forms.push_back({"mul" + rounding + tail, two, rounded<T, Operation::kMul, mode, ftz, saturate>});
  }
  if (bare) return;
  if (!is_default) forms.push_back({"fma" + rounding + tail, three, rounded<T, Operation::kFma, mode, ftz, saturate>});
  forms.push_back({"mad" + rounding + tail, three, rounded<T, Operation::kFma, mode, ftz, saturate>});
  if constexpr (!saturate) {
    if (is_default) return;
    forms.push_back({"div" + rounding + tail, two, rounded<T, Operation::kDiv, mode, ftz, false>});
    forms.push_back({"rcp" + rounding + tail, one, rounded<T, Operation::kRcp, mode, ftz, false>});
    forms.push_back({"sqrt" + rounding + tail, one, rounded<T, Operation::kSqrt, mode, ftz, false>});
  }
}

template <typename T, bool ftz, bool saturate>
void add_roundings(Forms& forms) {
  add_rounding<T, FE_TONEAREST, ftz, saturate>(forms, "");
  add_rounding<T, FE_TONEAREST, ftz, saturate>(forms, ".rn");
  add_rounding<T, FE_TOWARDZERO, ftz, saturate>(forms, ".rz");
  add_rounding<T, FE_DOWNWARD, ftz, saturate>(forms, ".rm");
  add_rounding<T, FE_UPWARD, ftz, saturate>(forms, ".rp");
}

double quiet(double a) { return bit_cast<double>(bit_cast<std::uint64_t>(a) | kQuiet64); }
double absolute(double a) { return std::isnan(a) ? quiet(a) : std::fabs(a); }
double negate(double a) { return std::isnan(a) ? quiet(a) : -a; }
bool below(double a, double b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }
double minimum(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return quiet(b);
  return std::isnan(a) || below(b, a) ? b : a;
}
double maximum(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return quiet(b);
  return std::isnan(a) || below(a, b) ? b : a;
}

}  // namespace

void add_rounded_forms(Forms& forms) {
  add_roundings<float, false, false>(forms);
  add_roundings<float, true, false>(forms);
  add_roundings<float, false, true>(forms);
  add_roundings<float, true, true>(forms);
  add_roundings<double, false, false>(forms);
  using D = double;
  forms.push_back({"abs.f64", "=8 8", unary<D, D, absolute>});
  forms.push_back({"neg.f64", "=8 8", unary<D, D, negate>});
  forms.push_back({"min.f64", "=8 8 8", binary<D, D, D, minimum>});
  forms.push_back({"max.f64", "=8 8 8", binary<D, D, D, maximum>});
}

}  // namespace msa_ops::emulator::ptx
