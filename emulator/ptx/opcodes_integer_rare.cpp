// Integer instructions that compilers seldom write: carries, sums of differences, 24-bit products, dot products of
// bytes, searches for bits.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::int32_t, std::int64_t, std::uint32_t, std::uint64_t;
__extension__ using Wide = unsigned __int128;

// ---- the carry

enum class Carry { kAdd, kSub, kMadLow, kMadHigh };

// As in the chip, a difference is a + ~b + 1, or + carry: its carry says that nothing was borrowed.
// d = a + b (+ carry), a + ~b + (1 or carry), low or high half of a * b, + c (+ carry)
template <typename T, Carry operation, bool takes, bool gives>
void with_carry(PtxWarp& warp, const Instruction& i, Mask lanes) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned bits = 8 * sizeof(T);
  constexpr bool product = operation == Carry::kMadLow || operation == Carry::kMadHigh;
  U* out = warp.out<U>(i.operands[0]);
  const T* a = warp.row<T>(i.operands[1]);
  const T* b = warp.row<T>(i.operands[2]);
  const U* c = product ? warp.row<U>(i.operands[3]) : nullptr;
  const Mask before = warp.carry();
  Mask after = before & ~lanes;
  for_lanes(lanes, [&](unsigned lane) {
    const Wide carry = takes ? before >> lane & 1 : 0;
    Wide total = 0;
    if constexpr (product) {
      __extension__ using Product = std::conditional_t<std::is_signed_v<T>, __int128, Wide>;
      const auto whole = static_cast<Wide>(static_cast<Product>(a[lane]) * static_cast<Product>(b[lane]));
      total = static_cast<U>(operation == Carry::kMadHigh ? whole >> bits : whole) + Wide{c[lane]} + carry;
    } else if constexpr (operation == Carry::kAdd) {
      total = Wide{static_cast<U>(a[lane])} + static_cast<U>(b[lane]) + carry;
    } else {
      total = Wide{static_cast<U>(a[lane])} + static_cast<U>(~static_cast<U>(b[lane])) + (takes ? carry : Wide{1});
    }
    out[lane] = static_cast<U>(total);
    after |= static_cast<Mask>(total >> bits & 1) << lane;
  });
  if constexpr (gives) warp.set_carry(after);
}

template <typename T>
void add_carries(Forms& forms, const std::string& type) {
  const std::string w = sizeof(T) == 4 ? "4" : "8", two = "=" + w + " " + w + " " + w, three = two + " " + w;
  forms.push_back({"add.cc." + type, two, with_carry<T, Carry::kAdd, false, true>});
  forms.push_back({"addc." + type, two, with_carry<T, Carry::kAdd, true, false>});
  forms.push_back({"addc.cc." + type, two, with_carry<T, Carry::kAdd, true, true>});
  forms.push_back({"sub.cc." + type, two, with_carry<T, Carry::kSub, false, true>});
  forms.push_back({"subc." + type, two, with_carry<T, Carry::kSub, true, false>});
  forms.push_back({"subc.cc." + type, two, with_carry<T, Carry::kSub, true, true>});
  forms.push_back({"mad.lo.cc." + type, three, with_carry<T, Carry::kMadLow, false, true>});
  forms.push_back({"mad.hi.cc." + type, three, with_carry<T, Carry::kMadHigh, false, true>});
  forms.push_back({"madc.lo." + type, three, with_carry<T, Carry::kMadLow, true, false>});
  forms.push_back({"madc.hi." + type, three, with_carry<T, Carry::kMadHigh, true, false>});
  forms.push_back({"madc.lo.cc." + type, three, with_carry<T, Carry::kMadLow, true, true>});
  forms.push_back({"madc.hi.cc." + type, three, with_carry<T, Carry::kMadHigh, true, true>});
}

// ---- arithmetic

template <typename T>
T sad(T a, T b, T c) {
  using U = std::make_unsigned_t<T>;
  const U difference = a > b ? static_cast<U>(a) - static_cast<U>(b) : static_cast<U>(b) - static_cast<U>(a);
  return static_cast<T>(static_cast<U>(static_cast<U>(c) + difference));
}

