// Scalar operations and control flow.
#include <algorithm>
#include <cstdlib>

#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32, W = Type::kB64;

std::int32_t s(std::uint32_t value) { return static_cast<std::int32_t>(value); }
std::int64_t s(std::uint64_t value) { return static_cast<std::int64_t>(value); }

Form form(Encoding encoding, unsigned number, const char* name, Type d, Type a, Type b, Handler handler,
          std::uint32_t flags = 0) {
  return {encoding, static_cast<std::uint16_t>(number), name, d, {a, b, N}, handler, nullptr, flags};
}

#define SCALAR2(RESULT, SCC)                                                      \
  [](Wave& w, const Instruction& i) {                                             \
    const std::uint32_t a = w.value32(i.sources[0]), b = w.value32(i.sources[1]); \
    const std::uint32_t r = (RESULT);                                             \
    w.set_value32(i.destination, r);                                              \
    w.set_scc(SCC);                                                               \
  }
#define SCALAR2_KEEP(RESULT)                                                      \
  [](Wave& w, const Instruction& i) {                                             \
    const std::uint32_t a = w.value32(i.sources[0]), b = w.value32(i.sources[1]); \
    w.set_value32(i.destination, (RESULT));                                       \
  }
#define SCALAR2_64(RESULT)                                                        \
  [](Wave& w, const Instruction& i) {                                             \
    const std::uint64_t a = w.value64(i.sources[0]), b = w.value64(i.sources[1]); \
    const std::uint64_t r = (RESULT);                                             \
    w.set_value64(i.destination, r);                                              \
    w.set_scc(r != 0);                                                            \
  }
#define SCALAR1(RESULT, SCC)                         \
  [](Wave& w, const Instruction& i) {                \
    const std::uint32_t a = w.value32(i.sources[0]); \
    const std::uint32_t r = (RESULT);                \
    w.set_value32(i.destination, r);                 \
    w.set_scc(SCC);                                  \
  }
#define COMPARE(CONDITION)                                                        \
  [](Wave& w, const Instruction& i) {                                             \
    const std::uint32_t a = w.value32(i.sources[0]), b = w.value32(i.sources[1]); \
    w.set_scc(CONDITION);                                                         \
  }
#define COMPARE_K(CONDITION, EXTENDED)               \
  [](Wave& w, const Instruction& i) {                \
    const std::uint32_t a = w.value32(i.sources[0]); \
    const std::uint32_t b = (EXTENDED);              \
    w.set_scc(CONDITION);                            \
  }
#define SAVE_EXEC(RESULT)                                          \
  [](Wave& w, const Instruction& i) {                              \
    const std::uint64_t a = w.value64(i.sources[0]), e = w.exec(); \
    const std::uint64_t r = (RESULT);                              \
    w.set_value64(i.destination, e);                               \
    w.set_sgpr64(kExec, r);                                        \
    w.set_scc(r != 0);                                             \
  }
#define BRANCH(CONDITION)             \
  [](Wave& w, const Instruction& i) { \
    if (CONDITION) w.jump(i.target);  \
  }

bool overflows(std::uint32_t a, std::uint32_t b, std::uint32_t r) { return (~(a ^ b) & (a ^ r)) >> 31 != 0; }

std::uint64_t lowest_bits(unsigned count) { return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1; }
std::uint32_t bfe32(std::uint32_t a, std::uint32_t b, bool is_signed) {
  const unsigned offset = b & 31, width = b >> 16 & 127;
  if (width == 0) return 0;
  const std::uint32_t shifted = is_signed ? static_cast<std::uint32_t>(s(a) >> offset) : a >> offset;
  if (width >= 32) return shifted;
  const std::uint32_t field = shifted & ((1U << width) - 1);
  return is_signed ? static_cast<std::uint32_t>(s(field << (32 - width)) >> (32 - width)) : field;
}
std::uint64_t bfe64(std::uint64_t a, std::uint32_t b, bool is_signed) {
  const unsigned offset = b & 63, width = b >> 16 & 127;
  if (width == 0) return 0;
  const std::uint64_t shifted = is_signed ? static_cast<std::uint64_t>(s(a) >> offset) : a >> offset;
  if (width >= 64) return shifted;
  const std::uint64_t field = shifted & lowest_bits(width);
  return is_signed ? static_cast<std::uint64_t>(s(field << (64 - width)) >> (64 - width)) : field;
}
std::uint32_t reversed32(std::uint32_t v) {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 32; ++i) out |= (v >> i & 1) << (31 - i);
  return out;
}
std::uint64_t replicated(std::uint32_t v) {
  std::uint64_t out = 0;
  for (unsigned i = 0; i < 32; ++i) out |= static_cast<std::uint64_t>(v >> i & 1) * 3 << (2 * i);
  return out;
}

