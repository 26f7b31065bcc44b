"""Pages on their way through shared memory: raw, unpacked as operands in one of two stages, and multiplied.

Items, which are pages or blocks without one, are numbered in the order in which a thread block goes over them. Item n
takes stage n % 2; K and V of the items take the raw slots of each warp, if there are some, in turn.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32
from msa_ops.cute.common import async_copy, bulk_copy, memory
from msa_ops.cute.common import warpgroup_mma as mma
from msa_ops.cute.common.asm import select
from msa_ops.cute.tiled_attention import nonfinite, pages, softmax
from msa_ops.cute.tiled_attention.layout import (
    OPERAND_BYTES,
    PAGE,
    PRODUCERS,
    RAW_BARRIERS_AT,
    RECORD_BYTES,
    RECORDS_AT,
    STAGES,
    TURNS_AT,
)

# Barriers of stage s, at these addresses + 8 s.
K_FULL, K_FREE, V_FULL, V_FREE = 0, 16, 32, 48


# Registers of a thread that brings pages in, and of one that multiplies; with two warpgroups of the latter they are as
# many as the threads of the block start with.
PRODUCER_REGISTERS, MULTIPLIER_REGISTERS = 104, 200


def take_registers(config, multiplies: bool) -> None:
    """For all threads of a warpgroup."""
    if config.groups == 2:
        if multiplies:
            cute.arch.setmaxregister_increase(MULTIPLIER_REGISTERS)
        else:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)


@cute.jit
def init_barriers(config: cutlass.Constexpr, shared: Int32):
    """For one thread; a fence is to follow."""
    for stage in cutlass.range_constexpr(STAGES):
        bulk_copy.barrier_init(shared + K_FULL + 8 * stage, PRODUCERS // 32)
        bulk_copy.barrier_init(shared + V_FULL + 8 * stage, PRODUCERS // 32)
        bulk_copy.barrier_init(shared + K_FREE + 8 * stage, config.tokens)
        bulk_copy.barrier_init(shared + V_FREE + 8 * stage, config.tokens)
    for slot in cutlass.range_constexpr(PRODUCERS // 32 * config.raw_slots):
        bulk_copy.barrier_init(shared + RAW_BARRIERS_AT + 8 * slot, 1)


def takes_turns(config) -> bool:
    return config.groups == 2 and not config.alternate


def init_turns(config, shared: Int32) -> None:
    if takes_turns(config):
        for warpgroup in range(2):
            bulk_copy.barrier_init(shared + TURNS_AT + 8 * warpgroup, 4)


def _raw_slot(config, shared: Int32, warp: Int32, half) -> tuple:
    """Slot and barrier of K (half 2 n) or V (2 n + 1) of item n."""
    number = warp * config.raw_slots + half % config.raw_slots
    return shared + config.raw_at + number * config.slot_bytes, shared + RAW_BARRIERS_AT + 8 * number


def raw_words() -> cute.Tensor:
    """Registers for K and V of an item."""
    return cute.make_rmem_tensor(cute.make_layout((2 * pages.RAW_WORDS,)), Uint32)


@cute.jit
def start_raw(
    config: cutlass.Constexpr,
    values: cutlass.Constexpr,
    shared: Int32,
    warp: Int32,
    lane: Int32,
    item: Int32,
    exists: Boolean,
    source: Int64,
    scales: Int64,
    token_stride: Int32,
):
    """Starts to bring K or V of an item to be filled in later, if that is the way; `exists`: it has a page."""
    if cutlass.const_expr(config.way == "bulk"):
        slot, barrier = _raw_slot(config, shared, warp, 2 * item + values)
        pages.start_raw(config, exists, source, scales, token_stride, slot, barrier, warp, lane)


@cute.jit
def fill_pairs(
    config: cutlass.Constexpr,
    keys: cutlass.Constexpr,
    values: cutlass.Constexpr,
    shared: Int32,
    warp: Int32,
    lane: Int32,
    item: Int32,
    exists: Boolean,
    k: Int64,
    v: Int64,
    token_stride: Int32,
):
    """For bf16, before `fill`: brings K, V or both of a page to its stage. k, v: of the page.

    Both at once take less time, but K alone must not wait for the place of V where the warpgroup that will free it
    waits for this K first.
    """
    stage = item % 2
    free = item // 2 % 2 ^ 1
    if cutlass.const_expr(keys):
        bulk_copy.barrier_wait(shared + K_FREE + 8 * stage, free)
    if cutlass.const_expr(values):
        bulk_copy.barrier_wait(shared + V_FREE + 8 * stage, free)
    if exists:
        if cutlass.const_expr(keys):
            pages.copy_pairs(k, token_stride, shared + config.k_at + stage * OPERAND_BYTES, warp, lane)
        if cutlass.const_expr(values):
            pages.copy_pairs(v, token_stride, shared + config.v_at + stage * OPERAND_BYTES, warp, lane)
    async_copy.commit()
    async_copy.wait(0)


@cute.jit
def fill(
    config: cutlass.Constexpr,
    values: cutlass.Constexpr,
    shared: Int32,
    warp: Int32,
    lane: Int32,
    item: Int32,
    exists: Boolean,
    page: Int32,
    block: Int32,
    mask: Int32,
    seen: Int32,
    raw: cute.Tensor,
    next_exists: Boolean,
    next_source: Int64,
    next_scales: Int64,
    token_stride: Int32,
):
    """Makes K, or V, of an item ready. mask: tokens of the tile that see it; seen: how many tokens one of them sees.

    An item without a page becomes zeros that nobody sees. Afterwards the raw slot, or its words, are free. NVFP4: V of
    this item, or K of the next, whose addresses are given, is asked for while this is unpacked.
    """
    stage = item % 2
    free = item // 2 % 2 ^ 1
    operand = shared + (config.v_at if values else config.k_at) + stage * OPERAND_BYTES
    record = shared + RECORDS_AT + stage * RECORD_BYTES
    half = 2 * item + values
    slot = Int32(0)
    if cutlass.const_expr(config.way == "bulk"):
        slot, raw_barrier = _raw_slot(config, shared, warp, half)
        bulk_copy.barrier_wait(raw_barrier, half // config.raw_slots % 2)
    if cutlass.const_expr(config.way != "threads"):
        bulk_copy.barrier_wait(shared + (V_FREE if values else K_FREE) + 8 * stage, free)
    if cutlass.const_expr(config.way == "registers"):
        mine, other = (pages.RAW_WORDS, 0) if values else (0, pages.RAW_WORDS)
        pages.load_raw(next_exists, next_source, next_scales, token_stride, warp, lane, raw, other, raw[mine])
    bad = Uint32(0)
    if exists:
        bad = pages.unpack(config, values, raw, slot, operand, warp, lane, seen)
    else:
        pages.clear(operand, warp, lane)
    bulk_copy.order_before_copies()
    if cutlass.const_expr(values):
        damaged = cute.arch.vote_any_sync(bad != Uint32(0))
        if lane == 0:
            memory.store_shared_i32(record + 16 + 4 * warp, select(damaged, Int32(1), Int32(0)))
    elif (warp == 0) & (lane == 0):
        shown = select(exists, mask, Int32(0))
        memory.store_shared_128(record, Uint32(block), Uint32(shown), Uint32(page), Uint32(0))
    cute.arch.sync_warp()
    if lane == 0:
        bulk_copy.barrier_arrive(shared + (V_FULL if values else K_FULL) + 8 * stage)


@cute.jit
def wait_for_turn(config: cutlass.Constexpr, shared: Int32, warpgroup: Int32, turn: Int32):
    """Two warpgroups start their products in turns, so that one computes weights while the other's products run."""
    if cutlass.const_expr(takes_turns(config)):
        bulk_copy.barrier_wait(shared + TURNS_AT + 8 * warpgroup, (turn + 1 - warpgroup) % 2)