int32_t saturated(int64_t value) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}
int32_t add_sat(int32_t a, int32_t b) { return saturated(int64_t{a} + b); }
int32_t sub_sat(int32_t a, int32_t b) { return saturated(int64_t{a} - b); }
int32_t mad_hi_sat(int32_t a, int32_t b, int32_t c) { return saturated((int64_t{a} * b >> 32) + c); }

int64_t low24(int32_t a) { return static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8; }
int64_t low24(uint32_t a) { return a & 0xffffff; }
template <typename T>
T mul24_lo(T a, T b) { return static_cast<T>(low24(a) * low24(b)); }
template <typename T>
T mul24_hi(T a, T b) { return static_cast<T>(low24(a) * low24(b) >> 16); }
template <typename T>
T mad24_lo(T a, T b, T c) { return static_cast<T>(static_cast<uint32_t>(mul24_lo(a, b)) + static_cast<uint32_t>(c)); }
template <typename T>
T mad24_hi(T a, T b, T c) { return static_cast<T>(static_cast<uint32_t>(mul24_hi(a, b)) + static_cast<uint32_t>(c)); }
int32_t mad24_hi_sat(int32_t a, int32_t b, int32_t c) { return saturated(int64_t{mul24_hi(a, b)} + c); }

template <bool is_signed>
int64_t part(uint32_t value, unsigned index, unsigned bits) {
  const uint32_t field = value << (32 - bits - bits * index);
  return is_signed ? static_cast<int32_t>(field) >> (32 - bits) : static_cast<int64_t>(field >> (32 - bits));
}
template <bool a_signed, bool b_signed>
uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
  int64_t total = 0;
  for (unsigned i = 0; i < 4; ++i) total += part<a_signed>(a, i, 8) * part<b_signed>(b, i, 8);
  return static_cast<uint32_t>(total) + c;
}
template <bool a_signed, bool b_signed, bool high>
uint32_t dp2a(uint32_t a, uint32_t b, uint32_t c) {
  int64_t total = 0;
  for (unsigned i = 0; i < 2; ++i) total += part<a_signed>(a, i, 16) * part<b_signed>(b, i + (high ? 2 : 0), 8);
  return static_cast<uint32_t>(total) + c;
}
template <bool a_signed, bool b_signed>
void add_dot_products(Forms& forms, const std::string& types) {
  using U = uint32_t;
  forms.push_back({"dp4a" + types, "=4 4 4 4", ternary<U, U, U, U, dp4a<a_signed, b_signed>>});
  forms.push_back({"dp2a.lo" + types, "=4 4 4 4", ternary<U, U, U, U, dp2a<a_signed, b_signed, false>>});
  forms.push_back({"dp2a.hi" + types, "=4 4 4 4", ternary<U, U, U, U, dp2a<a_signed, b_signed, true>>});
}

// ---- bits

// The position of the highest one, in negative numbers of the highest zero; from the top with shift_amount.
template <typename T, bool shift_amount>
uint32_t bfind(T a) {
  constexpr uint32_t bits = 8 * sizeof(T);
  const auto value = static_cast<uint64_t>(std::is_signed_v<T> && a < 0 ? static_cast<T>(~a) : a);
  if (value == 0) return ~0U;
  const auto position = static_cast<uint32_t>(63 - __builtin_clzll(value));
  return shift_amount ? bits - 1 - position : position;
}

// The n-th one from `base` upwards (n > 0) or downwards (n < 0), `base` itself if n is 0 and it is one.
uint32_t fns(uint32_t mask, uint32_t base, int32_t offset) {
  if (base > 31) return ~0U;
  const auto is_one = [&](int position) { return (mask >> position & 1) != 0; };
  if (offset == 0) return is_one(static_cast<int>(base)) ? base : ~0U;
  const int step = offset > 0 ? 1 : -1;
  int64_t left = offset > 0 ? int64_t{offset} : -int64_t{offset};
  for (int position = static_cast<int>(base); position >= 0 && position < 32; position += step) {
    if (is_one(position) && --left == 0) return static_cast<uint32_t>(position);
  }
  return ~0U;
}

