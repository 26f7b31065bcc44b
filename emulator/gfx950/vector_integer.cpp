// Integers and bits on 64 lanes.
#include <algorithm>

#include "lane_functions.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32, H = Type::kB16, W = Type::kB64, P = Type::kPkB16;
constexpr Encoding V1 = Encoding::kVop1, V2 = Encoding::kVop2, V3 = Encoding::kVop3, VP = Encoding::kVop3p;

std::int32_t s(std::uint32_t value) { return static_cast<std::int32_t>(value); }
std::uint32_t u(std::int64_t value) { return static_cast<std::uint32_t>(value); }
std::int32_t s24(std::uint32_t value) { return static_cast<std::int32_t>(value << 8) >> 8; }
std::uint32_t u24(std::uint32_t value) { return value & 0xffffff; }
std::int32_t s16(std::uint32_t value) { return static_cast<std::int16_t>(value); }
std::uint32_t lo(std::uint32_t value) { return value & 0xffff; }

template <typename F>
void with_carry(VectorOperation& o, F function) {  // function(a, b, carry) as 33 bits
  Mask out = 0;
  const bool clamp = o.instruction.clamp;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t value = function(std::uint64_t{o.a[lane]}, std::uint64_t{o.b[lane]}, o.carry >> lane & 1);
    o.d[lane] = static_cast<std::uint32_t>(value);
    const bool carried = (value >> 32 & 1) != 0;
    out |= Mask{carried} << lane;
    if (clamp && carried) o.d[lane] = (value >> 63) != 0 ? 0 : ~0U;
  }
  o.mask = out;
}

void add_sub(VectorOperation& o, bool subtract, bool reversed) {
  const std::uint32_t* a = reversed ? o.b : o.a;
  const std::uint32_t* b = reversed ? o.a : o.b;
  if (subtract) {
    for (unsigned l = 0; l < kLanes; ++l) o.d[l] = a[l] - b[l];
    if (o.instruction.clamp) {
      for (unsigned l = 0; l < kLanes; ++l) o.d[l] = a[l] < b[l] ? 0 : o.d[l];
    }
  } else {
    for (unsigned l = 0; l < kLanes; ++l) o.d[l] = a[l] + b[l];
    if (o.instruction.clamp) {
      for (unsigned l = 0; l < kLanes; ++l) o.d[l] = o.d[l] < a[l] ? ~0U : o.d[l];
    }
  }
}

void add_signed(VectorOperation& o, bool subtract) {
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::int64_t value = subtract ? std::int64_t{s(o.a[l])} - s(o.b[l]) : std::int64_t{s(o.a[l])} + s(o.b[l]);
    o.d[l] =
        u(o.instruction.clamp ? std::min<std::int64_t>(std::max<std::int64_t>(value, INT32_MIN), INT32_MAX) : value);
  }
}

std::uint32_t saturated(std::int64_t value, std::int64_t low, std::int64_t high) {
  return u(std::min(std::max(value, low), high));
}

// 16-bit add and subtract, with clamp by sign.
template <bool subtract, bool is_signed, bool reversed>
void add16(VectorOperation& o) {
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint32_t x = reversed ? o.b[l] : o.a[l], y = reversed ? o.a[l] : o.b[l];
    const std::int64_t a = is_signed ? std::int64_t{s16(x)} : std::int64_t{lo(x)};
    const std::int64_t b = is_signed ? std::int64_t{s16(y)} : std::int64_t{lo(y)};
    const std::int64_t value = subtract ? a - b : a + b;
    o.d[l] = lo(o.instruction.clamp ? saturated(value, is_signed ? -32768 : 0, is_signed ? 32767 : 65535) : u(value));
  }
}

template <typename F>
void halves2(VectorOperation& o, F function) {
  for (unsigned l = 0; l < kLanes; ++l) {
    o.d[l] = lo(function(lo(o.a[l]), lo(o.b[l]))) | function(o.a[l] >> 16, o.b[l] >> 16) << 16;
  }
}
template <typename F>
void halves3(VectorOperation& o, F function) {
  for (unsigned l = 0; l < kLanes; ++l) {
    o.d[l] = lo(function(lo(o.a[l]), lo(o.b[l]), lo(o.c[l]))) | function(o.a[l] >> 16, o.b[l] >> 16, o.c[l] >> 16)
                                                                    << 16;
  }
}

