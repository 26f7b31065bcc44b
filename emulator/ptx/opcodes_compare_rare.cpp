// Comparisons of fp64 and of 16-bit floats, comparisons that give numbers, tests of kinds of numbers, signs.
#include <cmath>
#include <type_traits>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::uint16_t, std::uint32_t, std::uint64_t;

enum class Test { kEq, kNe, kLt, kLe, kGt, kGe, kNum, kNan };
struct TestName {
  const char* name;
  Test test;
  bool or_unordered;
};
constexpr TestName kFloatTests[] = {
    {"eq", Test::kEq, false},  {"ne", Test::kNe, false},  {"lt", Test::kLt, false},  {"le", Test::kLe, false},
    {"gt", Test::kGt, false},  {"ge", Test::kGe, false},  {"equ", Test::kEq, true},  {"neu", Test::kNe, true},
    {"ltu", Test::kLt, true},  {"leu", Test::kLe, true},  {"gtu", Test::kGt, true},  {"geu", Test::kGe, true},
    {"num", Test::kNum, false}, {"nan", Test::kNan, false}};
constexpr TestName kSignedTests[] = {{"eq", Test::kEq, false}, {"ne", Test::kNe, false}, {"lt", Test::kLt, false},
                                     {"le", Test::kLe, false}, {"gt", Test::kGt, false}, {"ge", Test::kGe, false}};
constexpr TestName kUnsignedNames[] = {{"lo", Test::kLt, false}, {"ls", Test::kLe, false}, {"hi", Test::kGt, false},
                                       {"hs", Test::kGe, false}};

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T>
bool holds(const TestName& test, T a, T b) {
  if (is_nan(a) || is_nan(b)) return test.test == Test::kNan || test.or_unordered;
  switch (test.test) {
    case Test::kEq: return a == b;
    case Test::kNe: return a != b;
    case Test::kLt: return a < b;
    case Test::kLe: return a <= b;
    case Test::kGt: return a > b;
    case Test::kGe: return a >= b;
    case Test::kNum: return true;
    case Test::kNan: return false;
  }
  return false;
}

enum class Join { kNone, kAnd, kOr, kXor };
constexpr const char* kJoins[] = {"", ".and", ".or", ".xor"};

// What a comparison reads, as a type that C++ compares: 16-bit floats become fp32.
enum class Source { kS16, kU16, kS32, kU32, kS64, kU64, kF16, kBf16, kF32, kF64, kF16x2, kBf16x2 };

enum class Result { kPredicate, kOnes, kFloat, kHalf, kHalfPair, kBrain, kBrainPair };

struct Comparison {
  TestName test;
  Join join;
  bool ftz;
  Source source;
  Result result;
};

std::vector<Comparison>& comparisons() {
  static auto* made = new std::vector<Comparison>();
  return *made;
}

float half_in(uint16_t bits, bool ftz) {
  if (ftz && (bits & 0x7fff) < 0x400) bits &= 0x8000;
  return float_from_half(bits);
}

template <typename T>
Mask compare_row(PtxWarp& warp, const Instruction& i, const Comparison& c, unsigned first, Mask lanes) {
  const T* a = warp.row<T>(i.operands[first]);
  const T* b = warp.row<T>(i.operands[first + 1]);
  Mask mask = 0;
  for_lanes(lanes, [&](unsigned lane) {
    T x = a[lane], y = b[lane];
    if constexpr (std::is_same_v<T, float>) {
      if (c.ftz) x = flush(x), y = flush(y);
    }
    mask |= static_cast<Mask>(holds(c.test, x, y)) << lane;
  });
  return mask;
}

// Numbers of 16 bits at a bit offset of their registers.
template <typename T>
Mask compare_sixteen(PtxWarp& warp, const Instruction& i, const Comparison& c, unsigned first, unsigned shift,
                     bool brain, Mask lanes) {
  const T* a = warp.row<T>(i.operands[first]);
  const T* b = warp.row<T>(i.operands[first + 1]);
  Mask mask = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const auto x = static_cast<uint16_t>(a[lane] >> shift), y = static_cast<uint16_t>(b[lane] >> shift);
    const bool found = brain ? holds(c.test, float_from_bfloat(x), float_from_bfloat(y))
                             : holds(c.test, half_in(x, c.ftz), half_in(y, c.ftz));
    mask |= static_cast<Mask>(found) << lane;
  });
  return mask;
}

