"""K and V of pages, from raw bytes in global memory to 16-bit operands in shared memory. Four warps, 32 tokens each.

The way of raw bytes is one of three. NVFP4 ("registers") is loaded by the threads that unpack it, an item ahead. FP8,
for which they have too few registers, and NVFP4 for a few query tokens ("bulk") arrive by bulk copies, in slots of each
warp alone. bf16 ("threads")
goes to its place by copies of the threads; they must not have others under way when they order these before the
products: that waits for all of them.

NVFP4 and FP8 become FP16 exactly, NVFP4 times 2^-14 and with dims 0, 4, 1, 5, 2, 6, 3, 7 of every eight in this order.
Values of V that are not finite are replaced, for a weight of zero would not hide them from rows that do not see them;
`bad` tells of them, and rows that see them are put right by msa_ops.cute.tiled_attention.nonfinite.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from msa_ops.cute.common import async_copy, bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common.asm import asm, select
from msa_ops.cute.tiled_attention.layout import PAGE

LEAST_E4M3_PAIR = 0xDF00DF00
"""-448 twice, in FP16."""
EVICT_NORMAL = 0x1000000000000000
"""Cache policy as createpolicy makes it."""
LARGEST_BF16_PAIR = 0x7F7F7F7F


def _max_f16x2(a: Uint32, b: Uint32) -> Uint32:
    """The number if one operand is NaN."""
    return asm("max.f16x2 $0, $1, $2;", [Uint32], [a, b], pure=True)


def _finite_bf16x2(pair: Uint32) -> Uint32:
    """NaN and infinities replaced by large numbers."""
    return asm(
        "{ .reg .b32 t; max.bf16x2 t, $1, $2; min.bf16x2 $0, t, $3; }",
        [Uint32],
        [pair, Uint32(LARGEST_BF16_PAIR | 0x80008000), Uint32(LARGEST_BF16_PAIR)],
        pure=True,
    )


def unit_at(panels: Int32, rows: int, row: Int32, unit) -> Int32:
    """Address of 8 numbers, 16 bytes, of a row of an operand of `rows` rows."""
    panel = unit // 8 * (rows * 128)
    return panels + panel + row * 128 + (((unit % 8) ^ (row % 8)) * 16)


RAW_WORDS = 20
"""Of a lane for K or V of an item, NVFP4: 4 x 4 words of codes, then 4 pairs of scales."""


def _load_codes(address: Int64, wanted: Int32) -> tuple:
    """Four words that this thread block needs once, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $5, 0;"
        " mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
        " @p ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4]; }",
        [Uint32] * 4,
        [address, wanted],
    )


