"""Index queries as the second operand of the matrix products: 8 columns of (query token, head) pairs each.

Lane 4 g + t holds column g, and of each step the dims that it holds of the keys.

With fp16 keys, queries are fp16 too. fp16 and E4M3 queries are exact as they are. A bf16 query is multiplied by the
power of two that brings its largest element to between 2^15 and 2^16. Its elements down to 2^-32 of the largest are
then exact; what smaller ones lose is at most 2^-40 of the largest, far below the rounding of an fp32 sum of products.
A factor of a column does not change which of its scores is larger.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from msa_ops.cute.indexer import atoms, keys

BF16, FP16, FP8 = range(3)
"""Numbers of the dtypes of queries."""


def first_dim(index_format: str, t: Int32, group: int) -> Int32:
    """The first of the eight consecutive dims that lane t holds for steps 2 group and 2 group + 1."""
    if index_format == "nvfp4":
        return t * 32 + 8 * group
    if index_format == "fp8":
        return t * 16 + (64 * (group // 2) + 8 * (group % 2))
    return t * 8 + 32 * group


@cute.jit
def load_words(index_format: cutlass.Constexpr, address: Int64, dtype: Int32, t: Int32, words, at: cutlass.Constexpr):
    """Fills words[at : at + 16] with a lane's share of the query at `address` as it is stored; zeros if that is 0.

    A share of E4M3 takes words 0, 1, 4, 5, ... only. Nothing waits for the loads here.
    """
    for i in cutlass.range_constexpr(16):
        words[at + i] = Uint32(0)
    if address != Int64(0):
        for group in cutlass.range_constexpr(4):
            dim = Int64(first_dim(index_format, t, group))
            if dtype == FP8:
                words[at + 4 * group], words[at + 4 * group + 1] = atoms.ldg_constant_u32x2(address + dim)
            else:
                four = atoms.ldg_constant_u32x4(address + dim * 2)
                for i in cutlass.range_constexpr(4):
                    words[at + 4 * group + i] = four[i]


@cute.jit
def convert(index_format: cutlass.Constexpr, dtype: Int32, words, at: cutlass.Constexpr):
    """Turns a column's words into the operand, in place. All lanes of a warp take part."""
    half = cutlass.const_expr(keys.operand_kind(index_format) == "f16")
    if dtype == FP8:
        for group in cutlass.range_constexpr(4):
            low, high = words[at + 4 * group], words[at + 4 * group + 1]
            if half:
                words[at + 4 * group], words[at + 4 * group + 1] = atoms.e4m3x4_to_f16x4(low)
                words[at + 4 * group + 2], words[at + 4 * group + 3] = atoms.e4m3x4_to_f16x4(high)
            else:
                words[at + 4 * group], words[at + 4 * group + 1] = keys.e4m3_to_bf16(low)
                words[at + 4 * group + 2], words[at + 4 * group + 3] = keys.e4m3_to_bf16(high)
    if half:
        if dtype == BF16:
            to_half(words, at)
    if cutlass.const_expr(index_format == "nvfp4"):
        # Of dims 0 to 7: (0, 4), (1, 5), then (2, 6), (3, 7), the order in which codes leave their word.
        for group in cutlass.range_constexpr(4):
            four = [words[at + 4 * group + i] for i in range(4)]
            for pair in cutlass.range_constexpr(2):
                words[at + 4 * group + 2 * pair] = atoms.permute(four[pair], four[pair + 2], 0x5410)
                words[at + 4 * group + 2 * pair + 1] = atoms.permute(four[pair], four[pair + 2], 0x7632)


@cute.jit
def to_half(words, at: cutlass.Constexpr):
    """16 registers of bf16, of columns that four lanes share, to fp16 with a factor for each column."""
    largest = Uint32(0)
    for i in cutlass.range_constexpr(16):
        largest = atoms.max_u16x2(largest, words[at + i] & Uint32(0x7FFF7FFF))
    for step in cutlass.range_constexpr(2):
        largest = atoms.max_u16x2(largest, cute.arch.shuffle_sync_bfly(largest, 1 << step))
    low, high = largest & Uint32(0xFFFF), largest >> Uint32(16)
    exponent = Int32((high if high > low else low) >> Uint32(7))  # 255 if there is an infinity or a NaN
    exponent = Int32(254) if exponent > 254 else exponent
    biased = Int32(127 + 15 + 127) - exponent  # of 2^(15 - (exponent - 127))
    biased = Int32(254) if biased > 254 else biased
    factor = atoms.float_of(Uint32(biased) << Uint32(23))
    for i in cutlass.range_constexpr(16):
        low = atoms.float_of(words[at + i] << Uint32(16))
        high = atoms.float_of(words[at + i] & Uint32(0xFFFF0000))
        words[at + i] = atoms.pack_f16x2(low * factor, high * factor)