std::uint32_t perm_byte(std::uint64_t data, std::uint32_t select) {
  if (select >= 13) return 0xff;
  if (select == 12) return 0;
  if (select >= 8) return (data >> ((select - 8) * 16 + 15) & 1) != 0 ? 0xff : 0;
  return static_cast<std::uint32_t>(data >> (8 * select)) & 0xff;
}

std::uint32_t perm(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint64_t data = std::uint64_t{a} << 32 | b;
  return perm_byte(data, c & 0xff) | perm_byte(data, c >> 8 & 0xff) << 8 | perm_byte(data, c >> 16 & 0xff) << 16 |
         perm_byte(data, c >> 24) << 24;
}

void bitop3(VectorOperation& o, std::uint32_t keep) {
  const auto table = static_cast<std::uint32_t>(o.instruction.immediate);
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint32_t a = o.a[l], b = o.b[l], c = o.c[l];
    std::uint32_t value = 0;
    for (unsigned term = 0; term < 8; ++term) {
      if ((table >> term & 1) == 0) continue;
      value |= ((term & 4) != 0 ? a : ~a) & ((term & 2) != 0 ? b : ~b) & ((term & 1) != 0 ? c : ~c);
    }
    o.d[l] = value & keep;
  }
}

std::uint32_t bfe_signed(std::uint32_t a, unsigned offset, unsigned width) {
  if (width == 0) return 0;
  const std::int32_t shifted = s(a) >> offset;
  return u(static_cast<std::int32_t>(static_cast<std::uint32_t>(shifted) << (32 - width)) >> (32 - width));
}

std::uint32_t reversed_bits(std::uint32_t v) {
  v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
  v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
  v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(v);
}

std::uint32_t ffbh_signed(std::uint32_t a) {
  const std::uint32_t folded = a ^ u(s(a) >> 31);
  return folded == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_clz(folded));
}

std::uint32_t sad8(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < 32; i += 8) sum += static_cast<std::uint32_t>(std::abs(s(a >> i & 0xff) - s(b >> i & 0xff)));
  return sum;
}

template <typename T>
T med3(T a, T b, T c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }

template <bool is_signed>
void dot(VectorOperation& o, unsigned width) {
  for (unsigned l = 0; l < kLanes; ++l) {
    std::int64_t sum = is_signed ? std::int64_t{s(o.c[l])} : std::int64_t{o.c[l]};
    for (unsigned at = 0; at < 32; at += width) {
      const auto part = [&](std::uint32_t v) -> std::int64_t {
        const std::uint32_t field = v << (32 - width - at);
        return is_signed ? std::int64_t{s(field) >> (32 - width)} : std::int64_t{field >> (32 - width)};
      };
      sum += part(o.a[l]) * part(o.b[l]);
    }
    if (o.instruction.clamp) {
      sum = std::min<std::int64_t>(std::max<std::int64_t>(sum, is_signed ? INT32_MIN : 0),
                                   is_signed ? std::int64_t{INT32_MAX} : std::int64_t{UINT32_MAX});
    }
    o.d[l] = u(sum);
  }
}

void mad_u64(VectorOperation& o) {
  Mask out = 0;
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint64_t product = std::uint64_t{o.a[l]} * o.b[l], sum = product + wide(o.c, l);
    set_wide(o.d, l, sum);
    out |= Mask{sum < product} << l;
  }
  o.mask = out;
}
void mad_i64(VectorOperation& o) {
  Mask out = 0;
  for (unsigned l = 0; l < kLanes; ++l) {
    const __int128 sum =
        static_cast<__int128>(std::int64_t{s(o.a[l])} * s(o.b[l])) + static_cast<std::int64_t>(wide(o.c, l));
    set_wide(o.d, l, static_cast<std::uint64_t>(sum));
    out |= Mask{sum != static_cast<std::int64_t>(sum)} << l;
  }
  o.mask = out;
}

template <typename F>
void wide_result(VectorOperation& o, F function) {
  for (unsigned l = 0; l < kLanes; ++l) set_wide(o.d, l, function(l));
}