def _load_scales(address: Int64, wanted: Int32) -> Uint32:
    """Two bytes, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; .reg .b16 low; setp.ne.b32 p, $2, 0; mov.b16 low, 0; @p ld.global.nc.b16 low, [$1];"
        " cvt.u32.u16 $0, low; }",
        [Uint32],
        [address, wanted],
    )


def _place(lane: Int32) -> tuple:
    """Which of eight rows of NVFP4, and which 16 of its 64 bytes, are a lane's.

    Eight lanes that store together have four rows and either the first or the last half of each, so that they fill
    different banks; two lanes read a whole sector.
    """
    return lane // 16 * 4 + lane // 2 % 4, lane // 8 % 2 * 2 + lane % 2


@cute.jit
def load_raw(
    exists: cutlass.Boolean,
    source: Int64,
    scales: Int64,
    token_stride: Int32,
    warp: Int32,
    lane: Int32,
    raw: cute.Tensor,
    first: cutlass.Constexpr,
    after: Uint32,
):
    """NVFP4: asks for a lane's part of a warp's 32 tokens, raw[first] and on; without a page nothing is read.

    Not before `after` is there: the processor waits for loads in the order in which they were asked for, so that a word
    of K that waits behind the loads of V would come as late as these. token_stride is even.
    """
    row, column = _place(lane)
    token = 32 * warp + row
    wanted = select(exists, Int32(1), Int32(0))
    at = source + Int64(token * token_stride + column * 16 + Int32(after & Uint32(token_stride & 1)))
    of_scales = scales + Int64(token * 8 + column * 2)
    step = Int64(8 * token_stride)
    for i in cutlass.range_constexpr(4):
        words = _load_codes(at, wanted)
        for k in cutlass.range_constexpr(4):
            raw[first + 4 * i + k] = words[k]
        raw[first + 16 + i] = _load_scales(of_scales + Int64(64 * i), wanted)
        at = at + step


@cute.jit
def start_raw(
    config: cutlass.Constexpr,
    exists: cutlass.Boolean,
    source: Int64,
    scales: Int64,
    token_stride: Int32,
    slot: Int32,
    barrier: Int32,
    warp: Int32,
    lane: Int32,
):
    """Starts the copies of a warp's 32 tokens to its slot; without a page the barrier only goes on."""
    policy = Int64(EVICT_NORMAL)
    rows = source + Int64(32 * warp * token_stride)
    together = token_stride == config.row_bytes
    if exists:
        if lane == 0:
            bulk_copy.barrier_expect(barrier, Int32(config.slot_bytes))
            if together:
                bulk_copy.bulk_load(slot, rows, Int32(32 * config.row_bytes), barrier, policy)
            if cutlass.const_expr(config.kv_format == "nvfp4"):
                of_warp = scales + Int64(32 * 8) * Int64(warp)
                bulk_copy.bulk_load(slot + 32 * config.row_bytes, of_warp, Int32(32 * 8), barrier, policy)
        if not together:
            cute.arch.sync_warp()
            row = rows + Int64(lane * token_stride)
            bulk_copy.bulk_load(slot + lane * config.row_bytes, row, Int32(config.row_bytes), barrier, policy)
    elif lane == 0:
        bulk_copy.barrier_arrive(barrier)


@cute.jit
def copy_pairs(source: Int64, token_stride: Int32, operand: Int32, warp: Int32, lane: Int32):
    """Starts the copies of a warp's 32 tokens of bf16 to the operand, by the threads themselves."""
    for i in cutlass.range_constexpr(4):
        token = 32 * warp + 8 * i + lane % 8
        row = source + Int64(token * token_stride)
        for part in cutlass.range_constexpr(4):
            unit = lane // 8 + 4 * part
            async_copy.copy_16(unit_at(operand, PAGE, token, unit), row + Int64(16 * unit))