// `second`: of the upper elements of pairs.
Mask compare(PtxWarp& warp, const Instruction& i, const Comparison& c, unsigned first, bool second, Mask lanes) {
  switch (c.source) {
    case Source::kS16: return compare_row<std::int16_t>(warp, i, c, first, lanes);
    case Source::kU16: return compare_row<uint16_t>(warp, i, c, first, lanes);
    case Source::kS32: return compare_row<std::int32_t>(warp, i, c, first, lanes);
    case Source::kU32: return compare_row<uint32_t>(warp, i, c, first, lanes);
    case Source::kS64: return compare_row<std::int64_t>(warp, i, c, first, lanes);
    case Source::kU64: return compare_row<uint64_t>(warp, i, c, first, lanes);
    case Source::kF32: return compare_row<float>(warp, i, c, first, lanes);
    case Source::kF64: return compare_row<double>(warp, i, c, first, lanes);
    case Source::kF16: return compare_sixteen<uint16_t>(warp, i, c, first, 0, false, lanes);
    case Source::kBf16: return compare_sixteen<uint16_t>(warp, i, c, first, 0, true, lanes);
    case Source::kF16x2: return compare_sixteen<uint32_t>(warp, i, c, first, second ? 16 : 0, false, lanes);
    case Source::kBf16x2: return compare_sixteen<uint32_t>(warp, i, c, first, second ? 16 : 0, true, lanes);
  }
  return 0;
}

Mask joined(Join join, Mask value, Mask other) {
  switch (join) {
    case Join::kAnd: return value & other;
    case Join::kOr: return value | other;
    case Join::kXor: return value ^ other;
    case Join::kNone: break;
  }
  return value;
}

// Of single numbers: d|q = the comparison and its opposite, each joined; 16-bit floats have no q. Of pairs: d|q = of the
// lower, of the upper.
void setp(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Comparison& c = comparisons()[i.form->variant];
  const bool pairs = c.source == Source::kF16x2 || c.source == Source::kBf16x2;
  const unsigned first = c.source == Source::kF16 || c.source == Source::kBf16 ? 1 : 2;
  const Mask other = c.join != Join::kNone ? warp.predicate(i.operands[first + 2]) : 0;
  const Mask found = compare(warp, i, c, first, false, lanes);
  const Mask second = pairs ? compare(warp, i, c, first, true, lanes) : ~found;
  warp.set_predicate(i.operands[0], joined(c.join, found, other), lanes);
  if (first == 2 && i.operands[1].present) warp.set_predicate(i.operands[1], joined(c.join, second, other), lanes);
}

void set(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Comparison& c = comparisons()[i.form->variant];
  const Mask other = c.join != Join::kNone ? warp.predicate(i.operands[3]) : 0;
  const Mask low = joined(c.join, compare(warp, i, c, 1, false, lanes), other);
  const bool pairs = c.source == Source::kF16x2 || c.source == Source::kBf16x2;
  const Mask high = pairs ? joined(c.join, compare(warp, i, c, 1, true, lanes), other) : 0;
  const auto of = [&](uint64_t yes) {
    for_lanes(lanes, [&](unsigned lane) { warp.set_value(i.operands[0], lane, (low >> lane & 1) != 0 ? yes : 0); });
  };
  const auto pair = [&](uint32_t yes) {
    for_lanes(lanes, [&](unsigned lane) {
      warp.set_value(i.operands[0], lane, ((low >> lane & 1) != 0 ? yes : 0) | ((high >> lane & 1) != 0 ? yes << 16 : 0));
    });
  };
  switch (c.result) {
    case Result::kOnes:
      if (pairs) return pair(0xffff);
      return of(0xffffffff);
    case Result::kFloat: return of(0x3f800000);
    case Result::kHalf: return of(0x3c00);
    case Result::kBrain: return of(0x3f80);
    case Result::kHalfPair: return pair(0x3c00);
    case Result::kBrainPair: return pair(0x3f80);
    case Result::kPredicate: break;
  }
}

void add(Forms& forms, const std::string& opcode, const std::string& operands, Handler handler, const Comparison& c) {
  forms.push_back({opcode, operands, handler});
  forms.back().variant = static_cast<uint32_t>(comparisons().size());
  comparisons().push_back(c);
}

struct SourceInfo {
  Source source;
  const char* name;
  const char* width;
  bool has_ftz;
  bool in_setp;  // not yet in opcodes_compare.cpp
};
constexpr SourceInfo kFloats[] = {
    {Source::kF64, "f64", "8", false, true},       {Source::kF16, "f16", "2", true, true},
    {Source::kF16x2, "f16x2", "4", true, true},    {Source::kBf16, "bf16", "2", false, true},
    {Source::kBf16x2, "bf16x2", "4", false, true}, {Source::kF32, "f32", "4", true, false}};