void shift_add(Wave& w, const Instruction& i, unsigned shift) {
  const std::uint64_t r = (std::uint64_t{w.value32(i.sources[0])} << shift) + w.value32(i.sources[1]);
  w.set_value32(i.destination, static_cast<std::uint32_t>(r));
  w.set_scc(r >> 32 != 0);
}

template <typename F>
void one64(Wave& w, const Instruction& i, F function) {
  const std::uint64_t r = function(w.value64(i.sources[0]));
  w.set_value64(i.destination, r);
  w.set_scc(r != 0);
}
template <typename F>
void count64(Wave& w, const Instruction& i, F function, bool with_scc) {
  const std::uint32_t r = function(w.value64(i.sources[0]));
  w.set_value32(i.destination, r);
  if (with_scc) w.set_scc(r != 0);
}
template <typename F>
void count32(Wave& w, const Instruction& i, F function) {
  w.set_value32(i.destination, function(w.value32(i.sources[0])));
}

// The two parts of s_getreg and s_setreg that matter to arithmetic.
void getreg(Wave& w, const Instruction& i) {
  const unsigned field = static_cast<unsigned>(i.immediate) & 0xffff, id = field & 63, offset = field >> 6 & 31,
                 size = (field >> 11 & 31) + 1;
  std::uint32_t value = 0;
  if (id == 1) value = w.mode();
  else if (id == 20) value = w.group()->die_number;  // XCC_ID
  else
    throw Violation{FaultKind::kIllegal,
                    "s_getreg_b32 of hardware register " + std::to_string(id) + ", which the emulator has not"};
  w.set_value32(i.destination, static_cast<std::uint32_t>(value >> offset & lowest_bits(size)));
}
void setreg(Wave& w, const Instruction& i, std::uint32_t value) {
  const unsigned field = static_cast<unsigned>(i.immediate) & 0xffff, id = field & 63, offset = field >> 6 & 31,
                 size = (field >> 11 & 31) + 1;
  if (id != 1)
    throw Violation{FaultKind::kIllegal,
                    "s_setreg of hardware register " + std::to_string(id) + ", which the emulator has not"};
  const auto mask = static_cast<std::uint32_t>(lowest_bits(size) << offset);
  w.set_mode((w.mode() & ~mask) | (value << offset & mask));
}

void jump_to(Wave& w, std::uint64_t address) {
  const std::uint32_t index = w.kernel().index_at(address);
  if (index >= w.kernel().instructions().size())
    throw Violation{FaultKind::kIllegal, "a jump to where no instruction starts"};
  w.jump(index);
}
std::uint64_t address_of_next(const Wave& w) { return w.present().address + w.present().size; }

void waitcnt(Wave& w, const Instruction& i) {
  const auto field = static_cast<unsigned>(i.immediate) & 0xffff;
  const unsigned vector = (field & 15) | (field >> 14 & 3) << 4, lds = field >> 8 & 15;
  w.count_wait(vector < 63 ? vector : ~0U, lds < 15 ? lds : ~0U);
  if (vector < 63) w.wait_vector(vector);
  if (lds < 15) w.wait_scalar_and_lds(lds);
}

}  // namespace