@cute.jit
def unpack(
    config: cutlass.Constexpr,
    values: cutlass.Constexpr,
    raw: cute.Tensor,
    slot: Int32,
    operand: Int32,
    warp: Int32,
    lane: Int32,
    seen: Int32,
) -> Uint32:
    """Turns a warp's 32 tokens into a part of the operand; tokens from `seen` on become zero if they are `values`.

    They come from `raw` (K or V of two) or from `slot`. Returns bits that are not all zero if a value was not finite.
    From `slot`, lanes with the second half of a row take the halves of their 16 bytes the other way round, so that the
    eight lanes that store together fill different banks.
    """
    bad = Uint32(0)
    if cutlass.const_expr(config.kv_format == "nvfp4" and config.way == "registers"):
        first = RAW_WORDS if values else 0
        row, column = _place(lane)
        panel = operand + column // 2 * (PAGE * 128) + (32 * warp + row) * 128
        turn = (column % 2 * 4) ^ row
        for i in cutlass.range_constexpr(4):
            scale = raw[first + 16 + i]
            if cutlass.const_expr(values):
                scale = select(32 * warp + 8 * i + row < seen, scale, Uint32(0))
                bad = bad | (((scale & Uint32(0x7F7F)) + Uint32(0x0101)) & Uint32(0x8080))
            scales = half.e4m3x2_to_f16x2(scale)
            if cutlass.const_expr(values):
                scales = _max_f16x2(scales, Uint32(LEAST_E4M3_PAIR))
            both = [half.both_low(scales), half.both_high(scales)]
            for k in cutlass.range_constexpr(4):
                pairs = [half.mul_f16x2(pair, both[k // 2]) for pair in half.e2m1x8_to_f16x2(raw[first + 4 * i + k])]
                memory.store_shared_128(panel + (turn ^ k) * 16 + 1024 * i, *pairs)
    elif cutlass.const_expr(config.kv_format == "nvfp4"):
        column = lane % 4
        turned = column >= 2
        for i in cutlass.range_constexpr(4):
            of_warp = 8 * i + lane // 4
            token = 32 * warp + of_warp
            words = _turned(turned, memory.load_shared_128(slot + (32 * i + lane) * 16))
            scale = memory.load_shared_16(slot + 2048 + of_warp * 8 + column * 2)
            if cutlass.const_expr(values):
                scale = select(token < seen, scale, Uint32(0))
                bad = bad | (((scale & Uint32(0x7F7F)) + Uint32(0x0101)) & Uint32(0x8080))
            scales = half.e4m3x2_to_f16x2(scale)
            if cutlass.const_expr(values):
                scales = _max_f16x2(scales, Uint32(LEAST_E4M3_PAIR))
            low, high = half.both_low(scales), half.both_high(scales)
            both = [select(turned, high, low), select(turned, low, high)]
            for k in cutlass.range_constexpr(4):
                pairs = [half.mul_f16x2(pair, both[k // 2]) for pair in half.e2m1x8_to_f16x2(words[k])]
                memory.store_shared_128(unit_at(operand, PAGE, token, 4 * column + (k ^ (column // 2 * 2))), *pairs)
    elif cutlass.const_expr(config.kv_format == "fp8"):
        column = lane % 8
        turned = column >= 4
        for i in cutlass.range(8, unroll=4):
            token = 32 * warp + 4 * i + lane // 8
            words = _turned(turned, memory.load_shared_128(slot + (32 * i + lane) * 16))
            if cutlass.const_expr(values):
                words = [select(token < seen, word, Uint32(0)) for word in words]
                for word in words:
                    bad = bad | (((word & Uint32(0x7F7F7F7F)) + Uint32(0x01010101)) & Uint32(0x80808080))
            for k in cutlass.range_constexpr(2):
                pairs = [*half.e4m3x4_to_f16x2(words[2 * k]), *half.e4m3x4_to_f16x2(words[2 * k + 1])]
                if cutlass.const_expr(values):
                    pairs = [_max_f16x2(pair, Uint32(LEAST_E4M3_PAIR)) for pair in pairs]
                memory.store_shared_128(unit_at(operand, PAGE, token, 2 * column + (k ^ (column // 4))), *pairs)
    elif cutlass.const_expr(values):
        for i in cutlass.range_constexpr(16):
            token = 32 * warp + 8 * (i // 4) + lane % 8
            place = unit_at(operand, PAGE, token, lane // 8 + 4 * (i % 4))
            words = [select(token < seen, word, Uint32(0)) for word in memory.load_shared_128(place)]
            for word in words:
                bad = bad | (((word & Uint32(0x7FFF7FFF)) + Uint32(0x00800080)) & Uint32(0x80008000))
            memory.store_shared_128(place, *[_finite_bf16x2(word) for word in words])
    return bad


def _turned(turned: cutlass.Boolean, words: tuple) -> list:
    """The two halves of 16 bytes, exchanged if `turned`."""
    return [select(turned, words[(k + 2) % 4], words[k]) for k in range(4)]


@cute.jit
def clear(operand: Int32, warp: Int32, lane: Int32):
    """Makes a warp's 32 tokens of an operand zero."""
    zero = Uint32(0)
    for i in cutlass.range_constexpr(16):
        memory.store_shared_128(
            unit_at(operand, PAGE, 32 * warp + 8 * (i // 4) + lane % 8, lane // 8 + 4 * (i % 4)), zero, zero, zero, zero
        )