struct Target {
  Result result;
  const char* name;
  const char* width;
};

template <typename Tests>
void add_setp(Forms& forms, const SourceInfo& source, const Tests& tests) {
  for (const TestName& test : tests) {
    for (int join = 0; join < 4; ++join) {
      for (const bool ftz : {false, true}) {
        if (ftz && !source.has_ftz) continue;
        const std::string opcode = std::string("setp.") + test.name + kJoins[join] + (ftz ? ".ftz." : ".") + source.name;
        const bool pairs = source.source == Source::kF16x2 || source.source == Source::kBf16x2;
        const bool sixteen = source.width[0] == '2';
        const std::string operands = std::string(pairs ? "=p|p " : sixteen ? "=p " : "=p|p? ") + source.width + " " + source.width;
        add(forms, opcode, operands + (join != 0 ? " p" : ""), setp,
            {test, static_cast<Join>(join), ftz, source.source, Result::kPredicate});
      }
    }
  }
}

template <typename Tests>
void add_set(Forms& forms, const SourceInfo& source, const Target& target, const Tests& tests) {
  for (const TestName& test : tests) {
    for (int join = 0; join < 4; ++join) {
      for (const bool ftz : {false, true}) {
        if (ftz && (!source.has_ftz || (target.result == Result::kBrain && source.source != Source::kBf16))) continue;
        const std::string opcode = std::string("set.") + test.name + kJoins[join] + (ftz ? ".ftz." : ".") +
                                   target.name + "." + source.name;
        const std::string operands = std::string("=") + target.width + " " + source.width + " " + source.width;
        add(forms, opcode, operands + (join != 0 ? " p" : ""), set,
            {test, static_cast<Join>(join), ftz, source.source, target.result});
      }
    }
  }
}

constexpr Target kNumbers[] = {{Result::kOnes, "u32", "4"},
                               {Result::kOnes, "s32", "4"},
                               {Result::kFloat, "f32", "4"},
                               {Result::kHalf, "f16", "2"},
                               {Result::kBrain, "bf16", "2"}};

void add_integer_set(Forms& forms, const SourceInfo& source, bool is_signed, bool order) {
  for (const Target& target : kNumbers) {
    if (!order) {
      const TestName equality[] = {kSignedTests[0], kSignedTests[1]};
      add_set(forms, source, target, equality);
      continue;
    }
    add_set(forms, source, target, kSignedTests);
    if (!is_signed) add_set(forms, source, target, kUnsignedNames);
  }
}

// ---- kinds and signs

enum class Kind { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
template <typename T, Kind kind>
void testp(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const T* a = warp.row<T>(i.operands[1]);
  Mask mask = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const T x = a[lane];
    bool found = false;
    switch (kind) {
      case Kind::kFinite: found = std::isfinite(x); break;
      case Kind::kInfinite: found = std::isinf(x); break;
      case Kind::kNumber: found = !std::isnan(x); break;
      case Kind::kNotANumber: found = std::isnan(x); break;
      case Kind::kNormal: found = std::isnormal(x) || x == 0; break;
      case Kind::kSubnormal: found = std::fpclassify(x) == FP_SUBNORMAL; break;
    }
    mask |= static_cast<Mask>(found) << lane;
  });
  warp.set_predicate(i.operands[0], mask, lanes);
}

template <typename T>
void add_testp(Forms& forms, const std::string& type) {
  const std::string operands = sizeof(T) == 4 ? "=p 4" : "=p 8";
  forms.push_back({"testp.finite." + type, operands, testp<T, Kind::kFinite>});
  forms.push_back({"testp.infinite." + type, operands, testp<T, Kind::kInfinite>});
  forms.push_back({"testp.number." + type, operands, testp<T, Kind::kNumber>});
  forms.push_back({"testp.notanumber." + type, operands, testp<T, Kind::kNotANumber>});
  forms.push_back({"testp.normal." + type, operands, testp<T, Kind::kNormal>});
  forms.push_back({"testp.subnormal." + type, operands, testp<T, Kind::kSubnormal>});
}

// The sign of a on the magnitude of b.
uint32_t copysign32(uint32_t a, uint32_t b) { return (a & 0x80000000) | (b & 0x7fffffff); }
uint64_t copysign64(uint64_t a, uint64_t b) {
  constexpr uint64_t sign = uint64_t{1} << 63;
  return (a & sign) | (b & ~sign);
}