void cndmask(VectorOperation& o) {
  for (unsigned l = 0; l < kLanes; ++l) o.d[l] = (o.carry >> l & 1) != 0 ? o.b[l] : o.a[l];
}

void mbcnt(VectorOperation& o, unsigned first) {
  for (unsigned l = 0; l < kLanes; ++l) {
    const unsigned count = l > first ? std::min(l - first, 32U) : 0;
    const std::uint32_t below = count == 32 ? ~0U : (1U << count) - 1;
    o.d[l] = static_cast<std::uint32_t>(__builtin_popcount(o.a[l] & below)) + o.b[l];
  }
}

void pk_mov(VectorOperation& o) {  // op_sel has put the word of each source that is wanted in the low row
  for (unsigned l = 0; l < kLanes; ++l) {
    o.d[l] = o.a[l];
    o.d[l + kLanes] = o.b[l];
  }
}

void ashr_pk(VectorOperation& o, std::int64_t low, std::int64_t high) {
  for (unsigned l = 0; l < kLanes; ++l) {
    const unsigned shift = o.c[l] & 31;
    const std::uint32_t value =
        (saturated(s(o.a[l]) >> shift, low, high) & 0xff) | (saturated(s(o.b[l]) >> shift, low, high) & 0xff) << 8;
    const bool top = o.instruction.destination.high;
    o.d[l] = top ? (o.d[l] & 0xffff) | value << 16 : (o.d[l] & 0xffff0000) | value;
  }
  o.mask = o.instruction.destination.high ? 12 : 3;
}

}  // namespace

