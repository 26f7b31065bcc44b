"""sparse_attention of tiles of query tokens that chose mostly the same blocks, on Hopper.

Thread blocks take tiles in turn, each with a list of the blocks that its tokens chose. Four warps bring the pages in
and turn them into 16-bit operands, once for all tokens of the tile, and go on to the next tile while the last pages of
this one are multiplied. Two warpgroups multiply: each has four tokens, whose 16 query heads are the 64 rows of its
products, and keeps their running sums in registers. A warp is one token, so that what a token does not see is decided
for a warp.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import warpgroup_mma as mma
from msa_ops.cute.tiled_attention import pages, results, softmax, stages
from msa_ops.cute.tiled_attention.by_block_layout import (
    FACTOR_BYTES,
    LIST_ENTRY_BYTES,
    QUERY_ROW_BYTES,
    TILE,
    TILE_BYTES,
)
from msa_ops.cute.tiled_attention.layout import (
    FACTORS_AT,
    PAGE,
    PRODUCERS,
    QUERIES_AT,
    QUERY_BYTES,
    Config,
    shared_memory,
)
from msa_ops.cute.tiled_attention.sm90_sparse_configs import ARGUMENTS

Q_FULL, Q_FREE = 896, 904
PANEL_BYTES = QUERY_ROW_BYTES // 2


class ListedTiles:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        kv_cache: cute.Pointer,
        counters: cute.Pointer,
        tiles: cute.Pointer,
        lists: cute.Pointer,
        queries: cute.Pointer,
        factors: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        page_stride: Int64,
        num_kv_heads: Int32,
        head_begin: Int32,
        all_kv_heads: Int32,
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
            tiles,
            lists,
            queries,
            factors,
            v_scale,
            out,
            lse,
            page_stride,
            num_kv_heads,
            head_begin,
            all_kv_heads,
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
            block=(self.config.threads, 1, 1),
            smem=shared_memory(self.config),
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        kv_cache: cute.Pointer,
        counters: cute.Pointer,
        tiles: cute.Pointer,
        lists: cute.Pointer,
        queries: cute.Pointer,
        factors: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        page_stride: Int64,
        num_kv_heads: Int32,
        head_begin: Int32,
        all_kv_heads: Int32,
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
        config = self.config
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        shared = cute.arch.get_dyn_smem(Uint8, alignment=1024).toint()
        if (warp == 0) & (lane == 0):
            stages.init_barriers(config, shared)
            stages.init_turns(config, shared)
            bulk_copy.barrier_init(shared + Q_FULL, 1)
            bulk_copy.barrier_init(shared + Q_FREE, 32 * TILE)  # all lanes that multiply
            bulk_copy.barrier_init_fence()
        number = memory.load_global_i32(counters.toint() + Int64(8))
        mine = cutlass.max(number - block + blocks - 1, 0) // blocks
        cute.arch.barrier()
        k = kv_cache.toint() + Int64(head_begin) * Int64(head_stride)
        v = k + Int64(v_offset)
        scales = kv_cache.toint() + Int64(head_begin) * Int64(scale_head_stride)
        k_scales = scales + Int64(k_scale_offset)
        v_scales = scales + Int64(v_scale_offset)
        if warp < PRODUCERS // 32:
            stages.take_registers(config, False)
            self.produce(
                shared,
                warp,
                lane,
                mine,
                block,
                blocks,
                tiles.toint(),
                lists.toint(),
                queries.toint(),
                factors.toint(),
                num_kv_heads,
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
            stages.take_registers(config, True)
            scale = Float32(1.0)
            if cutlass.const_expr(config.kv_format == "nvfp4"):
                scale = Float32(2.0**half.E2M1_SHIFT)
            if v_scale.toint() != Int64(0):
                scale = scale * memory.load_global_f32(v_scale.toint())
            self.consume(
                shared,
                warp - PRODUCERS // 32,
                lane,
                mine,
                block,
                blocks,
                tiles.toint(),
                scale,
                out.toint(),
                lse.toint(),
                head_begin,
                all_kv_heads,
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
        tiles: Int64,
        lists: Int64,
        queries: Int64,
        factors: Int64,
        num_kv_heads: Int32,
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
        raw = stages.raw_words()
        listed = cute.make_rmem_tensor(cute.make_layout((2,)), Int32)
        done = Int32(0)
        turn = Int32(0)
        for n in cutlass.range(mine, unroll=1):
            index = Int64(block + n * blocks)
            record = memory.load_global_128_if(tiles + index * TILE_BYTES, Int32(1))
            first, count, base, head = (Int32(word) for word in record)
            record = memory.load_global_128_if(tiles + index * TILE_BYTES + Int64(16), Int32(1))
            items = Int32(record[0])
            last = base + first + count - 1
            of_k = k + Int64(head) * Int64(head_stride)
            of_v = v + Int64(head) * Int64(head_stride)
            of_k_scales = k_scales + Int64(head) * Int64(scale_head_stride)
            of_v_scales = v_scales + Int64(head) * Int64(scale_head_stride)
            entries = lists + index * Int64(TILE * LIST_ENTRY_BYTES) * Int64(topk)
            self.load_entries(entries, lane, items, listed)
            now, now_page = self.entry(listed, Int32(0))
            soon, soon_page = self.entry(listed, Int32(1))
            later, later_page = Int32(0), Int32(0)
            if cutlass.const_expr(config.ahead == 2):
                later, later_page = self.entry(listed, Int32(2))
            if cutlass.const_expr(config.way == "registers"):
                from_page = Int64(now_page) * page_stride
                pages.load_raw(
                    Boolean(items > 0),
                    of_k + from_page,
                    of_k_scales + from_page,
                    token_stride,
                    warp,
                    lane,
                    raw,
                    0,
                    Uint32(0),
                )
            for ahead in cutlass.range_constexpr(config.ahead):
                from_page = Int64(soon_page if ahead else now_page) * page_stride
                if items > ahead:
                    for values in cutlass.range_constexpr(2):
                        stages.start_raw(
                            config,
                            values,
                            shared,
                            warp,
                            lane,
                            done + ahead,
                            Boolean(True),
                            (of_v if values else of_k) + from_page,
                            (of_v_scales if values else of_k_scales) + from_page,
                            token_stride,
                        )
            if (warp == 0) & (items > 0):
                self.bring_queries(shared, lane, first, count, head, num_kv_heads, queries, factors, turn)
            turn = turn + cutlass.min(items, 1)
            for item in cutlass.range(items, unroll=1):
                chosen = now & Int32(0xFFFFFF)
                seen = last + 1 - chosen * PAGE
                mask = Int32(Uint32(now) >> Uint32(24))
                if cutlass.const_expr(config.way == "threads"):
                    stages.fill_pairs(
                        config,
                        True,
                        True,
                        shared,
                        warp,
                        lane,
                        done + item,
                        Boolean(True),
                        of_k + Int64(now_page) * page_stride,
                        of_v + Int64(now_page) * page_stride,
                        token_stride,
                    )
                for values in cutlass.range_constexpr(2):
                    stages.fill(
                        config,
                        values,
                        shared,
                        warp,
                        lane,
                        done + item,
                        Boolean(True),
                        now_page,
                        chosen,
                        mask,
                        seen,
                        raw,
                        Boolean(item + 1 < items) if values else Boolean(True),
                        of_k + Int64(soon_page) * page_stride if values else of_v + Int64(now_page) * page_stride,
                        of_k_scales + Int64(soon_page) * page_stride
                        if values
                        else of_v_scales + Int64(now_page) * page_stride,
                        token_stride,
                    )
                    if item + config.ahead < items:
                        stages.start_raw(
                            config,
                            values,
                            shared,
                            warp,
                            lane,
                            done + item + config.ahead,
                            Boolean(True),
                            (of_v if values else of_k) + Int64(later_page) * page_stride,
                            (of_v_scales if values else of_k_scales) + Int64(later_page) * page_stride,
                            token_stride,
                        )
                now = soon
                now_page = soon_page
                place = item + (3 if config.ahead == 2 else 2)
                if place % 32 == 0:
                    self.load_entries(entries + Int64(place) * LIST_ENTRY_BYTES, lane, items - place, listed)
                if cutlass.const_expr(config.ahead == 2):
                    soon = later
                    soon_page = later_page
                    later, later_page = self.entry(listed, place)
                else:
                    soon, soon_page = self.entry(listed, place)
            done = done + items

    @cute.jit
    def load_entries(self, entries: Int64, lane: Int32, items: Int32, listed: cute.Tensor):
        """A lane loads block and mask, and page, of its one of 32 items; zeros behind the last."""
        wanted = Int32(lane < items)
        listed[0] = memory.load_global_i32_if(entries + Int64(lane) * LIST_ENTRY_BYTES, wanted, Int32(0))
        listed[1] = memory.load_global_i32_if(entries + Int64(lane) * LIST_ENTRY_BYTES + Int64(4), wanted, Int32(0))

    def entry(self, listed: cute.Tensor, item: Int32) -> tuple:
        """What the lane of an item loaded."""
        return tuple(cute.arch.shuffle_sync(listed[i], item % 32) for i in range(2))

    @cute.jit
    def bring_queries(
        self,
        shared: Int32,
        lane: Int32,
        first: Int32,
        count: Int32,
        head: Int32,
        num_kv_heads: Int32,
        queries: Int64,
        factors: Int64,
        turn: Int32,
    ):
        """Starts the copies of the rows of q of a tile; the last token stands in for those that do not exist."""
        full = shared + Q_FULL
        bulk_copy.barrier_wait(shared + Q_FREE, turn % 2 ^ 1)
        if lane == 0:
            bulk_copy.barrier_expect(full, Int32(TILE * (QUERY_ROW_BYTES + FACTOR_BYTES)))
        cute.arch.sync_warp()
        if lane < TILE:
            row = Int64(first + cutlass.min(lane, count - 1)) * Int64(num_kv_heads) + Int64(head)
            target = shared + QUERIES_AT + lane // 4 * QUERY_BYTES + lane % 4 * PANEL_BYTES
            policy = Int64(pages.EVICT_NORMAL)
            for panel in cutlass.range_constexpr(2):
                bulk_copy.bulk_load(
                    target + panel * (QUERY_BYTES // 2),
                    queries + row * QUERY_ROW_BYTES + Int64(panel * PANEL_BYTES),
                    Int32(PANEL_BYTES),
                    full,
                    policy,
                )
            target = shared + FACTORS_AT + lane * FACTOR_BYTES
            bulk_copy.bulk_load(target, factors + row * FACTOR_BYTES, Int32(FACTOR_BYTES), full, policy)

    @cute.jit
    def consume(
        self,
        shared: Int32,
        slot: Int32,
        lane: Int32,
        mine: Int32,
        block: Int32,
        blocks: Int32,
        tiles: Int64,
        scale: Float32,
        out: Int64,
        lse: Int64,
        head_begin: Int32,
        all_kv_heads: Int32,
        group: Int32,
        v: Int64,
        v_scales: Int64,
        page_stride: Int64,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
    ):
        """A warp of a warpgroup that multiplies; token `slot` of every tile is its."""
        config = self.config
        operand = mma.along_rows(shared + QUERIES_AT + slot // 4 * QUERY_BYTES)
        sums = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
        top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        of_rows = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        done = Int32(0)
        turn = Int32(0)
        for n in cutlass.range(mine, unroll=1):
            at = tiles + Int64(block + n * blocks) * TILE_BYTES
            record = memory.load_global_128_if(at, Int32(1))
            first, count, base, head = (cute.arch.make_warp_uniform(Int32(word)) for word in record)
            record = memory.load_global_128_if(at + Int64(16), Int32(1))
            items = cute.arch.make_warp_uniform(Int32(record[0]))
            sums.fill(0.0)
            top.fill(-softmax.INFINITY)
            weight.fill(0.0)
            of_rows.fill(0.0)
            if items > 0:
                bulk_copy.barrier_wait(shared + Q_FULL, turn % 2)
                for i in cutlass.range_constexpr(2):
                    of_rows[i] = memory.load_shared_f32(
                        shared + FACTORS_AT + slot * FACTOR_BYTES + lane // 4 * 4 + 32 * i
                    )
                turn = turn + 1
            position = Int32(-1)
            rows = Int32(0)
            if slot < count:
                position = base + first + slot
                rows = group
            stages.multiply(
                config,
                shared,
                lane,
                done,
                items,
                operand,
                shared + Q_FREE,
                [of_rows[0], of_rows[1]],
                position,
                slot,
                v + Int64(head) * Int64(head_stride),
                v_scales + Int64(head) * Int64(scale_head_stride),
                page_stride,
                token_stride,
                top,
                weight,
                sums,
            )
            done = done + items
            results.whole_weight(weight)
            row = (Int64(first + slot) * Int64(all_kv_heads) + Int64(head_begin + head)) * Int64(group)
            results.write_rows(config, lane, sums, top, weight, scale, out + row * 256, lse + row * 4, rows)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    values = {
        **{name: pointer(Uint8, 16) for name in ("kv_cache", "tiles", "lists", "queries")},
        "out": pointer(BFloat16, 16),
        "counters": pointer(Int32, 4),
        **{name: pointer(Float32, 4) for name in ("factors", "v_scale", "lse")},
        "page_stride": Int64(0),
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return ListedTiles(config), (*arguments, make_fake_stream())
