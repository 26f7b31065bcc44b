"""Rows of q as the first operand of a warpgroup: 16 rows for each of four tokens, one token a warp."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import select
from msa_ops.cute.tiled_attention.pages import unit_at

Q_EXPONENT = 14
"""The largest element of a scaled row of q has this exponent in FP16."""
SMALLEST_FACTOR = 1e-37


@cute.jit
def _load(at: Int64, step: Int64, present: Int32, element_bytes: Int32, words: cute.Tensor):
    """Units of eight elements of q, `step` bytes apart, as words of two BF16 numbers; from unit `present` on zeros.

    element_bytes: 2 for BF16, 1 for E4M3, of which BF16 holds every value.
    """
    if element_bytes == 2:
        for unit in cutlass.range_constexpr(8):
            four = memory.load_global_128_if(at + unit * step, Int32(unit < present))
            for i in cutlass.range_constexpr(4):
                words[4 * unit + i] = four[i]
    else:
        for unit in cutlass.range_constexpr(8):
            two = memory.load_global_64_if(at + unit * step, Int32(unit < present))
            for i in cutlass.range_constexpr(2):
                low, high = half.e4m3x4_to_bf16x2(two[i])
                words[4 * unit + 2 * i] = low
                words[4 * unit + 2 * i + 1] = high


def _largest(words) -> Uint32:
    """Largest magnitude of bf16 numbers, as bits."""
    largest = Uint32(0)
    for word in words:
        largest = cutlass.max(largest, word & Uint32(0x7FFF))
        largest = cutlass.max(largest, (word >> Uint32(16)) & Uint32(0x7FFF))
    return largest


def _scaled(config, words, largest: Uint32, base: Float32) -> tuple:
    """Pairs in the order of the operands for units of a row, four words each, and the row's factor; see `prepared`."""
    flip = select(base < Float32(0.0), Uint32(0x80008000), Uint32(0))
    factor = select(base < Float32(0.0), -base, base)
    if config.mma == "bf16":
        pairs = [word ^ flip for word in words]
    else:
        # For very small rows the scale ends at 2^126; for a row with infinities, at 2^-114.
        exponent = Q_EXPONENT + 127 - cutlass.max(Int32(largest >> Uint32(7)), Int32(15))
        scale = half.float_of_bits((exponent + 127) << 23)
        factor = factor * half.float_of_bits((127 - exponent) << 23)
        if config.kv_format == "nvfp4":
            factor = factor * Float32(2.0**half.E2M1_SHIFT)
        floats = []
        for word in words:
            floats += [
                half.float_of_bits(Int32(word << Uint32(16))) * scale,
                half.float_of_bits(Int32(word & Uint32(0xFFFF0000))) * scale,
            ]
        units = range(len(words) // 4)
        if config.kv_format == "nvfp4":
            pairs = [half.pack_f16x2(floats[8 * u + j], floats[8 * u + j + 4]) for u in units for j in range(4)]
        else:
            pairs = [half.pack_f16x2(floats[2 * j], floats[2 * j + 1]) for j in range(len(words))]
        pairs = [pair ^ flip for pair in pairs]
    # Not zero, by which the score of a hidden token, minus infinity, could not be multiplied.
    return pairs, select(factor < Float32(SMALLEST_FACTOR), Float32(SMALLEST_FACTOR), factor)


def prepared(
    config, source: Int64, head_stride: Int64, element_bytes: Int32, rows: Int32, lane: Int32, base: Float32
) -> tuple:
    """Half of a row of q for each lane, 32 pairs in the order of the operands, and the row's factor.

    Lane 16 h + r takes half h of row r of a token; rows from `rows` on are zeros. factor x product = base-2 logarithm
    of a weight; `base` is that factor for unscaled q. The factor is positive, its sign goes to q. For FP16 a row is
    scaled by a power of two that gives its largest element the exponent Q_EXPONENT.
    """
    row = lane % 16
    at = source + (Int64(row) * head_stride + Int64(lane // 16 * 64)) * Int64(element_bytes)
    loaded = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
    _load(at, Int64(8 * element_bytes), select(row < rows, Int32(8), Int32(0)), element_bytes, loaded)
    words = [loaded[i] for i in range(32)]
    largest = _largest(words)
    largest = cutlass.max(largest, cute.arch.shuffle_sync_bfly(largest, offset=16))
    return _scaled(config, words, largest, base)


@cute.jit
def bring_queries(
    config: cutlass.Constexpr,
    source: Int64,
    head_stride: Int64,
    element_bytes: Int32,
    rows: Int32,
    operand: Int32,
    factors: Int32,
    warp: Int32,
    lane: Int32,
    base: Float32,
):
    """A warp writes the rows of q of its token, the warp's part of the operand of a warpgroup, and their factors."""
    row = lane % 16
    pairs, factor = prepared(config, source, head_stride, element_bytes, rows, lane, base)
    for unit in cutlass.range_constexpr(8):
        at = unit_at(operand, 64, 16 * warp + row, 8 * (lane // 16) + unit)
        memory.store_shared_128(at, *pairs[4 * unit : 4 * unit + 4])
    if lane < 16:
        memory.store_shared_f32(factors + (16 * warp + row) * 4, factor)


@cute.jit
def store_queries(
    config: cutlass.Constexpr,
    source: Int64,
    head_stride: Int64,
    element_bytes: cutlass.Constexpr,
    rows: Int32,
    target: Int64,
    factors: Int64,
    lane: Int32,
    base: Float32,
):
    """The same to global memory: an operand of 16 rows, 4,096 bytes, two panels; and 16 factors.

    Half a warp takes a row at a time, so that whole lines are read and written. element_bytes: as of `_load`.
    """
    unit = lane % 16
    row_bytes = head_stride * element_bytes
    at = source + Int64(8 * element_bytes * unit)
    loaded = []
    for i in cutlass.range_constexpr(8):
        row = 2 * i + lane // 16
        if cutlass.const_expr(element_bytes == 2):
            loaded.append(memory.load_global_128_if(at + Int64(row) * row_bytes, Int32(row < rows)))
        else:
            loaded.append(memory.load_global_64_if(at + Int64(row) * row_bytes, Int32(row < rows)))
    for i in cutlass.range_constexpr(8):
        row = 2 * i + lane // 16
        of_row = loaded[i]
        if cutlass.const_expr(element_bytes == 1):
            of_row = [pair for word in loaded[i] for pair in half.e4m3x4_to_bf16x2(word)]
        largest = _largest(of_row)
        for offset in cutlass.range_constexpr(4):
            largest = cutlass.max(largest, cute.arch.shuffle_sync_bfly(largest, offset=1 << offset))
        pairs, factor = _scaled(config, of_row, largest, base)
        memory.store_global_128(target + Int64(unit_at(Int32(0), 16, row, unit)), *pairs)
        if unit == 0:
            memory.store_global_f32(factors + Int64(4 * row), factor)
