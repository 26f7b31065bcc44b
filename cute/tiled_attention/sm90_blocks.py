"""Fourth step of sparse_attention block by block: every block of the cache with all query tokens that chose it.

Thread blocks take items in turn: a page and up to 32 pairs. Four warps turn the page into 16-bit operands;
they also bring the rows of q of 8 pairs at a time, by bulk copies. Two warpgroups multiply, each 4 pairs with 16
query heads, a warp a pair. A pair's softmax is over this page alone, so nothing is carried from step to step; its
normalised result goes to memory, to be merged with those of the token's other pairs.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import async_copy, bulk_copy, memory
from msa_ops.cute.common import warpgroup_mma as mma
from msa_ops.cute.common.asm import select
from msa_ops.cute.tiled_attention import divide, nonfinite, pages, results, softmax, stages
from msa_ops.cute.tiled_attention.by_block_layout import (
    FACTOR_BYTES,
    FACTORS_AT,
    ITEM_BYTES,
    K_AT,
    QUERIES_AT,
    QUERY_ROW_BYTES,
    RAW_AT,
    RAW_BARRIERS_AT,
    RECORDS_AT,
    STEP_FACTOR_BYTES,
    STEP_QUERY_BYTES,
    TILE,
    V_AT,
    Config,
    shared_memory,
)
from msa_ops.cute.tiled_attention.layout import (
    OPERAND_BYTES,
    PAGE,
    PART_BYTES,
    PART_LSE_BYTES,
    PRODUCERS,
    QUERY_BYTES,
    STAGES,
)
from msa_ops.cute.tiled_attention.sm90_blocks_configs import ARGUMENTS

# Barriers of stage s, at these addresses + 8 s.
K_FULL, K_FREE, V_FULL, V_FREE, Q_FULL, Q_FREE = 0, 16, 32, 48, 64, 80
PANEL_BYTES = QUERY_ROW_BYTES // 2


class Blocks:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        kv_cache: cute.Pointer,
        counters: cute.Pointer,
        items: cute.Pointer,
        listed: cute.Pointer,
        queries: cute.Pointer,
        factors: cute.Pointer,
        parts: cute.Pointer,
        logs: cute.Pointer,
        page_stride: Int64,
        num_kv_heads: Int32,
        head_begin: Int32,
        group: Int32,
        topk: Int32,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        blocks: Int32,
        stream: cuda.CUstream,
    ):
        """What these are: msa_ops.cute.tiled_attention.by_block_layout; of the cache: layout. blocks: thread blocks."""
        self.kernel(
            kv_cache,
            counters,
            items,
            listed,
            queries,
            factors,
            parts,
            logs,
            page_stride,
            num_kv_heads,
            head_begin,
            group,
            topk,
            token_stride,
            head_stride,
            scale_head_stride,
            k_scale_offset,
            v_offset,
            v_scale_offset,
            blocks,
        ).launch(
            grid=(blocks, 1, 1),
            block=(3 * 128, 1, 1),
            smem=shared_memory(self.config),
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        kv_cache: cute.Pointer,
        counters: cute.Pointer,
        items: cute.Pointer,
        listed: cute.Pointer,
        queries: cute.Pointer,
        factors: cute.Pointer,
        parts: cute.Pointer,
        logs: cute.Pointer,
        page_stride: Int64,
        num_kv_heads: Int32,
        head_begin: Int32,
        group: Int32,
        topk: Int32,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        blocks: Int32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        shared = cute.arch.get_dyn_smem(Uint8, alignment=1024).toint()
        if (warp == 0) & (lane == 0):
            for stage in cutlass.range_constexpr(STAGES):
                bulk_copy.barrier_init(shared + K_FULL + 8 * stage, PRODUCERS // 32)
                bulk_copy.barrier_init(shared + V_FULL + 8 * stage, PRODUCERS // 32)
                bulk_copy.barrier_init(shared + Q_FULL + 8 * stage, 1)
                bulk_copy.barrier_init(shared + K_FREE + 8 * stage, 8)
                bulk_copy.barrier_init(shared + V_FREE + 8 * stage, 8)
                bulk_copy.barrier_init(shared + Q_FREE + 8 * stage, 32 * TILE)  # all lanes, as all read factors
            for slot in cutlass.range_constexpr(2 * (PRODUCERS // 32)):
                bulk_copy.barrier_init(shared + RAW_BARRIERS_AT + 8 * slot, 1)
            stages.init_turns(self.config, shared)
            bulk_copy.barrier_init_fence()
        number = memory.load_global_i32(counters.toint())
        mine = cutlass.max(number - block + blocks - 1, 0) // blocks
        cute.arch.barrier()
        k = kv_cache.toint() + Int64(head_begin) * Int64(head_stride)
        v = k + Int64(v_offset)
        scales = kv_cache.toint() + Int64(head_begin) * Int64(scale_head_stride)
        k_scales = scales + Int64(k_scale_offset)
        v_scales = scales + Int64(v_scale_offset)
        if warp < PRODUCERS // 32:
            stages.take_registers(self.config, False)
            self.produce(
                shared,
                warp,
                lane,
                mine,
                block,
                blocks,
                items.toint(),
                listed.toint(),
                queries.toint(),
                factors.toint(),
                topk,
                k,
                v,
                k_scales,
                v_scales,
                page_stride,
                token_stride,
                head_stride,
                scale_head_stride,
            )
        else:
            stages.take_registers(self.config, True)
            self.consume(
                shared,
                warp - PRODUCERS // 32,
                lane,
                mine,
                block,
                blocks,
                items.toint(),
                listed.toint(),
                parts.toint(),
                logs.toint(),
                topk,
                num_kv_heads,
                group,
                v,
                v_scales,
                page_stride,
                token_stride,
                head_stride,
                scale_head_stride,
            )

    @cute.jit
    def produce(
        self,
        shared: Int32,
        warp: Int32,
        lane: Int32,
        mine: Int32,
        block: Int32,
        blocks: Int32,
        items: Int64,
        listed: Int64,
        queries: Int64,
        factors: Int64,
        topk: Int32,
        k: Int64,
        v: Int64,
        k_scales: Int64,
        v_scales: Int64,
        page_stride: Int64,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
    ):
        """One of the four warps that bring pages in; 32 tokens of each are its."""
        config = self.config
        raw = shared + RAW_AT + warp * (2 * config.slot_bytes)
        raw_barriers = shared + RAW_BARRIERS_AT + warp * 16
        at = items + Int64(block) * ITEM_BYTES
        step_of_items = Int64(blocks) * ITEM_BYTES
        record = memory.load_global_128_if(at, Int32(mine > 0))
        page, head = Int32(record[0]), Int32(record[1])
        record = memory.load_global_128_if(at + Int64(16), Int32(mine > 0))
        start, count, written = Int32(record[0]), Int32(record[1]), Int32(record[2])
        step = Int32(0)
        rows_of_pairs = divide.reciprocal(topk)
        raw_words = stages.raw_words()
        if cutlass.const_expr(config.way == "registers"):
            pages.load_raw(
                mine > 0,
                k + Int64(page) * page_stride + Int64(head) * Int64(head_stride),
                k_scales + Int64(page) * page_stride + Int64(head) * Int64(scale_head_stride),
                token_stride,
                warp,
                lane,
                raw_words,
                0,
                Uint32(0),
            )
        if cutlass.const_expr(config.way == "bulk"):
            for values in cutlass.range_constexpr(2):
                pages.start_raw(
                    config,
                    mine > 0,
                    (v if values else k) + Int64(page) * page_stride + Int64(head) * Int64(head_stride),
                    Int64(0),
                    token_stride,
                    raw + values * config.slot_bytes,
                    raw_barriers + 8 * values,
                    warp,
                    lane,
                )
        for item in cutlass.range(mine, unroll=1):
            stage = item % 2
            free = item // 2 % 2 ^ 1
            at = at + step_of_items
            more = item + 1 < mine
            record = memory.load_global_128_if(at, Int32(more))
            next_page, next_head = Int32(record[0]), Int32(record[1])
            record = memory.load_global_128_if(at + Int64(16), Int32(more))
            next_start, next_count, next_written = Int32(record[0]), Int32(record[1]), Int32(record[2])
            pair = memory.load_global_i32(listed + Int64(start + cutlass.min(lane, count - 1)) * 4)
            if cutlass.const_expr(config.way == "threads"):
                bulk_copy.barrier_wait(shared + K_FREE + 8 * stage, free)
                bulk_copy.barrier_wait(shared + V_FREE + 8 * stage, free)
                from_page = Int64(page) * page_stride + Int64(head) * Int64(head_stride)
                pages.copy_pairs(k + from_page, token_stride, shared + K_AT + stage * OPERAND_BYTES, warp, lane)
                pages.copy_pairs(v + from_page, token_stride, shared + V_AT + stage * OPERAND_BYTES, warp, lane)
                async_copy.commit()
                async_copy.wait(0)
            for values in cutlass.range_constexpr(2):
                operand = shared + (V_AT if values else K_AT) + stage * OPERAND_BYTES
                slot = raw + values * config.slot_bytes
                if cutlass.const_expr(config.way == "bulk"):
                    bulk_copy.barrier_wait(raw_barriers + 8 * values, item % 2)
                if cutlass.const_expr(config.way != "threads"):
                    bulk_copy.barrier_wait(shared + (V_FREE if values else K_FREE) + 8 * stage, free)
                if cutlass.const_expr(config.way == "registers"):
                    asked = next_page if values else page
                    asked_head = next_head if values else head
                    pages.load_raw(
                        more if values else Boolean(True),
                        (k if values else v) + Int64(asked) * page_stride + Int64(asked_head) * Int64(head_stride),
                        (k_scales if values else v_scales)
                        + Int64(asked) * page_stride
                        + Int64(asked_head) * Int64(scale_head_stride),
                        token_stride,
                        warp,
                        lane,
                        raw_words,
                        0 if values else pages.RAW_WORDS,
                        raw_words[pages.RAW_WORDS if values else 0],
                    )
                bad = pages.unpack(config, bool(values), raw_words, slot, operand, warp, lane, written)
                bulk_copy.order_before_copies()
                if cutlass.const_expr(values):
                    damaged = cute.arch.vote_any_sync(bad != Uint32(0))
                    if lane == 0:
                        flag = shared + RECORDS_AT + stage * 16 + 4 * warp
                        memory.store_shared_i32(flag, select(damaged, Int32(1), Int32(0)))
                cute.arch.sync_warp()
                if lane == 0:
                    bulk_copy.barrier_arrive(shared + (V_FULL if values else K_FULL) + 8 * stage)
                if cutlass.const_expr(config.way == "bulk"):
                    pages.start_raw(
                        config,
                        more,
                        (v if values else k) + Int64(next_page) * page_stride + Int64(next_head) * Int64(head_stride),
                        Int64(0),
                        token_stride,
                        slot,
                        raw_barriers + 8 * values,
                        warp,
                        lane,
                    )
            # A stage has a warp of its own: two could be two phases apart, which the parity of a barrier does not tell.
            for part in cutlass.range((count + TILE - 1) // TILE, unroll=1):
                if (step + part) % 2 == warp:
                    self.bring_queries(shared, lane, step + part, part, pair, queries, factors, rows_of_pairs)
            step = step + (count + TILE - 1) // TILE
            page = next_page
            head = next_head
            start = next_start
            count = next_count
            written = next_written

    @cute.jit
    def bring_queries(
        self,
        shared: Int32,
        lane: Int32,
        step: Int32,
        part: Int32,
        pair: Int32,
        queries: Int64,
        factors: Int64,
        rows_of_pairs: Int64,
    ):
        """Starts the copies of rows of q of 8 pairs; `pair` of lane i is the i-th of the item, or its last."""
        stage = step % 2
        full = shared + Q_FULL + 8 * stage
        row = divide.quotient(cute.arch.shuffle_sync(pair, part * TILE + lane % TILE), rows_of_pairs)
        bulk_copy.barrier_wait(shared + Q_FREE + 8 * stage, step // 2 % 2 ^ 1)
        if lane == 0:
            bulk_copy.barrier_expect(full, Int32(STEP_QUERY_BYTES + STEP_FACTOR_BYTES))
        cute.arch.sync_warp()
        if lane < TILE:
            target = shared + QUERIES_AT + stage * STEP_QUERY_BYTES + lane // 4 * QUERY_BYTES + lane % 4 * PANEL_BYTES
            source = queries + Int64(row) * QUERY_ROW_BYTES
            policy = Int64(pages.EVICT_NORMAL)
            for panel in cutlass.range_constexpr(2):
                bulk_copy.bulk_load(
                    target + panel * (QUERY_BYTES // 2),
                    source + Int64(panel * PANEL_BYTES),
                    Int32(PANEL_BYTES),
                    full,
                    policy,
                )
            target = shared + FACTORS_AT + stage * STEP_FACTOR_BYTES + lane * FACTOR_BYTES
            bulk_copy.bulk_load(target, factors + Int64(row) * FACTOR_BYTES, Int32(FACTOR_BYTES), full, policy)

    @cute.jit
    def consume(
        self,
        shared: Int32,
        slot: Int32,
        lane: Int32,
        mine: Int32,
        block: Int32,
        blocks: Int32,
        items: Int64,
        listed: Int64,
        parts: Int64,
        logs: Int64,
        topk: Int32,
        num_kv_heads: Int32,
        group: Int32,
        v: Int64,
        v_scales: Int64,
        page_stride: Int64,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
    ):
        """A warp of a warpgroup that multiplies; of every 8 pairs, number `slot` is its."""
        config = self.config
        scores = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
        sums = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
        words = cute.make_rmem_tensor(cute.make_layout((mma.SUMS // 2,)), Uint32)
        next_words = cute.make_rmem_tensor(cute.make_layout((mma.SUMS // 2,)), Uint32)
        top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        next_top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        next_weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        factors = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        warpgroup = slot // 4
        tokens_of_pairs = divide.reciprocal(topk * num_kv_heads)
        if mine > 0:
            # A step is the work on 8 pairs of an item, of which this warp has one; its scores are computed behind the
            # products of the step before. Of an item, and of the next one:
            page, head, chosen, base, start, count = self.item(items, block, blocks, Int32(0), mine)
            page_2, head_2, chosen_2, base_2, start_2, count_2 = self.item(items, block, blocks, Int32(1), mine)
            item = Int32(0)
            part = Int32(0)
            step = Int32(0)
            steps = (count + TILE - 1) // TILE
            flags = Uint32(0)
            pair = self.pair(listed, start, count, slot)
            bulk_copy.barrier_wait(shared + K_FULL, Int32(0))
            bulk_copy.barrier_wait(shared + Q_FULL, Int32(0))
            self.bring_factors(shared, Int32(0), slot, lane, factors)
            fresh = mma.finish(self.start_scores(shared, Int32(0), Int32(0), warpgroup))
            for i in cutlass.range_constexpr(mma.SUMS):
                scores[i] = fresh[i]
            cute.arch.sync_warp()
            bulk_copy.barrier_arrive(shared + Q_FREE)
            if lane == 0:
                if steps == 1:
                    bulk_copy.barrier_arrive(shared + K_FREE)
            visible = base + divide.quotient(pair, tokens_of_pairs) + 1 - chosen * PAGE
            softmax.hide(scores, lane, visible)
            softmax.weigh_once(config, scores, [factors[0], factors[1]], top, weight, words)
            going = (steps > 1) | (mine > 1)
            while going:
                stage = item % 2
                hop = part + 1 == steps
                place = (part + 1) * TILE + slot
                next_item = item
                next_last = part + 2 == steps
                from_start, from_count = start, count
                next_base, next_chosen = base, chosen
                if hop:
                    next_item = item + 1
                    next_last = count_2 <= TILE
                    place = slot
                    from_start = start_2
                    from_count = count_2
                    next_base = base_2
                    next_chosen = chosen_2
                next_pair = self.pair(listed, from_start, from_count, place)
                of_step = [words[i] for i in range(mma.SUMS // 2)]
                if part == 0:
                    bulk_copy.barrier_wait(shared + V_FULL + 8 * stage, item // 2 % 2)
                    flags = self.flags(shared, stage, lane)
                next_step = step + 1
                bulk_copy.barrier_wait(shared + Q_FULL + 8 * (next_step % 2), next_step // 2 % 2)
                if hop:
                    bulk_copy.barrier_wait(shared + K_FULL + 8 * (next_item % 2), next_item // 2 % 2)
                self.bring_factors(shared, next_step, slot, lane, factors)
                stages.wait_for_turn(config, shared, warpgroup, step)
                scoring = self.start_scores(shared, next_step, next_item, warpgroup)
                summing = self.start_sums(shared, stage, of_step)
                stages.pass_turn(config, shared, warpgroup, lane)
                fresh = mma.finish(scoring, newer=1)
                for i in cutlass.range_constexpr(mma.SUMS):
                    scores[i] = fresh[i]
                cute.arch.sync_warp()
                bulk_copy.barrier_arrive(shared + Q_FREE + 8 * (next_step % 2))
                if lane == 0:
                    if next_last:
                        bulk_copy.barrier_arrive(shared + K_FREE + 8 * (next_item % 2))
                next_visible = next_base + divide.quotient(next_pair, tokens_of_pairs) + 1 - next_chosen * PAGE
                softmax.hide(scores, lane, next_visible)
                softmax.weigh_once(config, scores, [factors[0], factors[1]], next_top, next_weight, next_words)
                summed = softmax.finish(summing, of_step, next_words)
                for i in cutlass.range_constexpr(mma.SUMS):
                    sums[i] = summed[i]
                cute.arch.sync_warp()
                if lane == 0:
                    if hop:
                        bulk_copy.barrier_arrive(shared + V_FREE + 8 * stage)
                if flags != Uint32(0):
                    self.mend(
                        page,
                        head,
                        visible,
                        v,
                        v_scales,
                        page_stride,
                        token_stride,
                        head_stride,
                        scale_head_stride,
                        lane,
                        sums,
                    )
                exists = part * TILE + slot < count
                self.write(lane, sums, top, weight, parts, logs, pair, select(exists, group, Int32(0)))
                for i in cutlass.range_constexpr(2):
                    top[i] = next_top[i]
                    weight[i] = next_weight[i]
                for i in cutlass.range_constexpr(mma.SUMS // 2):
                    words[i] = next_words[i]
                pair = next_pair
                visible = next_visible
                step = next_step
                part = part + 1
                if hop:
                    part = Int32(0)
                    item = next_item
                    page, head, chosen, base, start, count = page_2, head_2, chosen_2, base_2, start_2, count_2
                    steps = (count + TILE - 1) // TILE
                    page_2, head_2, chosen_2, base_2, start_2, count_2 = self.item(items, block, blocks, item + 1, mine)
                going = (part + 1 < steps) | (item + 1 < mine)
            stage = item % 2
            if part == 0:
                bulk_copy.barrier_wait(shared + V_FULL + 8 * stage, item // 2 % 2)
                flags = self.flags(shared, stage, lane)
            of_step = [words[i] for i in range(mma.SUMS // 2)]
            stages.wait_for_turn(config, shared, warpgroup, step)
            summing = self.start_sums(shared, stage, of_step)
            stages.pass_turn(config, shared, warpgroup, lane)
            summed = mma.finish(summing)
            for i in cutlass.range_constexpr(mma.SUMS):
                sums[i] = summed[i]
            if flags != Uint32(0):
                self.mend(
                    page,
                    head,
                    visible,
                    v,
                    v_scales,
                    page_stride,
                    token_stride,
                    head_stride,
                    scale_head_stride,
                    lane,
                    sums,
                )
            exists = part * TILE + slot < count
            self.write(lane, sums, top, weight, parts, logs, pair, select(exists, group, Int32(0)))

    def item(self, items: Int64, block: Int32, blocks: Int32, number: Int32, mine: Int32) -> tuple:
        """Page, KV head, block, what to add to a token for its position, first pair, pairs; zeros behind the last."""
        at = items + Int64(block + number * blocks) * ITEM_BYTES
        wanted = Int32(number < mine)
        first = memory.load_global_128_if(at, wanted)
        second = memory.load_global_128_if(at + Int64(16), wanted)
        return tuple(Int32(word) for word in (*first, *second[:2]))

    def pair(self, listed: Int64, start: Int32, count: Int32, place: Int32) -> Int32:
        """The pair at a place of an item, or its last."""
        return memory.load_global_i32(listed + Int64(start + cutlass.min(place, count - 1)) * 4)

    def bring_factors(self, shared: Int32, step: Int32, slot: Int32, lane: Int32, factors: cute.Tensor) -> None:
        at = shared + FACTORS_AT + step % 2 * STEP_FACTOR_BYTES + slot * FACTOR_BYTES + lane // 4 * 4
        for i in range(2):
            factors[i] = memory.load_shared_f32(at + 32 * i)

    def start_scores(self, shared: Int32, step: Int32, item: Int32, warpgroup: Int32) -> tuple:
        queries = shared + QUERIES_AT + step % 2 * STEP_QUERY_BYTES + warpgroup * QUERY_BYTES
        k_operand = shared + K_AT + item % 2 * OPERAND_BYTES
        return mma.start_product(self.config.mma, mma.along_rows(queries), mma.along_rows(k_operand), 64, PAGE)

    def start_sums(self, shared: Int32, stage: Int32, words: list) -> tuple:
        v_operand = mma.across_rows(shared + V_AT + stage * OPERAND_BYTES, PAGE)
        return mma.start_product_of_registers(self.config.mma, None, words, v_operand)

    def flags(self, shared: Int32, stage: Int32, lane: Int32) -> Uint32:
        return stages.read_flags(shared + RECORDS_AT + stage * 16, lane)

    @cute.jit
    def mend(
        self,
        page: Int32,
        head: Int32,
        visible: Int32,
        v: Int64,
        v_scales: Int64,
        page_stride: Int64,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
        lane: Int32,
        sums: cute.Tensor,
    ):
        if visible > 0:
            offset = Int64(page) * page_stride
            nonfinite.add_nonfinite(
                self.config,
                v + offset + Int64(head) * Int64(head_stride),
                v_scales + offset + Int64(head) * Int64(scale_head_stride),
                token_stride,
                lane,
                cutlass.min(visible, PAGE),
                sums,
            )

    @cute.jit
    def write(
        self,
        lane: Int32,
        sums: cute.Tensor,
        top: cute.Tensor,
        weight: cute.Tensor,
        parts: Int64,
        logs: Int64,
        pair: Int32,
        rows: Int32,
    ):
        results.whole_weight(weight)
        results.write_part(
            self.config,
            lane,
            sums,
            top,
            weight,
            parts + Int64(pair) * PART_BYTES,
            logs + Int64(pair) * PART_LSE_BYTES,
            rows,
        )


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    values = {
        **{name: pointer(Uint8, 16) for name in ("kv_cache", "queries", "parts", "items")},
        **{name: pointer(Int32, 4) for name in ("counters", "listed")},
        **{name: pointer(Float32, 4) for name in ("factors", "logs")},
        "page_stride": Int64(0),
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return Blocks(config), (*arguments, make_fake_stream())
