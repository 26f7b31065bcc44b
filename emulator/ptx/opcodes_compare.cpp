// Comparisons, selection, and predicates.
#include <cmath>
#include <type_traits>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

enum class Test { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };

template <typename T, Test test>
bool holds(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool unordered = std::isnan(a) || std::isnan(b);
    switch (test) {
      case Test::kNe: return !unordered && a != b;
      case Test::kEqu: return unordered || a == b;
      case Test::kNeu: return unordered || a != b;
      case Test::kLtu: return unordered || a < b;
      case Test::kLeu: return unordered || a <= b;
      case Test::kGtu: return unordered || a > b;
      case Test::kGeu: return unordered || a >= b;
      case Test::kNum: return !unordered;
      case Test::kNan: return unordered;
      default: break;
    }
  }
  switch (test) {
    case Test::kEq: return a == b;
    case Test::kNe: return a != b;
    case Test::kLt: return a < b;
    case Test::kLe: return a <= b;
    case Test::kGt: return a > b;
    default: return a >= b;
  }
}

enum class Join { kNone, kAnd, kOr, kXor };

// d|q = (a test b) join c, (not (a test b)) join c
template <typename T, Test test, Join join, bool ftz>
void setp(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const T* a = warp.row<T>(i.operands[2]);
  const T* b = warp.row<T>(i.operands[3]);
  Mask mask = 0;
  for_lanes(lanes, [&](unsigned lane) {
    T x = a[lane], y = b[lane];
    if constexpr (ftz) x = flush(x), y = flush(y);
    mask |= static_cast<Mask>(holds<T, test>(x, y)) << lane;
  });
  const auto joined = [&](Mask value) {
    if constexpr (join == Join::kNone) return value;
    const Mask other = warp.predicate(i.operands[4]);
    return join == Join::kAnd ? value & other : join == Join::kOr ? value | other : value ^ other;
  };
  const Mask first = joined(mask), second = joined(~mask);
  warp.set_predicate(i.operands[0], first, lanes);
  if (i.operands[1].present) warp.set_predicate(i.operands[1], second, lanes);
}

template <typename T, Test test, bool ftz = false>
void add_test(Forms& forms, const std::string& name, const std::string& type) {
  const std::string w = std::to_string(sizeof(T));
  const std::string operands = "=p|p? " + w + " " + w, f = ftz ? ".ftz" : "";
  forms.push_back({"setp." + name + f + "." + type, operands, setp<T, test, Join::kNone, ftz>});
  forms.push_back({"setp." + name + ".and" + f + "." + type, operands + " p", setp<T, test, Join::kAnd, ftz>});
  forms.push_back({"setp." + name + ".or" + f + "." + type, operands + " p", setp<T, test, Join::kOr, ftz>});
  forms.push_back({"setp." + name + ".xor" + f + "." + type, operands + " p", setp<T, test, Join::kXor, ftz>});
}

template <typename T>
void add_equality(Forms& forms, const std::string& type) {
  add_test<T, Test::kEq>(forms, "eq", type);
  add_test<T, Test::kNe>(forms, "ne", type);
}

template <typename T>
void add_order(Forms& forms, const std::string& type) {
  add_equality<T>(forms, type);
  add_test<T, Test::kLt>(forms, "lt", type);
  add_test<T, Test::kLe>(forms, "le", type);
  add_test<T, Test::kGt>(forms, "gt", type);
  add_test<T, Test::kGe>(forms, "ge", type);
  if constexpr (std::is_unsigned_v<T>) {
    add_test<T, Test::kLt>(forms, "lo", type);
    add_test<T, Test::kLe>(forms, "ls", type);
    add_test<T, Test::kGt>(forms, "hi", type);
    add_test<T, Test::kGe>(forms, "hs", type);
  }
}

template <bool ftz>
void add_float_order(Forms& forms) {
  add_test<float, Test::kEq, ftz>(forms, "eq", "f32");
  add_test<float, Test::kNe, ftz>(forms, "ne", "f32");
  add_test<float, Test::kLt, ftz>(forms, "lt", "f32");
  add_test<float, Test::kLe, ftz>(forms, "le", "f32");
  add_test<float, Test::kGt, ftz>(forms, "gt", "f32");
  add_test<float, Test::kGe, ftz>(forms, "ge", "f32");
  add_test<float, Test::kEqu, ftz>(forms, "equ", "f32");
  add_test<float, Test::kNeu, ftz>(forms, "neu", "f32");
  add_test<float, Test::kLtu, ftz>(forms, "ltu", "f32");
  add_test<float, Test::kLeu, ftz>(forms, "leu", "f32");
  add_test<float, Test::kGtu, ftz>(forms, "gtu", "f32");
  add_test<float, Test::kGeu, ftz>(forms, "geu", "f32");
  add_test<float, Test::kNum, ftz>(forms, "num", "f32");
  add_test<float, Test::kNan, ftz>(forms, "nan", "f32");
}

template <typename T>
void selp(PtxWarp& warp, const Instruction& i, Mask lanes) {
  T* out = warp.out<T>(i.operands[0]);
  const T* a = warp.row<T>(i.operands[1]);
  const T* b = warp.row<T>(i.operands[2]);
  const Mask chosen = warp.predicate(i.operands[3]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

Mask and_of(Mask a, Mask b) { return a & b; }
Mask or_of(Mask a, Mask b) { return a | b; }
Mask xor_of(Mask a, Mask b) { return a ^ b; }

template <Mask (*function)(Mask, Mask)>
void join(PtxWarp& warp, const Instruction& i, Mask lanes) {
  warp.set_predicate(i.operands[0], function(warp.predicate(i.operands[1]), warp.predicate(i.operands[2])), lanes);
}

template <bool invert>
void copy(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mask value = warp.predicate(i.operands[1]);
  warp.set_predicate(i.operands[0], invert ? ~value : value, lanes);
}

}  // namespace

void add_compare_forms(Forms& forms) {
  add_equality<std::uint16_t>(forms, "b16");
  add_equality<std::uint32_t>(forms, "b32");
  add_equality<std::uint64_t>(forms, "b64");
  add_order<std::int16_t>(forms, "s16");
  add_order<std::uint16_t>(forms, "u16");
  add_order<std::int32_t>(forms, "s32");
  add_order<std::uint32_t>(forms, "u32");
  add_order<std::int64_t>(forms, "s64");
  add_order<std::uint64_t>(forms, "u64");
  add_float_order<false>(forms);
  add_float_order<true>(forms);
  for (const std::string type : {"b16", "u16", "s16"}) {
    forms.push_back({"selp." + type, "=2 2 2 p", selp<std::uint16_t>});
  }
  for (const std::string type : {"b32", "u32", "s32", "f32"}) {
    forms.push_back({"selp." + type, "=4 4 4 p", selp<std::uint32_t>});
  }
  for (const std::string type : {"b64", "u64", "s64", "f64"}) {
    forms.push_back({"selp." + type, "=8 8 8 p", selp<std::uint64_t>});
  }
  forms.push_back({"and.pred", "=p p p", join<and_of>});
  forms.push_back({"or.pred", "=p p p", join<or_of>});
  forms.push_back({"xor.pred", "=p p p", join<xor_of>});
  forms.push_back({"not.pred", "=p p", copy<true>});
  forms.push_back({"mov.pred", "=p p", copy<false>});
}

}  // namespace msa_ops::emulator::ptx