@cute.jit
def pass_turn(config: cutlass.Constexpr, shared: Int32, warpgroup: Int32, lane: Int32):
    if cutlass.const_expr(takes_turns(config)):
        cute.arch.sync_warp()
        if lane == 0:
            bulk_copy.barrier_arrive(shared + TURNS_AT + 8 * (1 - warpgroup))


@cute.jit
def _seen(record: Int32, slot: Int32, position: Int32, lane: Int32):
    """How many tokens of an item token `slot` of the tile sees, or more, or less than none; and the page."""
    block, mask, page = read_record(record, lane)
    visible = Int32(0)
    if ((mask >> Uint32(slot)) & Uint32(1)) != Uint32(0):
        visible = position + 1 - Int32(block) * PAGE
    return visible, Int32(page)


@cute.jit
def _mend(
    config: cutlass.Constexpr,
    page: Int32,
    visible: Int32,
    v: Int64,
    v_scales: Int64,
    page_stride: Int64,
    token_stride: Int32,
    lane: Int32,
    flags: Uint32,
    sums: cute.Tensor,
):
    if flags != Uint32(0):
        if visible > 0:
            offset = Int64(page) * page_stride
            shown = cutlass.min(visible, PAGE)
            nonfinite.add_nonfinite(config, v + offset, v_scales + offset, token_stride, lane, shown, sums)


