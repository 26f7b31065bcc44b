"""Attention on Hopper for tiles of neighbouring query tokens: a thread block for each tile and KV head.

Four warps bring in one page after the other and turn it into 16-bit operands in shared memory, once for all tokens of
the tile. One or two warpgroups multiply: each has four tokens, whose 16 query heads are the 64 rows of its products,
and keeps their running sums in registers. A warp is one token, so that what a token does not see is decided for a warp.

The pages are those that any token of the tile chose (each warp then hides the pages that its token did not choose), or
all of the request, or a part of them (`splits`), which another kernel merges.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import async_copy, bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import warpgroup_mma as mma
from msa_ops.cute.common.asm import select
from msa_ops.cute.tiled_attention import nonfinite, pages, queries, results, softmax, tiles
from msa_ops.cute.tiled_attention.layout import (
    ARGUMENTS,
    FACTORS_AT,
    LIST_AT,
    OPERAND_BYTES,
    PAGE,
    PART_BYTES,
    PART_LSE_BYTES,
    PRODUCERS,
    QUERIES_AT,
    QUERY_BYTES,
    RAW_BARRIERS_AT,
    RECORD_BYTES,
    RECORDS_AT,
    STAGES,
    WHOLE,
    Config,
    shared_memory,
)

# Barriers of stage s, at these addresses + 8 s.
K_FULL, K_FREE, V_FULL, V_FREE = 0, 16, 32, 48


class TiledAttention:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Pointer,
        kv_cache: cute.Pointer,
        block_ids: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        k_scale: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        partial_out: cute.Pointer,
        partial_lse: cute.Pointer,
        ways: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        ids_token_stride: Int64,
        ids_head_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        group: Int32,
        topk: Int32,
        num_pages: Int32,
        max_blocks: Int32,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        tiles: Int32,
        splits: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
        """Addresses of tensors, strides in elements (of the cache: bytes), and what the host knows of the shapes.

        token_stride: bytes from a row of K to the next token's, and of V. head_stride: likewise heads; and
        scale_head_stride of scales. Offsets in a page, from its start. tiles: as many as there may be. splits: parts of
        a tile's pages; with more than one, rows go to partial_out and partial_lse [tokens, KV heads, splits, 16 rows].
        ways: None, or int32 [tokens, KV heads]; tokens with another number than WHOLE are not this kernel's.
        """
        self.kernel(
            q,
            kv_cache,
            block_ids,
            block_table,
            seq_lens,
            cu_seqlens_q,
            k_scale,
            v_scale,
            out,
            lse,
            partial_out,
            partial_lse,
            ways,
            q_token_stride,
            q_head_stride,
            page_stride,
            ids_token_stride,
            ids_head_stride,
            table_stride,
            tokens,
            batch,
            num_kv_heads,
            group,
            topk,
            num_pages,
            max_blocks,
            token_stride,
            head_stride,
            scale_head_stride,
            k_scale_offset,
            v_offset,
            v_scale_offset,
            tiles,
            splits,
            softmax_scale,
        ).launch(
            grid=(tiles * num_kv_heads * splits, 1, 1),
            block=(self.config.threads, 1, 1),
            smem=shared_memory(self.config),
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        q: cute.Pointer,
        kv_cache: cute.Pointer,
        block_ids: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        k_scale: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        partial_out: cute.Pointer,
        partial_lse: cute.Pointer,
        ways: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        ids_token_stride: Int64,
        ids_head_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        group: Int32,
        topk: Int32,
        num_pages: Int32,
        max_blocks: Int32,
        token_stride: Int32,
        head_stride: Int32,
        scale_head_stride: Int32,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        tiles_wanted: Int32,
        splits: Int32,
        softmax_scale: Float32,
    ):
        config = self.config
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        split = block % splits
        head = block // splits % num_kv_heads
        # The last tiles of a request see the most pages; they come first.
        tile = tiles_wanted - 1 - block // (splits * num_kv_heads)

        shared = cute.arch.get_dyn_smem(Uint8, alignment=1024).toint()
        if warp == 0:
            if lane == 0:
                for stage in cutlass.range_constexpr(STAGES):
                    bulk_copy.barrier_init(shared + K_FULL + 8 * stage, PRODUCERS // 32)
                    bulk_copy.barrier_init(shared + V_FULL + 8 * stage, PRODUCERS // 32)
                    bulk_copy.barrier_init(shared + K_FREE + 8 * stage, 4 * config.groups)
                    bulk_copy.barrier_init(shared + V_FREE + 8 * stage, 4 * config.groups)
                for slot in cutlass.range_constexpr(PRODUCERS // 32 * config.raw_slots):
                    bulk_copy.barrier_init(shared + RAW_BARRIERS_AT + 8 * slot, 1)
                bulk_copy.barrier_init_fence()
            tiles.find_tile(shared, lane, tile, config.tokens, cu_seqlens_q.toint(), seq_lens.toint(), tokens, batch)
        cute.arch.barrier()
        first = Int32(memory.load_shared_32(shared + tiles.FIRST))
        count = Int32(memory.load_shared_32(shared + tiles.COUNT))
        request = Int32(memory.load_shared_32(shared + tiles.REQUEST))
        base = Int32(memory.load_shared_32(shared + tiles.BASE))
        if Boolean(ways.toint() != Int64(0)) & Boolean(count > 0):
            way = memory.load_global_i32(ways.toint() + Int64(first * num_kv_heads + head) * 4)
            if way != WHOLE:
                count = Int32(0)
        if request < 0:
            base = Int32(-0x7FFFFFFF)  # no token of the tile has a position
        last = base + first + count - 1  # position of the last token
        if (request < 0) | (count <= 0):
            last = Int32(-1)
        blocks = Int32(0)
        if last >= 0:
            blocks = cutlass.min(last // PAGE + 1, max_blocks)
        # From here on all know what the block works on: for a part, pages `begin` to `begin + items`.
        begin = Int32(Int64(blocks) * Int64(split) // Int64(splits))
        items = Int32(Int64(blocks) * Int64(split + 1) // Int64(splits)) - begin
        k = kv_cache.toint() + Int64(head) * Int64(head_stride)
        v = k + Int64(v_offset)
        scales = kv_cache.toint() + Int64(head) * Int64(scale_head_stride)
        k_scales = scales + Int64(k_scale_offset)
        v_scales = scales + Int64(v_scale_offset)
        multiplier = (warp - PRODUCERS // 32) // 4
        member = warp % 4
        slot = 4 * multiplier + member  # which token of the tile
        operand = shared + QUERIES_AT + multiplier * QUERY_BYTES
        factors = shared + FACTORS_AT + multiplier * 256
        rows = Int32(0)
        if slot < count:
            rows = group
        if warp < PRODUCERS // 32:
            if cutlass.const_expr(config.sparse):
                tiles.list_blocks(
                    shared,
                    thread,
                    shared + config.v_at,
                    first,
                    select(last < 0, Int32(0), count),
                    base,
                    block_ids.toint() + 4 * Int64(head) * ids_head_stride,
                    ids_token_stride,
                    topk,
                    max_blocks,
                )
        else:
            scale = softmax_scale * Float32(math.log2(math.e))
            if k_scale.toint() != Int64(0):
                scale = scale * memory.load_global_f32(k_scale.toint())
            queries.bring_queries(
                config,
                q.toint() + 2 * (Int64(first + slot) * q_token_stride + Int64(head * group) * q_head_stride),
                q_head_stride,
                rows,
                operand,
                factors,
                member,
                lane,
                scale,
            )
            bulk_copy.order_before_copies()
        cute.arch.barrier()
        if cutlass.const_expr(config.sparse):
            items = Int32(memory.load_shared_32(shared + tiles.ITEMS))

        if warp < PRODUCERS // 32:
            self.produce(
                shared,
                warp,
                lane,
                begin,
                items,
                last,
                block_table.toint() + 4 * Int64(cutlass.max(request, 0)) * table_stride,
                k,
                v,
                k_scales,
                v_scales,
                page_stride,
                num_pages,
                token_stride,
            )
        else:
            position = Int32(-1)
            if (slot < count) & (last >= 0):
                position = base + first + slot
            sums = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
            sums.fill(0.0)
            top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
            top.fill(-softmax.INFINITY)
            weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
            weight.fill(0.0)
            self.consume(
                shared,
                lane,
                items,
                operand,
                factors + member * 64,
                position,
                slot,
                v,
                v_scales,
                page_stride,
                token_stride,
                top,
                weight,
                sums,
            )
            results.whole_weight(weight)
            scale = Float32(1.0)
            if cutlass.const_expr(config.kv_format == "nvfp4"):
                scale = Float32(2.0**half.E2M1_SHIFT)
            if v_scale.toint() != Int64(0):
                scale = scale * memory.load_global_f32(v_scale.toint())
            # No warp of the group reads its queries any more, whose place takes the results.
            cute.arch.barrier(barrier_id=2 + multiplier, number_of_threads=128)
            row = Int64(first + slot) * Int64(num_kv_heads * group) + Int64(head * group)
            if splits == 1:
                results.write_rows(
                    config,
                    operand + member * 4096,
                    lane,
                    sums,
                    top,
                    weight,
                    scale,
                    out.toint() + row * 256,
                    lse.toint() + row * 4,
                    rows,
                )
            else:
                part = (Int64(first + slot) * Int64(num_kv_heads) + Int64(head)) * Int64(splits) + Int64(split)
                results.write_part(
                    config,
                    lane,
                    sums,
                    top,
                    weight,
                    partial_out.toint() + part * PART_BYTES,
                    partial_lse.toint() + part * PART_LSE_BYTES,
                    rows,
                )

    @cute.jit
    def page_of(self, shared: Int32, item: Int32, begin: Int32, items: Int32, table: Int64, num_pages: Int32) -> Int32:
        """The page of an item, or -1 if there is none."""
        block = begin + item
        if cutlass.const_expr(self.config.sparse):
            block = Int32(0)
            if item < items:
                block = Int32(memory.load_shared_32(shared + LIST_AT + 4 * item)) & Int32(0xFFFFFF)
        return memory.load_global_i32_if(table + Int64(block) * 4, Int32(item < items), Int32(-1))

    @cute.jit
    def produce(
        self,
        shared: Int32,
        warp: Int32,
        lane: Int32,
        begin: Int32,
        items: Int32,
        last: Int32,
        table: Int64,
        k: Int64,
        v: Int64,
        k_scales: Int64,
        v_scales: Int64,
        page_stride: Int64,
        num_pages: Int32,
        token_stride: Int32,
    ):
        """One of the four warps that bring pages in; 32 tokens of each are its."""
        config = self.config
        raw = shared + config.raw_at + warp * (config.raw_slots * config.slot_bytes)
        raw_barriers = shared + RAW_BARRIERS_AT + warp * (8 * config.raw_slots)
        now = self.page_of(shared, Int32(0), begin, items, table, num_pages)
        soon = self.page_of(shared, Int32(1), begin, items, table, num_pages)
        later = self.page_of(shared, Int32(2), begin, items, table, num_pages)
        if cutlass.const_expr(config.slot_bytes > 0):
            for ahead in cutlass.range_constexpr(config.raw_slots):
                page = soon if ahead // 2 else now
                offset = Int64(page) * page_stride
                pages.start_raw(
                    config,
                    self.is_page(page, num_pages),
                    (v if ahead % 2 else k) + offset,
                    (v_scales if ahead % 2 else k_scales) + offset,
                    token_stride,
                    raw + ahead * config.slot_bytes,
                    raw_barriers + 8 * ahead,
                    warp,
                    lane,
                )
        for item in cutlass.range(items, unroll=1):
            stage = item % 2
            free = item // 2 % 2 ^ 1
            exists = self.is_page(now, num_pages)
            block = begin + item
            mask = Int32(0xFF)
            if cutlass.const_expr(config.sparse):
                entry = memory.load_shared_32(shared + LIST_AT + 4 * item)
                block = Int32(entry & Uint32(0xFFFFFF))
                mask = Int32(entry >> Uint32(24))
            seen = last + 1 - block * PAGE
            if cutlass.const_expr(config.slot_bytes == 0):
                bulk_copy.barrier_wait(shared + K_FREE + 8 * stage, free)
                bulk_copy.barrier_wait(shared + V_FREE + 8 * stage, free)
                if exists:
                    offset = Int64(now) * page_stride
                    place = stage * OPERAND_BYTES
                    pages.copy_pairs(k + offset, token_stride, shared + config.k_at + place, warp, lane)
                    pages.copy_pairs(v + offset, token_stride, shared + config.v_at + place, warp, lane)
                async_copy.commit()
                async_copy.wait(0)
            for values in cutlass.range_constexpr(2):
                operand = shared + (config.v_at if values else config.k_at) + stage * OPERAND_BYTES
                number = (2 * item + values) % config.raw_slots
                slot = raw + number * config.slot_bytes
                raw_barrier = raw_barriers + 8 * number
                record = shared + RECORDS_AT + stage * RECORD_BYTES
                if cutlass.const_expr(config.slot_bytes > 0):
                    bulk_copy.barrier_wait(raw_barrier, (2 * item + values) // config.raw_slots % 2)
                    bulk_copy.barrier_wait(shared + (V_FREE if values else K_FREE) + 8 * stage, free)
                bad = Uint32(0)
                if exists:
                    bad = pages.unpack(config, bool(values), slot, operand, warp, lane, seen)
                else:
                    pages.clear(operand, warp, lane)
                bulk_copy.order_before_copies()
                if cutlass.const_expr(values):
                    damaged = cute.arch.vote_any_sync(bad != Uint32(0))
                    if lane == 0:
                        memory.store_shared_i32(record + 16 + 4 * warp, select(damaged, Int32(1), Int32(0)))
                else:
                    if (warp == 0) & (lane == 0):
                        shown = select(exists, mask, Int32(0))
                        memory.store_shared_128(record, Uint32(block), Uint32(shown), Uint32(now), Uint32(0))
                cute.arch.sync_warp()
                if lane == 0:
                    bulk_copy.barrier_arrive(shared + (V_FULL if values else K_FULL) + 8 * stage)
                if cutlass.const_expr(config.slot_bytes > 0):
                    # K or V that comes `raw_slots` later.
                    page = later if values + config.raw_slots >= 4 else soon
                    offset = Int64(page) * page_stride
                    pages.start_raw(
                        config,
                        self.is_page(page, num_pages),
                        (v if (values + config.raw_slots) % 2 else k) + offset,
                        (v_scales if (values + config.raw_slots) % 2 else k_scales) + offset,
                        token_stride,
                        slot,
                        raw_barrier,
                        warp,
                        lane,
                    )
            now = soon
            soon = later
            later = self.page_of(shared, item + 3, begin, items, table, num_pages)

    def is_page(self, page: Int32, num_pages: Int32) -> Boolean:
        return Boolean(page >= 0) & Boolean(page < num_pages)

    @cute.jit
    def consume(
        self,
        shared: Int32,
        lane: Int32,
        items: Int32,
        operand: Int32,
        factors: Int32,
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
        """A warp of a warpgroup that multiplies."""
        config = self.config
        of_rows = [memory.load_shared_f32(factors + lane // 4 * 4 + 32 * i) for i in range(2)]
        a = mma.along_rows(operand)
        scores = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
        words = cute.make_rmem_tensor(cute.make_layout((mma.SUMS // 2,)), Uint32)
        for item in cutlass.range(items, unroll=1):
            stage = item % 2
            parity = item // 2 % 2
            record = shared + RECORDS_AT + stage * RECORD_BYTES
            k_operand = shared + config.k_at + stage * OPERAND_BYTES
            v_operand = shared + config.v_at + stage * OPERAND_BYTES
            bulk_copy.barrier_wait(shared + K_FULL + 8 * stage, parity)
            block, mask, page, _ = memory.load_shared_128(record)
            found = mma.start_product(config.mma, a, mma.along_rows(k_operand), 64, PAGE)
            found = mma.finish(found)
            for i in cutlass.range_constexpr(mma.SUMS):
                scores[i] = found[i]
            if lane == 0:
                bulk_copy.barrier_arrive(shared + K_FREE + 8 * stage)
            visible = Int32(0)
            if ((mask >> Uint32(slot)) & Uint32(1)) != Uint32(0):
                visible = position + 1 - Int32(block) * PAGE
            softmax.hide(scores, lane, visible)
            softmax.weigh(config, scores, of_rows, top, weight, sums, words)
            bulk_copy.barrier_wait(shared + V_FULL + 8 * stage, parity)
            flags = memory.load_shared_128(record + 16)
            found = mma.start_product_of_registers(
                config.mma,
                [sums[i] for i in range(mma.SUMS)],
                [words[i] for i in range(mma.SUMS // 2)],
                mma.across_rows(v_operand, PAGE),
            )
            found = mma.finish(found)
            for i in cutlass.range_constexpr(mma.SUMS):
                sums[i] = found[i]
            if (flags[0] | flags[1] | flags[2] | flags[3]) != Uint32(0):
                if visible > 0:
                    offset = Int64(Int32(page)) * page_stride
                    nonfinite.add_nonfinite(
                        config, v + offset, v_scales + offset, token_stride, lane, cutlass.min(visible, PAGE), sums
                    )
            cute.arch.sync_warp()
            if lane == 0:
                bulk_copy.barrier_arrive(shared + V_FREE + 8 * stage)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    strides = ("q_token_stride", "q_head_stride", "page_stride", "ids_token_stride", "ids_head_stride", "table_stride")
    values = {
        "q": pointer(BFloat16, 16),
        "kv_cache": pointer(Uint8, 16),
        "out": pointer(BFloat16, 16),
        **{name: pointer(Int32, 4) for name in ("block_ids", "block_table", "seq_lens", "cu_seqlens_q", "ways")},
        **{name: pointer(Float32, 4) for name in ("k_scale", "v_scale", "lse", "partial_lse")},
        "partial_out": pointer(Float32, 16),
        **{name: Int64(0) for name in strides},
        "softmax_scale": Float32(0.0),
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return TiledAttention(config), (*arguments, make_fake_stream())
