"""Operands of the matrix products: queries in shared memory, K and V from raw bytes to registers.

Lane 4 r + c of a warp. In the products with K, the 16 columns of a step are 16 of the 128 dims, so that a lane's share
of a token is the contiguous dims 32 c to 32 c + 31. In the products with V, column r of the n-th of 16 products is dim
16 r + n, so that its share is dims 16 r to 16 r + 15, one group of NVFP4.
Token 8 t + i of a chunk is column i ^ (i / 2 % 2) of tile t: lanes then read rows of V that share fewer banks.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common.asm import select
from msa_ops.cute.sparse_attention.sm90_configs import BF16, E4M3, Config

Q_EXPONENT = 14
"""The largest element of a scaled row of q has this exponent in FP16."""
SMALLEST_FACTOR = 1e-37


@cute.jit
def load_queries(
    config: cutlass.Constexpr,
    words: cute.Tensor,
    own: cute.Tensor,
    rows: Int64,
    head_stride: Int64,
    group: Int32,
    lane: Int32,
    portion: Int32,
    dtype: Int32,
):
    """Starts to read rows r and r + 8 of q, which lie head_stride bytes apart, as they are stored.

    Of the lane's 32 dims of each, `own` gets 8 from dim 8 x portion on, in 4 words (of E4M3 only the first two are
    used); `words`, unless it is None, all 32, if they are needed to scale the row. Rows from `group` on do not exist
    and are zero.
    """
    for i in cutlass.range_constexpr(2):
        row = lane // 4 + 8 * i
        exists = Int32(row < group)
        place = rows + Int64(row) * head_stride
        if dtype == E4M3:
            source = place + Int64(lane % 4 * 32 + 8 * portion)
            found = memory.load_global_64_if(source, exists)
            for k in cutlass.range_constexpr(2):
                own[4 * i + k] = found[k]
        else:
            source = place + Int64(lane % 4 * 64)
            found = memory.load_global_128_if(source + Int64(16 * portion), exists)
            for k in cutlass.range_constexpr(4):
                own[4 * i + k] = found[k]
            if cutlass.const_expr(config.mma == "f16" and words is not None):
                for j in cutlass.range_constexpr(4):
                    found = memory.load_global_128_if(source + Int64(16 * j), exists)
                    for k in cutlass.range_constexpr(4):
                        words[16 * i + 4 * j + k] = found[k]


@cute.jit
def store_largest(own: cute.Tensor, target: Int32, portion: Int32, lane: Int32):
    """Puts the largest magnitude of each row's portion of BF16 where `prepare_queries` finds it behind a barrier.

    So no warp needs more of the rows than its portion. target: 16 rows of 4 words, aligned to 16 bytes.
    """
    for i in cutlass.range_constexpr(2):
        largest = _largest_of(own, 4 * i, 4)
        if lane % 4 == 0:
            memory.store_shared_i32(target + (lane // 4 + 8 * i) * 16 + 4 * portion, largest)


@cute.jit
def prepare_queries(
    config: cutlass.Constexpr,
    words: cute.Tensor,
    own: cute.Tensor,
    queries: Int32,
    factors: Int32,
    factor_stride: cutlass.Constexpr,
    portion: Int32,
    lane: Int32,
    base: Float32,
    dtype: Int32,
    largest=None,
):
    """Puts two steps of the first operand of the products with K into shared memory, and each row's factor.

    The dims of a step are those that the keys' steps unpack. `queries`: where the operand of step 0 begins. factors:
    where the factor of row 0 is written, each factor_stride bytes from the one before.
    factor x product = base-2 logarithm of a weight; `base` is that factor for unscaled q. The factor is positive: its
    sign goes to q. For FP16 a row of BF16 is scaled by a power of two that gives its largest element the exponent
    Q_EXPONENT; FP16 and E4M3 are exact as they are. largest: where `store_largest` of all portions put it, if `words`
    is None.
    """
    flip = select(base < Float32(0.0), Uint32(0x80008000), Uint32(0))
    magnitude = select(base < Float32(0.0), -base, base)
    parts = cute.make_rmem_tensor(cute.make_layout((8,)), Uint32)
    for i in cutlass.range_constexpr(2):
        first = 4 * i
        factor = magnitude
        if cutlass.const_expr(config.mma == "bf16"):
            if dtype == E4M3:
                pairs = half.e4m3x4_to_bf16x2(own[first]) + half.e4m3x4_to_bf16x2(own[first + 1])
                for j in cutlass.range_constexpr(4):
                    own[first + j] = pairs[j]
        else:
            if dtype == BF16:
                if cutlass.const_expr(words is None):
                    four = memory.load_shared_128(largest + (lane // 4 + 8 * i) * 16)
                    low = cutlass.max(Int32(four[0]), Int32(four[1]))
                    scale, exponent = _scale_for(cutlass.max(low, cutlass.max(Int32(four[2]), Int32(four[3]))))
                else:
                    scale, exponent = _scale_for(_largest_of(words, 16 * i, 16))
                factor = factor * half.float_of_bits((127 - exponent) << 23)
                for j in cutlass.range_constexpr(4):
                    word = own[first + j]
                    own[first + j] = half.pack_f16x2(
                        half.float_of_bits(Int32(word << Uint32(16))) * scale,
                        half.float_of_bits(Int32(word & Uint32(0xFFFF0000))) * scale,
                    )
            elif dtype == E4M3:
                pairs = half.e4m3x4_to_f16x2(own[first]) + half.e4m3x4_to_f16x2(own[first + 1])
                for j in cutlass.range_constexpr(4):
                    own[first + j] = pairs[j]
            if cutlass.const_expr(config.kv_format == "nvfp4"):
                factor = factor * Float32(2.0**half.E2M1_SHIFT)
        four = [own[first + j] for j in range(4)]
        if cutlass.const_expr(config.kv_format == "nvfp4"):
            # (0, 4), (1, 5), (2, 6), (3, 7) of eight dims, the order in which codes leave their word.
            four = [half.prmt(four[j // 2], four[2 + j // 2], 0x7632 if j % 2 else 0x5410) for j in range(4)]
        for j in cutlass.range_constexpr(4):
            parts[2 * j + i] = four[j] ^ flip
        # Not zero, by which the score of a hidden token, minus infinity, could not be multiplied.
        factor = select(factor < Float32(SMALLEST_FACTOR), Float32(SMALLEST_FACTOR), factor)
        if Boolean(portion == 0) & Boolean(lane % 4 == 0):
            memory.store_shared_f32(factors + (lane // 4 + 8 * i) * factor_stride, factor)
    for step in cutlass.range_constexpr(2):
        memory.store_shared_128(
            queries + (32 * (2 * portion + step) + lane) * 16, *[parts[4 * step + i] for i in range(4)]
        )


@cute.jit
def _largest_of(words: cute.Tensor, first: cutlass.Constexpr, count: cutlass.Constexpr):
    """The largest magnitude of BF16 among words of the four lanes of a row."""
    both = words[first] & Uint32(0x7FFF7FFF)
    for j in cutlass.range_constexpr(1, count):
        both = half.max_u16x2(both, words[first + j] & Uint32(0x7FFF7FFF))
    largest = cutlass.max(Int32(both & Uint32(0xFFFF)), Int32(both >> Uint32(16)))
    for offset in cutlass.range_constexpr(1, 3):
        largest = cutlass.max(largest, cute.arch.shuffle_sync_bfly(largest, offset=offset))
    return largest


@cute.jit
def _scale_for(largest: Int32):
    """The power of two by which a row of BF16 is multiplied, and its exponent."""
    # For very small rows the scale ends at 2^126; for a row with infinities, at 2^-114.
    exponent = Q_EXPONENT + 127 - cutlass.max(largest >> 7, Int32(15))
    return half.float_of_bits((exponent + 127) << 23), exponent


def query_step(queries: Int32, step: int) -> tuple:
    """`queries`: address of the lane's part of step 0."""
    return memory.load_shared_128(queries + 512 * step)