template <bool wrap>
uint32_t bmsk(uint32_t start, uint32_t length) {
  if (wrap) start &= 31, length &= 31;
  if (start > 31) return 0;
  const uint32_t ones = length > 31 ? ~0U : (1U << length) - 1;
  return ones << start;
}

template <typename T, bool wrap>
T szext(T a, uint32_t bits) {
  if (wrap) bits &= 31;
  if (bits > 31) return a;
  if (bits == 0) return 0;
  const uint32_t placed = static_cast<uint32_t>(a) << (32 - bits);
  return static_cast<T>(static_cast<T>(placed) >> (32 - bits));
}

template <typename T>
T cnot(T a) { return a == 0 ? T{1} : T{0}; }

// The special modes of prmt: the low two bits of the selector turn or choose.
enum class Permute { kForward4, kBackward4, kReplicate8, kClampLeft, kClampRight, kReplicate16 };
template <Permute mode>
uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  const int turn = static_cast<int>(selector & 3);
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    int source = 0;
    switch (mode) {
      case Permute::kForward4: source = turn + i; break;
      case Permute::kBackward4: source = (turn - i) & 7; break;
      case Permute::kReplicate8: source = turn; break;
      case Permute::kClampLeft: source = std::max(turn, i); break;
      case Permute::kClampRight: source = std::min(turn, i); break;
      case Permute::kReplicate16: source = (turn & 1) * 2 + (i & 1); break;
    }
    out |= static_cast<uint32_t>(bytes >> (8 * source) & 255) << (8 * i);
  }
  return out;
}

uint32_t table_of(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t result = 0;
  for (unsigned row = 0; row < 8; ++row) {
    if ((table >> row & 1) == 0) continue;
    result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
  }
  return result;
}

// d|p = table(a, b, c), (d != 0) join q
template <bool conjunction>
void lop3(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<uint32_t>(i.operands[2]);
  const auto* b = warp.row<uint32_t>(i.operands[3]);
  const auto* c = warp.row<uint32_t>(i.operands[4]);
  const auto* table = warp.row<uint32_t>(i.operands[5]);
  const Mask other = warp.predicate(i.operands[6]);
  Mask any = 0;
  for_lanes(lanes, [&](unsigned lane) {
    out[lane] = table_of(a[lane], b[lane], c[lane], table[lane]);
    any |= static_cast<Mask>(out[lane] != 0) << lane;
  });
  if (i.operands[1].present) warp.set_predicate(i.operands[1], conjunction ? any & other : any | other, lanes);
}

// Subnormal choosers count as zero with ftz.
template <typename T, typename C, bool ftz = false>
void slct(PtxWarp& warp, const Instruction& i, Mask lanes) {
  T* out = warp.out<T>(i.operands[0]);
  const T* a = warp.row<T>(i.operands[1]);
  const T* b = warp.row<T>(i.operands[2]);
  const C* c = warp.row<C>(i.operands[3]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = (ftz ? c[lane] > C(-0x1p-126) : c[lane] >= 0) ? a[lane] : b[lane]; });
}

template <typename T>
void add_typed(Forms& forms, const std::string& type) {
  const std::string w = std::to_string(sizeof(T)), two = "=" + w + " " + w + " " + w, three = two + " " + w;
  forms.push_back({"sad." + type, three, ternary<T, T, T, T, sad<T>>});
  if constexpr (sizeof(T) > 2) {
    forms.push_back({"bfind." + type, "=4 " + w, unary<uint32_t, T, bfind<T, false>>});
    forms.push_back({"bfind.shiftamt." + type, "=4 " + w, unary<uint32_t, T, bfind<T, true>>});
  }
  if constexpr (sizeof(T) == 4) {
    forms.push_back({"mul24.lo." + type, two, binary<T, T, T, mul24_lo<T>>});
    forms.push_back({"mul24.hi." + type, two, binary<T, T, T, mul24_hi<T>>});
    forms.push_back({"mad24.lo." + type, three, ternary<T, T, T, T, mad24_lo<T>>});
    forms.push_back({"mad24.hi." + type, three, ternary<T, T, T, T, mad24_hi<T>>});
    forms.push_back({"szext.clamp." + type, two, binary<T, T, uint32_t, szext<T, false>>});
    forms.push_back({"szext.wrap." + type, two, binary<T, T, uint32_t, szext<T, true>>});
  }
}

