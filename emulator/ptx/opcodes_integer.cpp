// Integer arithmetic and bits.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;

// Arithmetic wraps, so it is done without a sign, and in at least 32 bits to keep C's promotions out of it.
template <typename T>
using Unsigned = std::make_unsigned_t<std::conditional_t<(sizeof(T) < 4), int32_t, T>>;

template <typename T>
T add(T a, T b) { return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b)); }
template <typename T>
T sub(T a, T b) { return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b)); }
template <typename T>
T mul_lo(T a, T b) { return static_cast<T>(Unsigned<T>(a) * Unsigned<T>(b)); }
template <typename T>
T mad_lo(T a, T b, T c) { return add(mul_lo(a, b), c); }

template <typename T>
struct WiderOf;
template <>
struct WiderOf<int16_t> { using Type = int32_t; };
template <>
struct WiderOf<uint16_t> { using Type = uint32_t; };
template <>
struct WiderOf<int32_t> { using Type = int64_t; };
template <>
struct WiderOf<uint32_t> { using Type = uint64_t; };
template <>
struct WiderOf<int64_t> { __extension__ using Type = __int128; };
template <>
struct WiderOf<uint64_t> { __extension__ using Type = unsigned __int128; };
template <typename T>
using Wider = typename WiderOf<T>::Type;

template <typename T>
Wider<T> mul_wide(T a, T b) { return static_cast<Wider<T>>(a) * static_cast<Wider<T>>(b); }
template <typename T>
Wider<T> mad_wide(T a, T b, Wider<T> c) { return add(mul_wide(a, b), c); }
template <typename T>
T mul_hi(T a, T b) { return static_cast<T>(mul_wide(a, b) >> (8 * sizeof(T))); }
template <typename T>
T mad_hi(T a, T b, T c) { return add(mul_hi(a, b), c); }

// PTX leaves division by zero open; this is all ones, the remainder too, as an H200 gives.
template <typename T>
T div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return sub(T{0}, a);
  return static_cast<T>(a / b);
}
template <typename T>
T rem(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <typename T>
T minimum(T a, T b) { return std::min(a, b); }
template <typename T>
T maximum(T a, T b) { return std::max(a, b); }
template <typename T, T (*function)(T, T)>
T relu(T a, T b) { return std::max(function(a, b), T{0}); }
template <typename T, T (*function)(T, T)>
uint32_t pair(uint32_t a, uint32_t b) {
  const auto one = [](uint32_t x, uint32_t y) {
    return static_cast<uint16_t>(function(static_cast<T>(x), static_cast<T>(y)));
  };
  return uint32_t{one(a >> 16, b >> 16)} << 16 | one(a, b);
}
template <typename T>
T negate(T a) { return sub(T{0}, a); }
template <typename T>
T absolute(T a) { return a < 0 ? negate(a) : a; }

template <typename T>
T bit_and(T a, T b) { return static_cast<T>(a & b); }
template <typename T>
T bit_or(T a, T b) { return static_cast<T>(a | b); }
template <typename T>
T bit_xor(T a, T b) { return static_cast<T>(a ^ b); }
template <typename T>
T bit_not(T a) { return static_cast<T>(~a); }

// Shifts by the width or more give zero or the sign.
template <typename T>
T shl(T a, uint32_t n) { return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(Unsigned<T>(a) << n); }
template <typename T>
T shr(T a, uint32_t n) {
  constexpr uint32_t bits = 8 * sizeof(T);
  return static_cast<T>(n < bits ? a >> n : std::is_signed_v<T> ? a >> (bits - 1) : T{0});
}

uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t n) {
  return static_cast<uint32_t>(((uint64_t{high} << 32 | low) << n) >> 32);
}
uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> n);
}
uint32_t shf_l_wrap(uint32_t low, uint32_t high, uint32_t n) { return funnel_left(low, high, n & 31); }
uint32_t shf_r_wrap(uint32_t low, uint32_t high, uint32_t n) { return funnel_right(low, high, n & 31); }
uint32_t shf_l_clamp(uint32_t low, uint32_t high, uint32_t n) { return funnel_left(low, high, std::min(n, 32U)); }
uint32_t shf_r_clamp(uint32_t low, uint32_t high, uint32_t n) { return funnel_right(low, high, std::min(n, 32U)); }