// The smaller or greater magnitude, negative if the signs differ.
template <bool ftz, bool nan, bool least>
uint32_t extreme_xorsign(uint32_t a, uint32_t b) {
  const uint32_t sign = (a ^ b) & 0x80000000;
  float x = bit_cast<float>(a & 0x7fffffff), y = bit_cast<float>(b & 0x7fffffff);
  if (ftz) x = flush(x), y = flush(y);
  if (nan ? std::isnan(x) || std::isnan(y) : std::isnan(x) && std::isnan(y)) return kNan32;
  const float chosen = std::isnan(x) ? y : std::isnan(y) ? x : (x < y) == least ? x : y;
  return bit_cast<uint32_t>(chosen) | sign;
}

template <bool ftz, bool nan>
void add_xorsign(Forms& forms) {
  using U = uint32_t;
  const std::string tail = std::string(ftz ? ".ftz" : "") + (nan ? ".NaN" : "") + ".xorsign.abs.f32";
  forms.push_back({"min" + tail, "=4 4 4", binary<U, U, U, extreme_xorsign<ftz, nan, true>>});
  forms.push_back({"max" + tail, "=4 4 4", binary<U, U, U, extreme_xorsign<ftz, nan, false>>});
}

}  // namespace

void add_rare_compare_forms(Forms& forms) {
  for (const SourceInfo& source : kFloats) {
    if (source.in_setp) add_setp(forms, source, kFloatTests);
    const bool pairs = source.source == Source::kF16x2 || source.source == Source::kBf16x2;
    const bool sixteen = source.width[0] == '2';
    if (source.source == Source::kF32 || source.source == Source::kF64) {
      for (const Target& target : kNumbers) add_set(forms, source, target, kFloatTests);
    } else if (sixteen) {
      const bool half = source.source == Source::kF16;
      const Target own = half ? Target{Result::kHalf, "f16", "2"} : Target{Result::kBrain, "bf16", "2"};
      add_set(forms, source, own, kFloatTests);
      if (half) add_set(forms, source, {Result::kBrain, "bf16", "2"}, kFloatTests);
      add_set(forms, source, {Result::kOnes, "u16", "2"}, kFloatTests);
      add_set(forms, source, {Result::kOnes, "s16", "2"}, kFloatTests);
      add_set(forms, source, {Result::kOnes, "u32", "4"}, kFloatTests);
      add_set(forms, source, {Result::kOnes, "s32", "4"}, kFloatTests);
    } else if (pairs) {
      const bool half = source.source == Source::kF16x2;
      const Target own = half ? Target{Result::kHalfPair, "f16x2", "4"} : Target{Result::kBrainPair, "bf16x2", "4"};
      add_set(forms, source, own, kFloatTests);
      add_set(forms, source, {Result::kOnes, "u32", "4"}, kFloatTests);
      add_set(forms, source, {Result::kOnes, "s32", "4"}, kFloatTests);
    }
  }
  add_integer_set(forms, {Source::kU16, "b16", "2", false, false}, false, false);
  add_integer_set(forms, {Source::kU32, "b32", "4", false, false}, false, false);
  add_integer_set(forms, {Source::kU64, "b64", "8", false, false}, false, false);
  add_integer_set(forms, {Source::kS16, "s16", "2", false, false}, true, true);
  add_integer_set(forms, {Source::kU16, "u16", "2", false, false}, false, true);
  add_integer_set(forms, {Source::kS32, "s32", "4", false, false}, true, true);
  add_integer_set(forms, {Source::kU32, "u32", "4", false, false}, false, true);
  add_integer_set(forms, {Source::kS64, "s64", "8", false, false}, true, true);
  add_integer_set(forms, {Source::kU64, "u64", "8", false, false}, false, true);
  add_testp<float>(forms, "f32");
  add_testp<double>(forms, "f64");
  forms.push_back({"copysign.f32", "=4 4 4", binary<uint32_t, uint32_t, uint32_t, copysign32>});
  forms.push_back({"copysign.f64", "=8 8 8", binary<uint64_t, uint64_t, uint64_t, copysign64>});
  add_xorsign<false, false>(forms);
  add_xorsign<true, false>(forms);
  add_xorsign<false, true>(forms);
  add_xorsign<true, true>(forms);
}

}  // namespace msa_ops::emulator::ptx