def k_steps(config: Config, at: Int32, lane: Int32, tile: int, code_factors: tuple):
    """Generates, for 8 steps, the two registers of a tile of 8 tokens. code_factors: of `half_pairs`, for NVFP4."""
    column = lane % 4
    token = (lane // 4) ^ ((lane // 8) & 1)
    row = at + token * config.token_stride + column * (config.row_bytes // 4)
    scale_row = at + token * config.scale_bytes + column * 2
    words = []
    for i in range(config.row_bytes // 64):
        words += memory.load_shared_128(row + (8 * tile * config.token_stride + 16 * i))
    if config.kv_format == "nvfp4":
        scale = memory.load_shared_16(scale_row + (config.k_scale_at + 8 * tile * config.scale_bytes))
        scales = half.e4m3x2_to_f16x2(scale)
        both = [half.both_low(scales), half.both_high(scales)]
        for i, word in enumerate(words):
            pairs = [
                half.mul_f16x2(pair, both[i // 2]) for pair in half.e2m1x8_to_f16x2_by_products(word, *code_factors)
            ]
            yield pairs[:2]
            yield pairs[2:]
    elif config.kv_format == "fp8":
        for word in words:
            yield list(half.e4m3x4_to_f16x2(word))
    else:
        for step in range(8):
            yield words[2 * step : 2 * step + 2]


def v_products(config: Config, at: Int32, lane: Int32, step: int, code_factors: tuple):
    """Generates, for 16 products with the weights of 16 tokens, the two registers."""
    group = lane // 4
    column = lane % 4
    swap = column & 1
    rows, scales = [], []
    for part in range(2):
        for i in range(2):
            token = (2 * column + i) ^ swap
            first = 16 * step + 8 * part
            row = at + token * config.token_stride + group * (config.row_bytes // 8)
            row = row + (config.v_at + first * config.token_stride)
            if config.kv_format == "nvfp4":
                rows.append(memory.load_shared_64(row))
                scale_row = at + token * config.scale_bytes + group
                scales.append(memory.load_shared_8(scale_row + (config.v_scale_at + first * config.scale_bytes)))
            elif config.kv_format == "fp8":
                rows.append(memory.load_shared_128(row))
            else:
                rows.append(memory.load_shared_128(row) + memory.load_shared_128(row + 16))
    if config.kv_format == "nvfp4":
        scales = [half.e4m3x2_to_f16x2(half.prmt(scales[2 * i], scales[2 * i + 1], 0x0040)) for i in range(2)]
    for word in range(len(rows[0])):
        for selector in (0x5140, 0x7362) if config.kv_format == "fp8" else (0x5410, 0x7632):
            merged = [half.prmt(rows[2 * i][word], rows[2 * i + 1][word], selector) for i in range(2)]
            if config.kv_format == "nvfp4":
                unpacked = [
                    [
                        half.mul_f16x2(pair, scales[i])
                        for pair in half.e2m1x8_to_f16x2_by_products(merged[i], *code_factors)
                    ]
                    for i in range(2)
                ]
            elif config.kv_format == "fp8":
                unpacked = [half.e4m3x4_to_f16x2(both) for both in merged]
            else:
                unpacked = [[both] for both in merged]
            yield from zip(*unpacked, strict=True)


@cute.jit
def clear_hidden_values(config: cutlass.Constexpr, at: Int32, lane: Int32, visible: Int32):
    """Makes the values of tokens from `visible` on zero: a weight of zero would not hide NaN. For one warp."""
    zero = Uint32(0)
    if cutlass.const_expr(config.kv_format == "nvfp4"):
        for first in cutlass.range_constexpr(0, config.chunk, 32):
            token = first + lane
            if cutlass.Boolean(token >= visible) & cutlass.Boolean(token < config.chunk):
                memory.store_shared_64(at + (config.v_scale_at) + token * 8, zero, zero)
    else:
        lanes = 32 // config.chunk  # of a token
        share = config.row_bytes // lanes
        token = lane // lanes
        if token >= visible:
            place = at + config.v_at + token * config.token_stride + lane % lanes * share
            for i in cutlass.range_constexpr(0, share, 16):
                memory.store_shared_128(place + i, zero, zero, zero, zero)
    bulk_copy.order_before_copies()
    cute.arch.sync_warp()
