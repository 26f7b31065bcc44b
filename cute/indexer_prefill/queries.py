"""Query rows as the first operand of the matrix products: 64 rows a warpgroup, in registers.

Thread 4 g + t of warp w holds rows 16 w + g and 16 w + g + 8 and of each step the dims that the keys have in the same
places (keys.py). With fp16 keys, queries are fp16 too. fp16 and E4M3 queries are exact as they are. A bf16 query is
multiplied by the power of two that brings its largest element to between 2^15 and 2^16: elements down to 2^-32 of the
largest are then exact, and what smaller ones lose is at most 2^-40 of the largest, far below the rounding of an fp32
sum of products. The factor of a row does not change which of its scores is larger.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common import half_pairs, streaming
from msa_ops.cute.common.asm import asm
from msa_ops.cute.indexer_prefill import keys

BF16, FP16, FP8 = range(3)
"""Numbers of the dtypes of queries."""


def max_u16x2(a: Uint32, b: Uint32) -> Uint32:
    return asm("max.u16x2 $0, $1, $2;", [Uint32], [a, b], pure=True)


def load_b32(address: Int64) -> Uint32:
    return asm("ld.global.nc.b32 $0, [$1];", [Uint32], [address])


@cute.jit
def load_row(index_format: cutlass.Constexpr, address: Int64, dtype: Int32, t: Int32, words):
    """A lane's 16 registers of the row at `address` as they are stored, two E4M3 bytes each; zeros if that is 0.

    Register 2 s + i is the lane's part of unit 2 (s % 4) + i of half s // 4: dims 2 t and 2 t + 1 of its eight.
    Nothing waits for the loads here.
    """
    for i in cutlass.range_constexpr(16):
        words[i] = Uint32(0)
    if address != Int64(0):
        if dtype == FP8:
            for i in cutlass.range_constexpr(16):
                dim = keys.first_dim(index_format, i // 8, i % 8)
                words[i] = streaming.load_u16(address + Int64(2 * t + dim))
        else:
            for i in cutlass.range_constexpr(16):
                dim = keys.first_dim(index_format, i // 8, i % 8)
                words[i] = load_b32(address + Int64(4 * t + 2 * dim))


def f16_to_bf16(pair: Uint32) -> Uint32:
    """Exact for values of E4M3."""
    return asm(
        "{ .reg .b16 low, high; .reg .f32 a, b; mov.b32 {low, high}, $1; cvt.f32.f16 a, low; cvt.f32.f16 b, high;"
        " cvt.rn.bf16x2.f32 $0, b, a; }",
        [Uint32],
        [pair],
        pure=True,
    )


@cute.jit
def to_half(words) -> Uint32:
    """16 registers of bf16, of a row that four lanes share, to fp16. Gives the biased exponent of the row's factor."""
    largest = Uint32(0)
    for i in cutlass.range_constexpr(16):
        largest = max_u16x2(largest, words[i] & Uint32(0x7FFF7FFF))
    for step in cutlass.range_constexpr(2):
        largest = max_u16x2(largest, cute.arch.shuffle_sync_bfly(largest, 1 << step))
    low, high = largest & Uint32(0xFFFF), largest >> Uint32(16)
    exponent = Int32((high if high > low else low) >> Uint32(7))  # 255 if there is an infinity or a NaN
    exponent = Int32(254) if exponent > 254 else exponent
    biased = Int32(127 + 15 + 127) - exponent  # of 2^(15 - (exponent - 127))
    biased = Int32(253) if biased > 253 else biased
    factor = half_pairs.float_of_bits(biased << 23)
    for i in cutlass.range_constexpr(16):
        low_half = half_pairs.float_of_bits(Int32(words[i] << Uint32(16)))
        high_half = half_pairs.float_of_bits(Int32(words[i] & Uint32(0xFFFF0000)))
        words[i] = half_pairs.pack_f16x2(low_half * factor, high_half * factor)
    return Uint32(biased)


@cute.jit
def as_codes_lie(words, lane: Int32):
    """From dims (2 t, 2 t + 1) of each eight to (t, t + 4), the order in which E2M1 codes leave their word."""
    t = lane % 4
    source = lane - t + t // 2
    for i in cutlass.range_constexpr(16):
        low = cute.arch.shuffle_sync(words[i], source)
        high = cute.arch.shuffle_sync(words[i], source + 2)
        even = half_pairs.prmt(low, high, 0x5410)
        odd = half_pairs.prmt(low, high, 0x7632)
        words[i] = odd if t % 2 == 1 else even


@cute.jit
def convert(index_format: cutlass.Constexpr, dtype: Int32, lane: Int32, words) -> Float32:
    """Turns the 16 registers that `load_row` gave into the operand, and gives what its sums must be multiplied by."""
    if dtype == FP8:
        for i in cutlass.range_constexpr(16):
            pair = half_pairs.e4m3x2_to_f16x2(words[i])
            words[i] = f16_to_bf16(pair) if cutlass.const_expr(index_format == "bf16") else pair
    biased = Uint32(127)
    if cutlass.const_expr(index_format != "bf16"):
        if dtype == BF16:
            biased = to_half(words)
    if cutlass.const_expr(index_format == "nvfp4"):
        as_codes_lie(words, lane)
    shift = half_pairs.E2M1_SHIFT if index_format == "nvfp4" else 0
    return half_pairs.float_of_bits((Int32(254 + shift) - Int32(biased)) << 23)