template <typename T>
void add_bits(Forms& forms, const std::string& type) {
  const std::string w = std::to_string(sizeof(T));
  forms.push_back({"cnot." + type, "=" + w + " " + w, unary<T, T, cnot<T>>});
}

template <typename T>
void add_choices(Forms& forms, std::initializer_list<const char*> types) {
  const std::string w = std::to_string(sizeof(T));
  for (const char* type : types) {
    const std::string name = std::string("slct.") + type, operands = "=" + w + " " + w + " " + w + " 4";
    forms.push_back({name + ".s32", operands, slct<T, int32_t>});
    forms.push_back({name + ".f32", operands, slct<T, float>});
    forms.push_back({std::string("slct.ftz.") + type + ".f32", operands, slct<T, float, true>});
  }
}

}  // namespace

void add_rare_integer_forms(Forms& forms) {
  add_carries<uint32_t>(forms, "u32");
  add_carries<int32_t>(forms, "s32");
  add_carries<uint64_t>(forms, "u64");
  add_carries<int64_t>(forms, "s64");
  add_typed<std::int16_t>(forms, "s16");
  add_typed<std::uint16_t>(forms, "u16");
  add_typed<int32_t>(forms, "s32");
  add_typed<uint32_t>(forms, "u32");
  add_typed<int64_t>(forms, "s64");
  add_typed<uint64_t>(forms, "u64");
  add_bits<std::uint16_t>(forms, "b16");
  add_bits<uint32_t>(forms, "b32");
  add_bits<uint64_t>(forms, "b64");
  add_choices<std::uint16_t>(forms, {"b16", "u16", "s16"});
  add_choices<uint32_t>(forms, {"b32", "u32", "s32", "f32"});
  add_choices<uint64_t>(forms, {"b64", "u64", "s64", "f64"});
  add_dot_products<false, false>(forms, ".u32.u32");
  add_dot_products<false, true>(forms, ".u32.s32");
  add_dot_products<true, false>(forms, ".s32.u32");
  add_dot_products<true, true>(forms, ".s32.s32");
  using S = int32_t;
  using U = uint32_t;
  forms.push_back({"add.sat.s32", "=4 4 4", binary<S, S, S, add_sat>});
  forms.push_back({"sub.sat.s32", "=4 4 4", binary<S, S, S, sub_sat>});
  forms.push_back({"mad.hi.sat.s32", "=4 4 4 4", ternary<S, S, S, S, mad_hi_sat>});
  forms.push_back({"mad24.hi.sat.s32", "=4 4 4 4", ternary<S, S, S, S, mad24_hi_sat>});
  forms.push_back({"fns.b32", "=4 4 4 4", ternary<U, U, U, S, fns>});
  forms.push_back({"bmsk.clamp.b32", "=4 4 4", binary<U, U, U, bmsk<false>>});
  forms.push_back({"bmsk.wrap.b32", "=4 4 4", binary<U, U, U, bmsk<true>>});
  forms.push_back({"prmt.b32.f4e", "=4 4 4 4", ternary<U, U, U, U, prmt<Permute::kForward4>>});
  forms.push_back({"prmt.b32.b4e", "=4 4 4 4", ternary<U, U, U, U, prmt<Permute::kBackward4>>});
  forms.push_back({"prmt.b32.rc8", "=4 4 4 4", ternary<U, U, U, U, prmt<Permute::kReplicate8>>});
  forms.push_back({"prmt.b32.ecl", "=4 4 4 4", ternary<U, U, U, U, prmt<Permute::kClampLeft>>});
  forms.push_back({"prmt.b32.ecr", "=4 4 4 4", ternary<U, U, U, U, prmt<Permute::kClampRight>>});
  forms.push_back({"prmt.b32.rc16", "=4 4 4 4", ternary<U, U, U, U, prmt<Permute::kReplicate16>>});
  forms.push_back({"lop3.or.b32", "=4|p? 4 4 4 4 p", lop3<false>});
  forms.push_back({"lop3.and.b32", "=4|p? 4 4 4 4 p", lop3<true>});
}

}  // namespace msa_ops::emulator::ptx