@cute.jit
def _weigh(
    config: cutlass.Constexpr,
    scores: cute.Tensor,
    lane: Int32,
    visible: Int32,
    factors: list,
    top: cute.Tensor,
    weight: cute.Tensor,
    shrink: cute.Tensor,
    words: cute.Tensor,
):
    # Also where the token sees nothing: a branch would take so many registers that products wait for each other.
    softmax.hide(scores, lane, visible)
    softmax.weigh(config, scores, factors, top, weight, shrink, words)


def read_record(record: Int32, lane: Int32) -> tuple:
    """Block id, mask of tokens, page. Lane 0 alone reads: it is the lane that gives the stage back with its arrival.

    Whoever follows a thread's own accesses and arrivals only, as racecheck does, then sees that the next record is
    written after this one was read.
    """
    block, mask, page, _ = memory.load_shared_128_if(record, Int32(lane == 0))
    return tuple(cute.arch.shuffle_sync(word, 0) for word in (block, mask, page))


def read_flags(place: Int32, lane: Int32) -> Uint32:
    """The flags of four warps, joined; read as `read_record` reads."""
    a, b, c, d = memory.load_shared_128_if(place, Int32(lane == 0))
    return cute.arch.shuffle_sync(a | b | c | d, 0)


@cute.jit
def multiply(
    config: cutlass.Constexpr,
    shared: Int32,
    lane: Int32,
    done: Int32,
    items: Int32,
    queries: Int64,
    queries_free: Int32,
    factors: list,
    position: Int32,
    slot: Int32,
    v: Int64,
    v_scales: Int64,
    page_stride: Int64,
    token_stride: Int32,
    top: cute.Tensor,
    weight: cute.Tensor,
    sums: cute.Tensor,
):
    """Adds `items` items from `done` on, or every second one, to the sums of the warp's token.

    That is token `slot` of the tile, which stands at `position`.
    queries: descriptor; queries_free: 0, or a barrier at which all lanes arrive when the queries have been read for the
    last time. All, since each has read factors that come and go with the queries; see `read_record`.
    The scores of the next item are computed ahead of the products of this one's weights with V, and turned into
    weights behind them.
    """
    scores = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
    words = cute.make_rmem_tensor(cute.make_layout((mma.SUMS // 2,)), Uint32)
    next_words = cute.make_rmem_tensor(cute.make_layout((mma.SUMS // 2,)), Uint32)
    shrink = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
    shrink.fill(1.0)
    warpgroup = slot // 4
    step = 2 if config.alternate else 1
    if items > 0:
        stage = done % 2
        bulk_copy.barrier_wait(shared + K_FULL + 8 * stage, done // 2 % 2)
        visible, page = _seen(shared + RECORDS_AT + stage * RECORD_BYTES, slot, position, lane)
        k_operand = mma.along_rows(shared + config.k_at + stage * OPERAND_BYTES)
        fresh = mma.finish(mma.start_product(config.mma, queries, k_operand, 64, PAGE))
        for i in cutlass.range_constexpr(mma.SUMS):
            scores[i] = fresh[i]
        cute.arch.sync_warp()
        if lane == 0:
            bulk_copy.barrier_arrive(shared + K_FREE + 8 * stage)
        if (queries_free != 0) & (items == 1):
            bulk_copy.barrier_arrive(queries_free)
        _weigh(config, scores, lane, visible, factors, top, weight, shrink, words)
        softmax.follow(shrink, sums)
        for item in cutlass.range(done, done + (items - 1) * step, step, unroll=1):
            stage = item % 2
            behind = (item + step) % 2
            bulk_copy.barrier_wait(shared + V_FULL + 8 * stage, item // 2 % 2)
            flags = read_flags(shared + RECORDS_AT + stage * RECORD_BYTES + 16, lane)
            bulk_copy.barrier_wait(shared + K_FULL + 8 * behind, (item + step) // 2 % 2)
            next_visible, next_page = _seen(shared + RECORDS_AT + behind * RECORD_BYTES, slot, position, lane)
            v_operand = mma.across_rows(shared + config.v_at + stage * OPERAND_BYTES, PAGE)
            k_operand = mma.along_rows(shared + config.k_at + behind * OPERAND_BYTES)
            wait_for_turn(config, shared, warpgroup, item)
            running = mma.start_product(config.mma, queries, k_operand, 64, PAGE)
            of_item = [words[i] for i in range(mma.SUMS // 2)]
            summing = mma.start_product_of_registers(config.mma, [sums[i] for i in range(mma.SUMS)], of_item, v_operand)
            pass_turn(config, shared, warpgroup, lane)
            fresh = mma.finish(running, newer=1)
            for i in cutlass.range_constexpr(mma.SUMS):
                scores[i] = fresh[i]
            cute.arch.sync_warp()
            if lane == 0:
                bulk_copy.barrier_arrive(shared + K_FREE + 8 * behind)
            if (queries_free != 0) & (item + 2 * step == done + items * step):
                bulk_copy.barrier_arrive(queries_free)
            _weigh(config, scores, lane, next_visible, factors, top, weight, shrink, next_words)
            summed = softmax.finish(summing, of_item, next_words)
            for i in cutlass.range_constexpr(mma.SUMS):
                sums[i] = summed[i]
            cute.arch.sync_warp()
            if lane == 0:
                bulk_copy.barrier_arrive(shared + V_FREE + 8 * stage)
            _mend(config, page, visible, v, v_scales, page_stride, token_stride, lane, flags, sums)
            softmax.follow(shrink, sums)
            for i in cutlass.range_constexpr(mma.SUMS // 2):
                words[i] = next_words[i]
            visible = next_visible
            page = next_page
        item = done + (items - 1) * step
        stage = item % 2
        bulk_copy.barrier_wait(shared + V_FULL + 8 * stage, item // 2 % 2)
        record = shared + RECORDS_AT + stage * RECORD_BYTES
        flags = read_flags(record + 16, lane)
        wait_for_turn(config, shared, warpgroup, item)
        latest = mma.start_product_of_registers(
            config.mma,
            [sums[i] for i in range(mma.SUMS)],
            [words[i] for i in range(mma.SUMS // 2)],
            mma.across_rows(shared + config.v_at + stage * OPERAND_BYTES, PAGE),
        )
        pass_turn(config, shared, warpgroup, lane)
        summed = mma.finish(latest)
        for i in cutlass.range_constexpr(mma.SUMS):
            sums[i] = summed[i]
        cute.arch.sync_warp()
        if lane == 0:
            bulk_copy.barrier_arrive(shared + V_FREE + 8 * stage)
        _mend(config, page, visible, v, v_scales, page_stride, token_stride, lane, flags, sums)