std::vector<Form> scalar_forms() {
  constexpr Encoding S1 = Encoding::kSop1, S2 = Encoding::kSop2, SC = Encoding::kSopc, SK = Encoding::kSopk,
                     SP = Encoding::kSopp;
  constexpr std::uint32_t R = kReadsScc, X = kWritesScc, E = kWritesExec | kWritesScc;
  std::vector<Form> made{
      form(S2, 0, "s_add_u32", B, B, B, SCALAR2(a + b, r < a), X),
      form(S2, 1, "s_sub_u32", B, B, B, SCALAR2(a - b, a < b), X),
      form(S2, 2, "s_add_i32", B, B, B, SCALAR2(a + b, overflows(a, b, r)), X),
      form(S2, 3, "s_sub_i32", B, B, B, SCALAR2(a - b, overflows(a, ~b, r)), X),
      form(S2, 4, "s_addc_u32", B, B, B,
           [](Wave& w, const Instruction& i) {
             const std::uint64_t r = std::uint64_t{w.value32(i.sources[0])} + w.value32(i.sources[1]) +
                 (w.scc() ? 1 : 0);
             w.set_value32(i.destination, static_cast<std::uint32_t>(r));
             w.set_scc(r >> 32 != 0);
           }, R | X),
      form(S2, 5, "s_subb_u32", B, B, B,
           [](Wave& w, const Instruction& i) {
             const std::uint64_t a = w.value32(i.sources[0]), b = std::uint64_t{w.value32(i.sources[1])} +
                 (w.scc() ? 1 : 0);
             w.set_value32(i.destination, static_cast<std::uint32_t>(a - b));
             w.set_scc(b > a);
           }, R | X),
      form(S2, 6, "s_min_i32", B, B, B, SCALAR2(s(a) < s(b) ? a : b, s(a) < s(b)), X),
      form(S2, 7, "s_min_u32", B, B, B, SCALAR2(std::min(a, b), a < b), X),
      form(S2, 8, "s_max_i32", B, B, B, SCALAR2(s(a) > s(b) ? a : b, s(a) > s(b)), X),
      form(S2, 9, "s_max_u32", B, B, B, SCALAR2(std::max(a, b), a > b), X),
      form(S2, 10, "s_cselect_b32", B, B, B, SCALAR2_KEEP(w.scc() ? a : b), R),
      form(S2, 11, "s_cselect_b64", W, W, W,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, w.scc() ? w.value64(i.sources[0]) : w.value64(i.sources[1]));
           }, R),
      form(S2, 12, "s_and_b32", B, B, B, SCALAR2(a & b, r != 0), X),
      form(S2, 13, "s_and_b64", W, W, W, SCALAR2_64(a & b), X),
      form(S2, 14, "s_or_b32", B, B, B, SCALAR2(a | b, r != 0), X),
      form(S2, 15, "s_or_b64", W, W, W, SCALAR2_64(a | b), X),
      form(S2, 16, "s_xor_b32", B, B, B, SCALAR2(a ^ b, r != 0), X),
      form(S2, 17, "s_xor_b64", W, W, W, SCALAR2_64(a ^ b), X),
      form(S2, 18, "s_andn2_b32", B, B, B, SCALAR2(a & ~b, r != 0), X),
      form(S2, 19, "s_andn2_b64", W, W, W, SCALAR2_64(a & ~b), X),
      form(S2, 20, "s_orn2_b32", B, B, B, SCALAR2(a | ~b, r != 0), X),
      form(S2, 21, "s_orn2_b64", W, W, W, SCALAR2_64(a | ~b), X),
      form(S2, 22, "s_nand_b32", B, B, B, SCALAR2(~(a & b), r != 0), X),
      form(S2, 23, "s_nand_b64", W, W, W, SCALAR2_64(~(a & b)), X),
      form(S2, 24, "s_nor_b32", B, B, B, SCALAR2(~(a | b), r != 0), X),
      form(S2, 25, "s_nor_b64", W, W, W, SCALAR2_64(~(a | b)), X),
      form(S2, 26, "s_xnor_b32", B, B, B, SCALAR2(~(a ^ b), r != 0), X),
      form(S2, 27, "s_xnor_b64", W, W, W, SCALAR2_64(~(a ^ b)), X),
      form(S2, 28, "s_lshl_b32", B, B, B, SCALAR2(a << (b & 31), r != 0), X),
      form(S2, 29, "s_lshl_b64", W, W, B, SCALAR2_64(a << (b & 63)), X),
      form(S2, 30, "s_lshr_b32", B, B, B, SCALAR2(a >> (b & 31), r != 0), X),
      form(S2, 31, "s_lshr_b64", W, W, B, SCALAR2_64(a >> (b & 63)), X),
      form(S2, 32, "s_ashr_i32", B, B, B, SCALAR2(static_cast<std::uint32_t>(s(a) >> (b & 31)), r != 0), X),
      form(S2, 33, "s_ashr_i64", W, W, B, SCALAR2_64(static_cast<std::uint64_t>(s(a) >> (b & 63))), X),
      form(S2, 34, "s_bfm_b32", B, B, B, SCALAR2_KEEP(((1U << (a & 31)) - 1) << (b & 31))),
      form(S2, 35, "s_bfm_b64", W, B, B,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, ((std::uint64_t{1} << (w.value32(i.sources[0]) & 63)) - 1)
                 << (w.value32(i.sources[1]) & 63));
           }),
      form(S2, 36, "s_mul_i32", B, B, B, SCALAR2_KEEP(a * b)),
      form(S2, 37, "s_bfe_u32", B, B, B, SCALAR2(bfe32(a, b, false), r != 0), X),
      form(S2, 38, "s_bfe_i32", B, B, B, SCALAR2(bfe32(a, b, true), r != 0), X),
      form(S2, 39, "s_bfe_u64", W, W, B, SCALAR2_64(bfe64(a, static_cast<std::uint32_t>(b), false)), X),
      form(S2, 40, "s_bfe_i64", W, W, B, SCALAR2_64(bfe64(a, static_cast<std::uint32_t>(b), true)), X),
      form(S2, 42, "s_absdiff_i32", B, B, B, SCALAR2(s(a - b) < 0 ? b - a : a - b, r != 0), X),
      form(S2, 44, "s_mul_hi_u32", B, B, B, SCALAR2_KEEP(static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32))),
      form(S2, 45, "s_mul_hi_i32", B, B, B, SCALAR2_KEEP(static_cast<std::uint32_t>(std::int64_t{s(a)} * s(b) >> 32))),
      form(S2, 46, "s_lshl1_add_u32", B, B, B, [](Wave& w, const Instruction& i) { shift_add(w, i, 1); }, X),
      form(S2, 47, "s_lshl2_add_u32", B, B, B, [](Wave& w, const Instruction& i) { shift_add(w, i, 2); }, X),
      form(S2, 48, "s_lshl3_add_u32", B, B, B, [](Wave& w, const Instruction& i) { shift_add(w, i, 3); }, X),
      form(S2, 49, "s_lshl4_add_u32", B, B, B, [](Wave& w, const Instruction& i) { shift_add(w, i, 4); }, X),
      form(S2, 50, "s_pack_ll_b32_b16", B, B, B, SCALAR2_KEEP((a & 0xffff) | b << 16)),
      form(S2, 51, "s_pack_lh_b32_b16", B, B, B, SCALAR2_KEEP((a & 0xffff) | (b & 0xffff0000))),
      form(S2, 52, "s_pack_hh_b32_b16", B, B, B, SCALAR2_KEEP(a >> 16 | (b & 0xffff0000))),

      form(S1, 0, "s_mov_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             w.set_value32(i.destination, w.value32(i.sources[0]));
           }),
      form(S1, 1, "s_mov_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, w.value64(i.sources[0]));
           }),
      form(S1, 2, "s_cmov_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             if (w.scc()) w.set_value32(i.destination, w.value32(i.sources[0]));
           },
           R | kReadsDestination),
      form(S1, 3, "s_cmov_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             if (w.scc()) w.set_value64(i.destination, w.value64(i.sources[0]));
           },
           R | kReadsDestination),
      form(S1, 4, "s_not_b32", B, B, N, SCALAR1(~a, r != 0), X),
      form(S1, 5, "s_not_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             one64(w, i, [](std::uint64_t a) { return ~a; });
           },
           X),
      form(S1, 8, "s_brev_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             w.set_value32(i.destination, reversed32(w.value32(i.sources[0])));
           }),
      form(S1, 9, "s_brev_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             const std::uint64_t a = w.value64(i.sources[0]);
             w.set_value64(i.destination, std::uint64_t{reversed32(static_cast<std::uint32_t>(a))} << 32
                 | reversed32(static_cast<std::uint32_t>(a >> 32)));
           }),
      form(S1, 10, "s_bcnt0_i32_b32", B, B, N, SCALAR1(static_cast<std::uint32_t>(__builtin_popcount(~a)), r != 0), X),
      form(S1, 11, "s_bcnt0_i32_b64", B, W, N,
           [](Wave& w, const Instruction& i) {
             count64(w, i, [](std::uint64_t a) { return static_cast<std::uint32_t>(__builtin_popcountll(~a)); }, true);
           },
           X),
      form(S1, 12, "s_bcnt1_i32_b32", B, B, N, SCALAR1(static_cast<std::uint32_t>(__builtin_popcount(a)), r != 0), X),
      form(S1, 13, "s_bcnt1_i32_b64", B, W, N,
           [](Wave& w, const Instruction& i) {
             count64(w, i, [](std::uint64_t a) { return static_cast<std::uint32_t>(__builtin_popcountll(a)); }, true);
           },
           X),
      form(S1, 14, "s_ff0_i32_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             count32(w, i, [](std::uint32_t a) {
               return ~a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_ctz(~a));
             });
           }),
      form(S1, 15, "s_ff0_i32_b64", B, W, N,
           [](Wave& w, const Instruction& i) {
             count64(w, i, [](std::uint64_t a) {
               return ~a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_ctzll(~a));
             }, false);
           }),
      form(S1, 16, "s_ff1_i32_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             count32(w, i, [](std::uint32_t a) { return a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_ctz(a)); });
           }),
      form(S1, 17, "s_ff1_i32_b64", B, W, N,
           [](Wave& w, const Instruction& i) {
             count64(w, i, [](std::uint64_t a) {
               return a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_ctzll(a));
             }, false);
           }),
      form(S1, 18, "s_flbit_i32_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             count32(w, i, [](std::uint32_t a) { return a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_clz(a)); });
           }),
      form(S1, 19, "s_flbit_i32_b64", B, W, N,
           [](Wave& w, const Instruction& i) {
             count64(w, i, [](std::uint64_t a) {
               return a == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_clzll(a));
             }, false);
           }),
      form(S1, 20, "s_flbit_i32", B, B, N,
           [](Wave& w, const Instruction& i) {
             count32(w, i, [](std::uint32_t a) {
               const std::uint32_t f = a ^ static_cast<std::uint32_t>(s(a) >> 31);
               return f == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_clz(f));
             });
           }),
      form(S1, 21, "s_flbit_i32_i64", B, W, N,
           [](Wave& w, const Instruction& i) {
             count64(w, i, [](std::uint64_t a) {
               const std::uint64_t f = a ^ static_cast<std::uint64_t>(s(a) >> 63);
               return f == 0 ? ~0U : static_cast<std::uint32_t>(__builtin_clzll(f));
             }, false);
           }),
      form(S1, 22, "s_sext_i32_i8", B, B, N,
           [](Wave& w, const Instruction& i) {
             count32(w, i, [](std::uint32_t a) { return static_cast<std::uint32_t>(static_cast<std::int8_t>(a)); });
           }),
      form(S1, 23, "s_sext_i32_i16", B, B, N,
           [](Wave& w, const Instruction& i) {
             count32(w, i, [](std::uint32_t a) { return static_cast<std::uint32_t>(static_cast<std::int16_t>(a)); });
           }),
      form(S1, 24, "s_bitset0_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             w.sgpr(i.destination.index) &= ~(1U << (w.value32(i.sources[0]) & 31));
           },
           kReadsDestination),
      form(S1, 26, "s_bitset1_b32", B, B, N,
           [](Wave& w, const Instruction& i) {
             w.sgpr(i.destination.index) |= 1U << (w.value32(i.sources[0]) & 31);
           },
           kReadsDestination),
      form(S1, 25, "s_bitset0_b64", W, B, N,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, w.sgpr64(i.destination.index) & ~(std::uint64_t{1} << (w.value32(i.sources[0])
                 & 63)));
           },
           kReadsDestination),
      form(S1, 27, "s_bitset1_b64", W, B, N,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, w.sgpr64(i.destination.index) | std::uint64_t{1} << (w.value32(i.sources[0])
                 & 63));
           },
           kReadsDestination),
      form(S1, 28, "s_getpc_b64", W, N, N,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, address_of_next(w));
           }),
      form(S1, 29, "s_setpc_b64", N, W, N, [](Wave& w, const Instruction& i) { jump_to(w, w.value64(i.sources[0])); }),
      form(S1, 30, "s_swappc_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             const std::uint64_t to = w.value64(i.sources[0]);
             w.set_value64(i.destination, address_of_next(w));
             jump_to(w, to);
           }),
      form(S1, 32, "s_and_saveexec_b64", W, W, N, SAVE_EXEC(a & e), E),
      form(S1, 33, "s_or_saveexec_b64", W, W, N, SAVE_EXEC(a | e), E),
      form(S1, 34, "s_xor_saveexec_b64", W, W, N, SAVE_EXEC(a ^ e), E),
      form(S1, 35, "s_andn2_saveexec_b64", W, W, N, SAVE_EXEC(a & ~e), E),
      form(S1, 36, "s_orn2_saveexec_b64", W, W, N, SAVE_EXEC(a | ~e), E),
      form(S1, 37, "s_nand_saveexec_b64", W, W, N, SAVE_EXEC(~(a & e)), E),
      form(S1, 38, "s_nor_saveexec_b64", W, W, N, SAVE_EXEC(~(a | e)), E),
      form(S1, 39, "s_xnor_saveexec_b64", W, W, N, SAVE_EXEC(~(a ^ e)), E),
      form(S1, 51, "s_andn1_saveexec_b64", W, W, N, SAVE_EXEC(~a & e), E),
      form(S1, 52, "s_orn1_saveexec_b64", W, W, N, SAVE_EXEC(~a | e), E),
      form(S1, 53, "s_andn1_wrexec_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             const std::uint64_t r = ~w.value64(i.sources[0]) & w.exec();
             w.set_sgpr64(kExec, r);
             w.set_value64(i.destination, r);
             w.set_scc(r != 0);
           },
           E),
      form(S1, 54, "s_andn2_wrexec_b64", W, W, N,
           [](Wave& w, const Instruction& i) {
             const std::uint64_t r = w.value64(i.sources[0]) & ~w.exec();
             w.set_sgpr64(kExec, r);
             w.set_value64(i.destination, r);
             w.set_scc(r != 0);
           },
           E),
      form(S1, 48, "s_abs_i32", B, B, N, SCALAR1(s(a) < 0 ? 0U - a : a, r != 0), X),
      form(S1, 55, "s_bitreplicate_b64_b32", W, B, N,
           [](Wave& w, const Instruction& i) {
             w.set_value64(i.destination, replicated(w.value32(i.sources[0])));
           }),

      form(SC, 0, "s_cmp_eq_i32", N, B, B, COMPARE(a == b), X),
      form(SC, 1, "s_cmp_lg_i32", N, B, B, COMPARE(a != b), X),
      form(SC, 2, "s_cmp_gt_i32", N, B, B, COMPARE(s(a) > s(b)), X),
      form(SC, 3, "s_cmp_ge_i32", N, B, B, COMPARE(s(a) >= s(b)), X),
      form(SC, 4, "s_cmp_lt_i32", N, B, B, COMPARE(s(a) < s(b)), X),
      form(SC, 5, "s_cmp_le_i32", N, B, B, COMPARE(s(a) <= s(b)), X),
      form(SC, 6, "s_cmp_eq_u32", N, B, B, COMPARE(a == b), X),
      form(SC, 7, "s_cmp_lg_u32", N, B, B, COMPARE(a != b), X),
      form(SC, 8, "s_cmp_gt_u32", N, B, B, COMPARE(a > b), X),
      form(SC, 9, "s_cmp_ge_u32", N, B, B, COMPARE(a >= b), X),
      form(SC, 10, "s_cmp_lt_u32", N, B, B, COMPARE(a < b), X),
      form(SC, 11, "s_cmp_le_u32", N, B, B, COMPARE(a <= b), X),
      form(SC, 12, "s_bitcmp0_b32", N, B, B, COMPARE((a >> (b & 31) & 1) == 0), X),
      form(SC, 13, "s_bitcmp1_b32", N, B, B, COMPARE((a >> (b & 31) & 1) != 0), X),
      form(SC, 14, "s_bitcmp0_b64", N, W, B,
           [](Wave& w, const Instruction& i) {
             w.set_scc((w.value64(i.sources[0]) >> (w.value32(i.sources[1]) & 63) & 1) == 0);
           },
           X),
      form(SC, 15, "s_bitcmp1_b64", N, W, B,
           [](Wave& w, const Instruction& i) {
             w.set_scc((w.value64(i.sources[0]) >> (w.value32(i.sources[1]) & 63) & 1) != 0);
           },
           X),
      form(SC, 18, "s_cmp_eq_u64", N, W, W,
           [](Wave& w, const Instruction& i) {
             w.set_scc(w.value64(i.sources[0]) == w.value64(i.sources[1]));
           },
           X),
      form(SC, 19, "s_cmp_lg_u64", N, W, W,
           [](Wave& w, const Instruction& i) {
             w.set_scc(w.value64(i.sources[0]) != w.value64(i.sources[1]));
           },
           X),

      form(SK, 0, "s_movk_i32", B, N, N,
           [](Wave& w, const Instruction& i) {
             w.set_value32(i.destination, static_cast<std::uint32_t>(i.immediate));
           }),
      form(SK, 1, "s_cmovk_i32", B, B, N,
           [](Wave& w, const Instruction& i) {
             if (w.scc()) w.set_value32(i.destination, static_cast<std::uint32_t>(i.immediate));
           },
           R),
      form(SK, 2, "s_cmpk_eq_i32", N, B, N, COMPARE_K(a == b, static_cast<std::uint32_t>(i.immediate)), X),
      form(SK, 3, "s_cmpk_lg_i32", N, B, N, COMPARE_K(a != b, static_cast<std::uint32_t>(i.immediate)), X),
      form(SK, 4, "s_cmpk_gt_i32", N, B, N, COMPARE_K(s(a) > s(b), static_cast<std::uint32_t>(i.immediate)), X),
      form(SK, 5, "s_cmpk_ge_i32", N, B, N, COMPARE_K(s(a) >= s(b), static_cast<std::uint32_t>(i.immediate)), X),
      form(SK, 6, "s_cmpk_lt_i32", N, B, N, COMPARE_K(s(a) < s(b), static_cast<std::uint32_t>(i.immediate)), X),
      form(SK, 7, "s_cmpk_le_i32", N, B, N, COMPARE_K(s(a) <= s(b), static_cast<std::uint32_t>(i.immediate)), X),
      form(SK, 8, "s_cmpk_eq_u32", N, B, N, COMPARE_K(a == b, static_cast<std::uint32_t>(i.immediate) & 0xffff), X),
      form(SK, 9, "s_cmpk_lg_u32", N, B, N, COMPARE_K(a != b, static_cast<std::uint32_t>(i.immediate) & 0xffff), X),
      form(SK, 10, "s_cmpk_gt_u32", N, B, N, COMPARE_K(a > b, static_cast<std::uint32_t>(i.immediate) & 0xffff), X),
      form(SK, 11, "s_cmpk_ge_u32", N, B, N, COMPARE_K(a >= b, static_cast<std::uint32_t>(i.immediate) & 0xffff), X),
      form(SK, 12, "s_cmpk_lt_u32", N, B, N, COMPARE_K(a < b, static_cast<std::uint32_t>(i.immediate) & 0xffff), X),
      form(SK, 13, "s_cmpk_le_u32", N, B, N, COMPARE_K(a <= b, static_cast<std::uint32_t>(i.immediate) & 0xffff), X),
      form(SK, 14, "s_addk_i32", B, B, N,
           [](Wave& w, const Instruction& i) {
             const std::uint32_t a = w.value32(i.sources[0]), b = static_cast<std::uint32_t>(i.immediate), r = a + b;
             w.set_value32(i.destination, r);
             w.set_scc(overflows(a, b, r));
           }, X),
      form(SK, 15, "s_mulk_i32", B, B, N,
           [](Wave& w, const Instruction& i) {
             w.set_value32(i.destination, w.value32(i.sources[0]) * static_cast<std::uint32_t>(i.immediate));
           }),
      form(SK, 17, "s_getreg_b32", B, N, N, getreg),
      form(SK, 18, "s_setreg_b32", N, B, N,
           [](Wave& w, const Instruction& i) {
             setreg(w, i, w.value32(i.sources[0]));
           }),
      form(SK, 20, "s_setreg_imm32_b32", N, N, N,
           [](Wave& w, const Instruction& i) {
             setreg(w, i, w.value32(i.sources[0]));
           }),

      form(SP, 0, "s_nop", N, N, N,
           [](Wave& w, const Instruction& i) {
             w.stall(static_cast<unsigned>(i.immediate) & 15);
           }),
      form(SP, 1, "s_endpgm", N, N, N, [](Wave& w, const Instruction&) { w.end(); }),
      form(SP, 2, "s_branch", N, N, N, BRANCH(true), kBranch),
      form(SP, 3, "s_wakeup", N, N, N, [](Wave&, const Instruction&) {}),
      form(SP, 4, "s_cbranch_scc0", N, N, N, BRANCH(!w.scc()), kBranch | R),
      form(SP, 5, "s_cbranch_scc1", N, N, N, BRANCH(w.scc()), kBranch | R),
      form(SP, 6, "s_cbranch_vccz", N, N, N, BRANCH(w.sgpr64(kVcc) == 0), kBranch | kReadsVcc),
      form(SP, 7, "s_cbranch_vccnz", N, N, N, BRANCH(w.sgpr64(kVcc) != 0), kBranch | kReadsVcc),
      form(SP, 8, "s_cbranch_execz", N, N, N, BRANCH(w.exec() == 0), kBranch),
      form(SP, 9, "s_cbranch_execnz", N, N, N, BRANCH(w.exec() != 0), kBranch),
      form(SP, 10, "s_barrier", N, N, N, [](Wave& w, const Instruction&) { w.barrier(); }),
      form(SP, 12, "s_waitcnt", N, N, N, waitcnt),
      form(SP, 14, "s_sleep", N, N, N, [](Wave& w, const Instruction&) { w.yield(); }),
      form(SP, 15, "s_setprio", N, N, N, [](Wave&, const Instruction&) {}),
      form(SP, 18, "s_trap", N, N, N,
           [](Wave&, const Instruction&) {
             throw Violation{FaultKind::kIllegal, "a trap, or the end of the code without s_endpgm"};
           }),
      form(SP, 19, "s_icache_inv", N, N, N, [](Wave&, const Instruction&) {}),
      form(SP, 22, "s_ttracedata", N, N, N, [](Wave&, const Instruction&) {}),
  };
  return made;
}

}  // namespace msa_ops::emulator::gfx950