std::vector<Form> vector_integer_forms() {
  std::vector<Form> made;
  const auto add = [&](Encoding e, unsigned n, const char* name, Type d, Type a, Type b, Type c, VectorFunction f,
                       std::uint32_t flags = 0) { made.push_back(vector_form(e, n, name, d, a, b, c, f, flags)); };

  add(V1, 0, "v_nop", N, N, N, N, [](VectorOperation&) {});
  add(V1, 1, "v_mov_b32", B, B, N, N, LANES1(a));
  add(V1, 43, "v_not_b32", B, B, N, N, LANES1(~a));
  add(V1, 44, "v_bfrev_b32", B, B, N, N, LANES1(reversed_bits(a)));
  add(V1, 45, "v_ffbh_u32", B, B, N, N, LANES1(a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_clz(a))));
  add(V1, 46, "v_ffbl_b32", B, B, N, N, LANES1(a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_ctz(a))));
  add(V1, 47, "v_ffbh_i32", B, B, N, N, LANES1(ffbh_signed(a)));
  add(V1, 56, "v_mov_b64", W, W, N, N,
      [](VectorOperation& o) { wide_result(o, [&](unsigned l) { return wide(o.a, l); }); });
  add(V1, 79, "v_sat_pk_u8_i16", B, B, N, N,
      LANES1(saturated(s16(a), 0, 255) | saturated(s16(a >> 16), 0, 255) << 8));

  add(V2, 0, "v_cndmask_b32", B, B, B, N, cndmask, kReadsVcc);
  add(V2, 6, "v_mul_i32_i24", B, B, B, N, LANES2(u(std::int64_t{s24(a)} * s24(b))));
  add(V2, 7, "v_mul_hi_i32_i24", B, B, B, N, LANES2(u(std::int64_t{s24(a)} * s24(b) >> 32)));
  add(V2, 8, "v_mul_u32_u24", B, B, B, N, LANES2(u24(a) * u24(b)));
  add(V2, 9, "v_mul_hi_u32_u24", B, B, B, N, LANES2(static_cast<std::uint32_t>(std::uint64_t{u24(a)} * u24(b) >> 32)));
  add(V2, 12, "v_min_i32", B, B, B, N, LANES2(s(a) < s(b) ? a : b));
  add(V2, 13, "v_max_i32", B, B, B, N, LANES2(s(a) > s(b) ? a : b));
  add(V2, 14, "v_min_u32", B, B, B, N, LANES2(a < b ? a : b));
  add(V2, 15, "v_max_u32", B, B, B, N, LANES2(a > b ? a : b));
  add(V2, 16, "v_lshrrev_b32", B, B, B, N, LANES2(b >> (a & 31)));
  add(V2, 17, "v_ashrrev_i32", B, B, B, N, LANES2(u(s(b) >> (a & 31))));
  add(V2, 18, "v_lshlrev_b32", B, B, B, N, LANES2(b << (a & 31)));
  add(V2, 19, "v_and_b32", B, B, B, N, LANES2(a & b));
  add(V2, 20, "v_or_b32", B, B, B, N, LANES2(a | b));
  add(V2, 21, "v_xor_b32", B, B, B, N, LANES2(a ^ b));
  add(V2, 61, "v_xnor_b32", B, B, B, N, LANES2(~(a ^ b)));
  constexpr std::uint32_t kCarryOut = kWritesVcc | kSaturates, kCarryBoth = kCarryOut | kReadsVcc;
  add(
      V2, 25, "v_add_co_u32", B, B, B, N,
      [](VectorOperation& o) { with_carry(o, [](auto a, auto b, auto) { return a + b; }); }, kCarryOut);
  add(
      V2, 26, "v_sub_co_u32", B, B, B, N,
      [](VectorOperation& o) { with_carry(o, [](auto a, auto b, auto) { return a - b; }); }, kCarryOut);
  add(
      V2, 27, "v_subrev_co_u32", B, B, B, N,
      [](VectorOperation& o) { with_carry(o, [](auto a, auto b, auto) { return b - a; }); }, kCarryOut);
  add(
      V2, 28, "v_addc_co_u32", B, B, B, N,
      [](VectorOperation& o) { with_carry(o, [](auto a, auto b, auto c) { return a + b + c; }); }, kCarryBoth);
  add(
      V2, 29, "v_subb_co_u32", B, B, B, N,
      [](VectorOperation& o) { with_carry(o, [](auto a, auto b, auto c) { return a - b - c; }); }, kCarryBoth);
  add(
      V2, 30, "v_subbrev_co_u32", B, B, B, N,
      [](VectorOperation& o) { with_carry(o, [](auto a, auto b, auto c) { return b - a - c; }); }, kCarryBoth);
  add(V2, 52, "v_add_u32", B, B, B, N, [](VectorOperation& o) { add_sub(o, false, false); }, kSaturates);
  add(V2, 53, "v_sub_u32", B, B, B, N, [](VectorOperation& o) { add_sub(o, true, false); }, kSaturates);
  add(V2, 54, "v_subrev_u32", B, B, B, N, [](VectorOperation& o) { add_sub(o, true, true); }, kSaturates);
  add(V2, 38, "v_add_u16", H, H, H, N, add16<false, false, false>, kSaturates);
  add(V2, 39, "v_sub_u16", H, H, H, N, add16<true, false, false>, kSaturates);
  add(V2, 40, "v_subrev_u16", H, H, H, N, add16<true, false, true>, kSaturates);
  add(V2, 41, "v_mul_lo_u16", H, H, H, N, LANES2(lo(lo(a) * lo(b))));
  add(V2, 42, "v_lshlrev_b16", H, H, H, N, LANES2(lo(lo(b) << (a & 15))));
  add(V2, 43, "v_lshrrev_b16", H, H, H, N, LANES2(lo(b) >> (a & 15)));
  add(V2, 44, "v_ashrrev_i16", H, H, H, N, LANES2(lo(u(s16(b) >> (a & 15)))));
  add(V2, 47, "v_max_u16", H, H, H, N, LANES2(std::max(lo(a), lo(b))));
  add(V2, 48, "v_max_i16", H, H, H, N, LANES2(lo(u(std::max(s16(a), s16(b))))));
  add(V2, 49, "v_min_u16", H, H, H, N, LANES2(std::min(lo(a), lo(b))));
  add(V2, 50, "v_min_i16", H, H, H, N, LANES2(lo(u(std::min(s16(a), s16(b))))));
  add(
      V2, 56, "v_dot2c_i32_i16", B, B, B, N,
      [](VectorOperation& o) {
        for (unsigned l = 0; l < kLanes; ++l)
          o.d[l] += u(std::int64_t{s16(o.a[l])} * s16(o.b[l]) + std::int64_t{s16(o.a[l] >> 16)} * s16(o.b[l] >> 16));
      },
      kReadsDestination);
  add(V2, 57, "v_dot4c_i32_i8", B, B, B, N,
      [](VectorOperation& o) { VectorOperation p = o; p.c = o.d; dot<true>(p, 8); }, kReadsDestination | kSaturates);

  add(V3, 450, "v_mad_i32_i24", B, B, B, B, LANES3(u(std::int64_t{s24(a)} * s24(b) + s(c))));
  add(V3, 451, "v_mad_u32_u24", B, B, B, B, LANES3(u24(a) * u24(b) + c));
  add(V3, 456, "v_bfe_u32", B, B, B, B, LANES3((a >> (b & 31)) & ((1U << (c & 31)) - 1)));
  add(V3, 457, "v_bfe_i32", B, B, B, B, LANES3(bfe_signed(a, b & 31, c & 31)));
  add(V3, 458, "v_bfi_b32", B, B, B, B, LANES3((a & b) | (~a & c)));
  add(V3, 462, "v_alignbit_b32", B, B, B, B,
      LANES3(static_cast<std::uint32_t>((std::uint64_t{a} << 32 | b) >> (c & 31))));
  add(V3, 463, "v_alignbyte_b32", B, B, B, B,
      LANES3(static_cast<std::uint32_t>((std::uint64_t{a} << 32 | b) >> (8 * (c & 3)))));
  add(V3, 465, "v_min3_i32", B, B, B, B, LANES3(u(std::min(std::min(s(a), s(b)), s(c)))));
  add(V3, 466, "v_min3_u32", B, B, B, B, LANES3(std::min(std::min(a, b), c)));
  add(V3, 468, "v_max3_i32", B, B, B, B, LANES3(u(std::max(std::max(s(a), s(b)), s(c)))));
  add(V3, 469, "v_max3_u32", B, B, B, B, LANES3(std::max(std::max(a, b), c)));
  add(V3, 471, "v_med3_i32", B, B, B, B, LANES3(u(med3(s(a), s(b), s(c)))));
  add(V3, 472, "v_med3_u32", B, B, B, B, LANES3(med3(a, b, c)));
  add(V3, 473, "v_sad_u8", B, B, B, B, LANES3(sad8(a, b) + c));
  add(V3, 474, "v_sad_hi_u8", B, B, B, B, LANES3((sad8(a, b) << 16) + c));
  add(V3, 475, "v_sad_u16", B, B, B, B,
      LANES3(u(std::abs(s(lo(a)) - s(lo(b)))) + u(std::abs(s(a >> 16) - s(b >> 16))) + c));
  add(V3, 476, "v_sad_u32", B, B, B, B, LANES3((a > b ? a - b : b - a) + c));
  add(V3, 493, "v_perm_b32", B, B, B, B, LANES3(perm(a, b, c)));
  add(V3, 497, "v_mad_u32_u16", B, H, H, B, LANES3(lo(a) * lo(b) + c));
  add(V3, 498, "v_mad_i32_i16", B, H, H, B, LANES3(u(std::int64_t{s16(a)} * s16(b) + s(c))));
  add(V3, 499, "v_xad_u32", B, B, B, B, LANES3((a ^ b) + c));
  add(V3, 501, "v_min3_i16", H, H, H, H, LANES3(lo(u(std::min(std::min(s16(a), s16(b)), s16(c))))));
  add(V3, 502, "v_min3_u16", H, H, H, H, LANES3(std::min(std::min(lo(a), lo(b)), lo(c))));
  add(V3, 504, "v_max3_i16", H, H, H, H, LANES3(lo(u(std::max(std::max(s16(a), s16(b)), s16(c))))));
  add(V3, 505, "v_max3_u16", H, H, H, H, LANES3(std::max(std::max(lo(a), lo(b)), lo(c))));
  add(V3, 507, "v_med3_i16", H, H, H, H, LANES3(lo(u(med3(s16(a), s16(b), s16(c))))));
  add(V3, 508, "v_med3_u16", H, H, H, H, LANES3(med3(lo(a), lo(b), lo(c))));
  add(V3, 509, "v_lshl_add_u32", B, B, B, B, LANES3((a << (b & 31)) + c));
  add(V3, 510, "v_add_lshl_u32", B, B, B, B, LANES3((a + b) << (c & 31)));
  add(V3, 511, "v_add3_u32", B, B, B, B, LANES3(a + b + c));
  add(V3, 512, "v_lshl_or_b32", B, B, B, B, LANES3((a << (b & 31)) | c));
  add(V3, 513, "v_and_or_b32", B, B, B, B, LANES3((a & b) | c));
  add(V3, 514, "v_or3_b32", B, B, B, B, LANES3(a | b | c));
  add(V3, 516, "v_mad_u16", H, H, H, H, LANES3(lo(lo(a) * lo(b) + lo(c))));
  add(V3, 517, "v_mad_i16", H, H, H, H, LANES3(lo(u(std::int64_t{s16(a)} * s16(b) + s16(c)))));
  add(V3, 520, "v_lshl_add_u64", W, W, B, W, [](VectorOperation& o) {
    wide_result(o, [&](unsigned l) { return (wide(o.a, l) << (o.b[l] & 7)) + wide(o.c, l); });
  });
  add(V3, 563, "v_bitop3_b16", H, H, H, H, [](VectorOperation& o) { bitop3(o, 0xffff); });
  add(V3, 564, "v_bitop3_b32", B, B, B, B, [](VectorOperation& o) { bitop3(o, ~0U); });
  add(V3, 613, "v_ashr_pk_i8_i32", B, B, B, B, [](VectorOperation& o) { ashr_pk(o, -128, 127); }, kPartial);
  add(V3, 614, "v_ashr_pk_u8_i32", B, B, B, B, [](VectorOperation& o) { ashr_pk(o, 0, 255); }, kPartial);
  add(V3, 645, "v_mul_lo_u32", B, B, B, N, LANES2(a * b));
  add(V3, 646, "v_mul_hi_u32", B, B, B, N, LANES2(static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32)));
  add(V3, 647, "v_mul_hi_i32", B, B, B, N, LANES2(u(std::int64_t{s(a)} * s(b) >> 32)));
  add(V3, 651, "v_bcnt_u32_b32", B, B, B, N, LANES2(static_cast<std::uint32_t>(__builtin_popcount(a)) + b));
  add(V3, 652, "v_mbcnt_lo_u32_b32", B, B, B, N, [](VectorOperation& o) { mbcnt(o, 0); });
  add(V3, 653, "v_mbcnt_hi_u32_b32", B, B, B, N, [](VectorOperation& o) { mbcnt(o, 32); });
  add(V3, 655, "v_lshlrev_b64", W, B, W, N,
      [](VectorOperation& o) { wide_result(o, [&](unsigned l) { return wide(o.b, l) << (o.a[l] & 63); }); });
  add(V3, 656, "v_lshrrev_b64", W, B, W, N,
      [](VectorOperation& o) { wide_result(o, [&](unsigned l) { return wide(o.b, l) >> (o.a[l] & 63); }); });
  add(V3, 657, "v_ashrrev_i64", W, B, W, N, [](VectorOperation& o) {
    wide_result(o, [&](unsigned l) {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(wide(o.b, l)) >> (o.a[l] & 63));
    });
  });
  add(V3, 659, "v_bfm_b32", B, B, B, N, LANES2(((1U << (a & 31)) - 1) << (b & 31)));
  add(V3, 663, "v_cvt_pk_u16_u32", B, B, B, N, LANES2(std::min(a, 0xffffU) | std::min(b, 0xffffU) << 16));
  add(V3, 664, "v_cvt_pk_i16_i32", B, B, B, N,
      LANES2(lo(saturated(s(a), -32768, 32767)) | saturated(s(b), -32768, 32767) << 16));
  add(V3, 668, "v_add_i32", B, B, B, N, [](VectorOperation& o) { add_signed(o, false); }, kSaturates);
  add(V3, 669, "v_sub_i32", B, B, B, N, [](VectorOperation& o) { add_signed(o, true); }, kSaturates);
  add(V3, 670, "v_add_i16", H, H, H, N, add16<false, true, false>, kSaturates);
  add(V3, 671, "v_sub_i16", H, H, H, N, add16<true, true, false>, kSaturates);
  add(V3, 488, "v_mad_u64_u32", W, B, B, W, mad_u64, kWritesVcc);
  add(V3, 489, "v_mad_i64_i32", W, B, B, W, mad_i64, kWritesVcc);

  add(VP, 0, "v_pk_mad_i16", P, P, P, P,
      [](VectorOperation& o) { halves3(o, [](auto a, auto b, auto c) { return a * b + c; }); });
  add(VP, 1, "v_pk_mul_lo_u16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return a * b; }); });
  add(
      VP, 2, "v_pk_add_i16", P, P, P, N,
      [](VectorOperation& o) {
        const bool c = o.instruction.clamp;
        halves2(o, [c](auto a, auto b) {
          const std::int64_t r = std::int64_t{s16(a)} + s16(b);
          return c ? saturated(r, -32768, 32767) : u(r);
        });
      },
      kSaturates);
  add(
      VP, 3, "v_pk_sub_i16", P, P, P, N,
      [](VectorOperation& o) {
        const bool c = o.instruction.clamp;
        halves2(o, [c](auto a, auto b) {
          const std::int64_t r = std::int64_t{s16(a)} - s16(b);
          return c ? saturated(r, -32768, 32767) : u(r);
        });
      },
      kSaturates);
  add(VP, 4, "v_pk_lshlrev_b16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return b << (a & 15); }); });
  add(VP, 5, "v_pk_lshrrev_b16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return lo(b) >> (a & 15); }); });
  add(VP, 6, "v_pk_ashrrev_i16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return u(s16(b) >> (a & 15)); }); });
  add(VP, 7, "v_pk_max_i16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return u(std::max(s16(a), s16(b))); }); });
  add(VP, 8, "v_pk_min_i16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return u(std::min(s16(a), s16(b))); }); });
  add(VP, 9, "v_pk_mad_u16", P, P, P, P,
      [](VectorOperation& o) { halves3(o, [](auto a, auto b, auto c) { return a * b + c; }); });
  add(
      VP, 10, "v_pk_add_u16", P, P, P, N,
      [](VectorOperation& o) {
        const bool c = o.instruction.clamp;
        halves2(o, [c](auto a, auto b) { return c ? std::min(a + b, 0xffffU) : a + b; });
      },
      kSaturates);
  add(
      VP, 11, "v_pk_sub_u16", P, P, P, N,
      [](VectorOperation& o) {
        const bool c = o.instruction.clamp;
        halves2(o, [c](auto a, auto b) { return c && a < b ? 0U : a - b; });
      },
      kSaturates);
  add(VP, 12, "v_pk_max_u16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return std::max(a, b); }); });
  add(VP, 13, "v_pk_min_u16", P, P, P, N,
      [](VectorOperation& o) { halves2(o, [](auto a, auto b) { return std::min(a, b); }); });
  add(VP, 38, "v_dot2_i32_i16", B, B, B, B, [](VectorOperation& o) { dot<true>(o, 16); }, kSaturates);
  add(VP, 39, "v_dot2_u32_u16", B, B, B, B, [](VectorOperation& o) { dot<false>(o, 16); }, kSaturates);
  add(VP, 40, "v_dot4_i32_i8", B, B, B, B, [](VectorOperation& o) { dot<true>(o, 8); }, kSaturates);
  add(VP, 41, "v_dot4_u32_u8", B, B, B, B, [](VectorOperation& o) { dot<false>(o, 8); }, kSaturates);
  add(VP, 42, "v_dot8_i32_i4", B, B, B, B, [](VectorOperation& o) { dot<true>(o, 4); }, kSaturates);
  add(VP, 43, "v_dot8_u32_u4", B, B, B, B, [](VectorOperation& o) { dot<false>(o, 4); }, kSaturates);
  add(VP, 51, "v_pk_mov_b32", Type::kPkF32, Type::kPkF32, Type::kPkF32, N, pk_mov);
  return made;
}

}  // namespace msa_ops::emulator::gfx950