// Positions and lengths are bytes; a field past the end is filled with zeros or the sign.
template <typename T>
T bfe(T a, uint32_t position, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(T);
  using U = Unsigned<T>;
  const uint32_t start = position & 255, size = length & 255;
  if (size == 0) return 0;
  const bool sign = std::is_signed_v<T> && (U(a) >> std::min(start + size - 1, bits - 1) & 1) != 0;
  U field = start < bits ? U(a) >> start : 0;
  const uint32_t present = std::min(size, start < bits ? bits - start : 0);
  if (present < bits) {
    const U mask = (U{1} << present) - 1;
    field = sign ? field | ~mask : field & mask;
  }
  return static_cast<T>(field);
}
template <typename T>
void bfi(PtxWarp& warp, const Instruction& i, Mask lanes) {
  T* out = warp.out<T>(i.operands[0]);
  const T* a = warp.row<T>(i.operands[1]);
  const T* b = warp.row<T>(i.operands[2]);
  const auto* position = warp.row<uint32_t>(i.operands[3]);
  const auto* length = warp.row<uint32_t>(i.operands[4]);
  for_lanes(lanes, [&](unsigned lane) {
    constexpr uint32_t bits = 8 * sizeof(T);
    const uint32_t start = position[lane] & 255, size = length[lane] & 255;
    const T ones = size >= bits ? ~T{0} : (T{1} << size) - 1;
    const T mask = start >= bits ? 0 : ones << start;
    const T placed = start >= bits ? 0 : a[lane] << start;
    out[lane] = (b[lane] & ~mask) | (placed & mask);
  });
}

uint32_t brev32(uint32_t a) {
  uint32_t out = 0;
  for (unsigned bit = 0; bit < 32; ++bit) out |= (a >> bit & 1) << (31 - bit);
  return out;
}
uint64_t brev64(uint64_t a) {
  return uint64_t{brev32(static_cast<uint32_t>(a))} << 32 | brev32(static_cast<uint32_t>(a >> 32));
}
template <typename T>
uint32_t popc(T a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }
uint32_t clz32(uint32_t a) { return a == 0 ? 32 : static_cast<uint32_t>(__builtin_clz(a)); }
uint32_t clz64(uint64_t a) { return a == 0 ? 64 : static_cast<uint32_t>(__builtin_clzll(a)); }

// Each of the four selectors picks a byte of b:a; its bit 3 repeats the sign of that byte instead.
uint32_t prmt(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> (4 * i) & 15;
    auto byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7)) & 255);
    if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    out |= byte << (8 * i);
  }
  return out;
}

void lop3(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<uint32_t>(i.operands[1]);
  const auto* b = warp.row<uint32_t>(i.operands[2]);
  const auto* c = warp.row<uint32_t>(i.operands[3]);
  const auto* tables = warp.row<uint32_t>(i.operands[4]);
  for_lanes(lanes, [&](unsigned lane) {
    const uint32_t table = tables[lane];
    uint32_t result = 0;
    for (unsigned row = 0; row < 8; ++row) {
      if ((table >> row & 1) == 0) continue;
      result |= ((row & 4) != 0 ? a[lane] : ~a[lane]) & ((row & 2) != 0 ? b[lane] : ~b[lane]) &
                ((row & 1) != 0 ? c[lane] : ~c[lane]);
    }
    out[lane] = result;
  });
}

template <typename T>
void add_arithmetic(Forms& forms, const std::string& type) {
  const std::string w = std::to_string(sizeof(T));
  const std::string one = "=" + w + " " + w, two = one + " " + w, three = two + " " + w;
  forms.push_back({"add." + type, two, binary<T, T, T, add<T>>});
  forms.push_back({"sub." + type, two, binary<T, T, T, sub<T>>});
  forms.push_back({"mul.lo." + type, two, binary<T, T, T, mul_lo<T>>});
  forms.push_back({"mul.hi." + type, two, binary<T, T, T, mul_hi<T>>});
  forms.push_back({"mad.lo." + type, three, ternary<T, T, T, T, mad_lo<T>>});
  forms.push_back({"mad.hi." + type, three, ternary<T, T, T, T, mad_hi<T>>});
  forms.push_back({"div." + type, two, binary<T, T, T, div<T>>});
  forms.push_back({"rem." + type, two, binary<T, T, T, rem<T>>});
  forms.push_back({"min." + type, two, binary<T, T, T, minimum<T>>});
  forms.push_back({"max." + type, two, binary<T, T, T, maximum<T>>});
  forms.push_back({"shr." + type, one + " 4", binary<T, T, uint32_t, shr<T>>});
  if constexpr (sizeof(T) < 8) {
    using W = Wider<T>;
    const std::string wide = std::to_string(sizeof(W));
    forms.push_back({"mul.wide." + type, "=" + wide + " " + w + " " + w, binary<W, T, T, mul_wide<T>>});
    const std::string operands = "=" + wide + " " + w + " " + w + " " + wide;
    forms.push_back({"mad.wide." + type, operands, ternary<W, T, T, W, mad_wide<T>>});
  }
  if constexpr (sizeof(T) > 2) {
    forms.push_back({"bfe." + type, one + " 4 4", ternary<T, T, uint32_t, uint32_t, bfe<T>>});
  }
  if constexpr (std::is_signed_v<T>) {
    forms.push_back({"neg." + type, one, unary<T, T, negate<T>>});
    forms.push_back({"abs." + type, one, unary<T, T, absolute<T>>});
  }
}

