"""Sums of a warp's 16 rows to memory: as results, or as one of several parts of them."""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import select

INFINITY = float("inf")


def log_sum(most: Float32, total: Float32) -> Float32:
    value = (half.log2(total) + most) * Float32(math.log(2.0))
    return select(total == Float32(0.0), Float32(-INFINITY), value)


def factor_of(scale: Float32, total: Float32) -> Float32:
    """By what a row's sums are multiplied; 0 for a row that sees nothing."""
    return select(total == Float32(0.0), Float32(0.0), scale / total)


@cute.jit
def whole_weight(weight: cute.Tensor):
    """Adds up what the four lanes of a row hold."""
    for i in cutlass.range_constexpr(2):
        for offset in cutlass.range_constexpr(1, 3):
            weight[i] = weight[i] + cute.arch.shuffle_sync_bfly(weight[i], offset=offset)


def natural_pair(config, sums: cute.Tensor, first: int, factor: Float32, column: Int32) -> tuple:
    """Two neighbouring dims of eight, as a word, and the first of them; sums `first` and the next are a lane's."""
    pair = [sums[first + k] * factor for k in range(2)]
    if config.kv_format != "nvfp4":
        return half.pack_bf16x2(*pair), 2 * column
    # Dims c and c + 4: an even lane gives the second for its neighbour's first.
    odd = column % 2 == 1
    got = cute.arch.shuffle_sync_bfly(select(odd, pair[0], pair[1]), offset=1)
    word = half.pack_bf16x2(select(odd, got, pair[0]), select(odd, pair[1], got))
    return word, select(odd, column + 3, column)


@cute.jit
def write_rows(
    config: cutlass.Constexpr,
    lane: Int32,
    sums: cute.Tensor,
    top: cute.Tensor,
    weight: cute.Tensor,
    scale: Float32,
    out: Int64,
    lse: Int64,
    rows: Int32,
):
    """bf16 rows and their lse. out, lse: of row 0."""
    column = lane % 4
    for i in cutlass.range_constexpr(2):
        row = lane // 4 + 8 * i
        factor = factor_of(scale, weight[i])
        pairs = [natural_pair(config, sums, 4 * j + 2 * i, factor, column) for j in range(16)]
        if row < rows:
            for j in cutlass.range_constexpr(16):
                word, dim = pairs[j]
                memory.store_global_32(out + Int64(row * 256 + dim * 2) + Int64(16 * j), word)
        if Boolean(column == 0) & Boolean(row < rows):
            memory.store_global_f32(lse + Int64(4 * row), log_sum(top[i], weight[i]))


@cute.jit
def write_part(
    config: cutlass.Constexpr,
    lane: Int32,
    sums: cute.Tensor,
    top: cute.Tensor,
    weight: cute.Tensor,
    out: Int64,
    lse: Int64,
    rows: Int32,
):
    """Normalised rows in the type of the products, without v_scale, and base-2 logarithms of their weight, for a merge.

    out: address of 16 rows of 256 bytes, lse: of 16 numbers. In a row, bytes 64 u + 16 c to + 15 are what lane c of 4
    holds of columns 32 u to 32 u + 31: that lane writes them at once, and a merge may read them in any order.
    """
    for i in cutlass.range_constexpr(2):
        row = lane // 4 + 8 * i
        if row < rows:
            factor = factor_of(Float32(1.0), weight[i])
            for u in cutlass.range_constexpr(4):
                words = []
                for j in cutlass.range_constexpr(4 * u, 4 * u + 4):
                    pair = [sums[4 * j + 2 * i + k] * factor for k in range(2)]
                    pack = half.pack_bf16x2 if config.mma == "bf16" else half.pack_f16x2
                    words.append(pack(pair[0], pair[1]))
                memory.store_global_128(out + Int64(row * 256 + 64 * u + lane % 4 * 16), *words)
            if lane % 4 == 0:
                value = select(weight[i] == Float32(0.0), Float32(-INFINITY), half.log2(weight[i]) + top[i])
                memory.store_global_f32(lse + Int64(row) * 4, value)