template <typename T>
void add_bits(Forms& forms, const std::string& type) {
  const std::string w = std::to_string(sizeof(T));
  const std::string one = "=" + w + " " + w, two = one + " " + w;
  forms.push_back({"and." + type, two, binary<T, T, T, bit_and<T>>});
  forms.push_back({"or." + type, two, binary<T, T, T, bit_or<T>>});
  forms.push_back({"xor." + type, two, binary<T, T, T, bit_xor<T>>});
  forms.push_back({"not." + type, one, unary<T, T, bit_not<T>>});
  forms.push_back({"shl." + type, one + " 4", binary<T, T, uint32_t, shl<T>>});
  forms.push_back({"shr." + type, one + " 4", binary<T, T, uint32_t, shr<T>>});
}

}  // namespace

void add_integer_forms(Forms& forms) {
  add_arithmetic<int16_t>(forms, "s16");
  add_arithmetic<uint16_t>(forms, "u16");
  add_arithmetic<int32_t>(forms, "s32");
  add_arithmetic<uint32_t>(forms, "u32");
  add_arithmetic<int64_t>(forms, "s64");
  add_arithmetic<uint64_t>(forms, "u64");
  add_bits<uint16_t>(forms, "b16");
  add_bits<uint32_t>(forms, "b32");
  add_bits<uint64_t>(forms, "b64");
  using U = uint32_t;
  forms.push_back({"shf.l.wrap.b32", "=4 4 4 4", ternary<U, U, U, U, shf_l_wrap>});
  forms.push_back({"shf.r.wrap.b32", "=4 4 4 4", ternary<U, U, U, U, shf_r_wrap>});
  forms.push_back({"shf.l.clamp.b32", "=4 4 4 4", ternary<U, U, U, U, shf_l_clamp>});
  forms.push_back({"shf.r.clamp.b32", "=4 4 4 4", ternary<U, U, U, U, shf_r_clamp>});
  forms.push_back({"bfi.b32", "=4 4 4 4 4", bfi<uint32_t>});
  forms.push_back({"bfi.b64", "=8 8 8 4 4", bfi<uint64_t>});
  using S = int32_t;
  using S16 = int16_t;
  using U16 = uint16_t;
  forms.push_back({"min.relu.s32", "=4 4 4", binary<S, S, S, relu<S, minimum<S>>>});
  forms.push_back({"max.relu.s32", "=4 4 4", binary<S, S, S, relu<S, maximum<S>>>});
  forms.push_back({"min.u16x2", "=4 4 4", binary<U, U, U, pair<U16, minimum<U16>>>});
  forms.push_back({"max.u16x2", "=4 4 4", binary<U, U, U, pair<U16, maximum<U16>>>});
  forms.push_back({"add.u16x2", "=4 4 4", binary<U, U, U, pair<U16, add<U16>>>});
  forms.push_back({"min.s16x2", "=4 4 4", binary<U, U, U, pair<S16, minimum<S16>>>});
  forms.push_back({"max.s16x2", "=4 4 4", binary<U, U, U, pair<S16, maximum<S16>>>});
  forms.push_back({"add.s16x2", "=4 4 4", binary<U, U, U, pair<S16, add<S16>>>});
  forms.push_back({"min.relu.s16x2", "=4 4 4", binary<U, U, U, pair<S16, relu<S16, minimum<S16>>>>});
  forms.push_back({"max.relu.s16x2", "=4 4 4", binary<U, U, U, pair<S16, relu<S16, maximum<S16>>>>});
  forms.push_back({"brev.b32", "=4 4", unary<U, U, brev32>});
  forms.push_back({"brev.b64", "=8 8", unary<uint64_t, uint64_t, brev64>});
  forms.push_back({"popc.b32", "=4 4", unary<U, U, popc<U>>});
  forms.push_back({"popc.b64", "=4 8", unary<U, uint64_t, popc<uint64_t>>});
  forms.push_back({"clz.b32", "=4 4", unary<U, U, clz32>});
  forms.push_back({"clz.b64", "=4 8", unary<U, uint64_t, clz64>});
  forms.push_back({"prmt.b32", "=4 4 4 4", ternary<U, U, U, U, prmt>});
  forms.push_back({"lop3.b32", "=4 4 4 4 4", lop3});
}

}  // namespace msa_ops::emulator::ptx
