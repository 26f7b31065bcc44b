"""dense_attention on Hopper: a thread block for each tile of neighbouring query tokens and KV head, or a part of it.

Four warps bring in one page after the other and turn it into 16-bit operands in shared memory, once for all tokens of
the tile. One or two warpgroups multiply: each has four tokens, whose 16 query heads are the 64 rows of its products,
and keeps their running sums in registers. A warp is one token, so that what a token does not see is decided for a warp.

With few query tokens both warpgroups have the same four, and take the pages in turn. The pages are all of the request,
or a part of them (`splits`). Another kernel merges parts.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import warpgroup_mma as mma
from msa_ops.cute.tiled_attention import pages, queries, results, softmax, stages, tiles
from msa_ops.cute.tiled_attention.layout import (
    ARGUMENTS,
    FACTORS_AT,
    PAGE,
    PART_BYTES,
    PART_LSE_BYTES,
    PRODUCERS,
    QUERIES_AT,
    QUERY_BYTES,
    Config,
    shared_memory,
)


class DenseAttention:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Pointer,
        kv_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        k_scale: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        partial_out: cute.Pointer,
        partial_lse: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        q_bytes: Int32,
        page_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        group: Int32,
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

        q_bytes: of an element of q, 2 for BF16 and 1 for E4M3.
        token_stride: bytes from a row of K to the next token's, and of V. head_stride: likewise heads; and
        scale_head_stride of scales. Offsets in a page, from its start. tiles: as many as there may be. splits: parts of
        a tile's pages; with more than one, rows go to partial_out and partial_lse [tokens, KV heads, splits, 16 rows].
        Warpgroups that take pages in turn always make such parts, two for each split.
        """
        self.kernel(
            q,
            kv_cache,
            block_table,
            seq_lens,
            cu_seqlens_q,
            k_scale,
            v_scale,
            out,
            lse,
            partial_out,
            partial_lse,
            q_token_stride,
            q_head_stride,
            q_bytes,
            page_stride,
            table_stride,
            tokens,
            batch,
            num_kv_heads,
            group,
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
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        k_scale: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        partial_out: cute.Pointer,
        partial_lse: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        q_bytes: Int32,
        page_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        group: Int32,
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
                stages.init_barriers(config, shared)
                stages.init_turns(config, shared)
                bulk_copy.barrier_init_fence()
            tiles.find_tile(shared, lane, tile, config.tokens, cu_seqlens_q.toint(), seq_lens.toint(), tokens, batch)
        cute.arch.barrier()
        first = Int32(memory.load_shared_32(shared + tiles.FIRST))
        count = Int32(memory.load_shared_32(shared + tiles.COUNT))
        request = Int32(memory.load_shared_32(shared + tiles.REQUEST))
        base = Int32(memory.load_shared_32(shared + tiles.BASE))
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
        slot = member if config.alternate else 4 * multiplier + member  # which token of the tile
        operand = shared + QUERIES_AT + multiplier * QUERY_BYTES
        factors = shared + FACTORS_AT + multiplier * 256
        rows = Int32(0)
        if slot < count:
            rows = group
        if warp >= PRODUCERS // 32:
            scale = softmax_scale * Float32(math.log2(math.e))
            if k_scale.toint() != Int64(0):
                scale = scale * memory.load_global_f32(k_scale.toint())
            queries.bring_queries(
                config,
                q.toint()
                + Int64(q_bytes) * (Int64(first + slot) * q_token_stride + Int64(head * group) * q_head_stride),
                q_head_stride,
                q_bytes,
                rows,
                operand,
                factors,
                member,
                lane,
                scale,
            )
            bulk_copy.order_before_copies()
        cute.arch.barrier()

        if warp < PRODUCERS // 32:
            stages.take_registers(config, False)
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
            stages.take_registers(config, True)
            position = Int32(-1)
            if (slot < count) & (last >= 0):
                position = base + first + slot
            sums = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
            sums.fill(0.0)
            top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
            top.fill(-softmax.INFINITY)
            weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
            weight.fill(0.0)
            factors_at = factors + member * 64 + lane // 4 * 4
            of_rows = [memory.load_shared_f32(factors_at + 32 * i) for i in range(2)]
            stages.multiply(
                config,
                shared,
                lane,
                multiplier if config.alternate else Int32(0),
                (items + 1 - multiplier) // 2 if config.alternate else items,
                mma.along_rows(operand),
                Int32(0),
                of_rows,
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
            row = Int64(first + slot) * Int64(num_kv_heads * group) + Int64(head * group)
            if cutlass.const_expr(config.alternate):
                part = (Int64(first + slot) * Int64(num_kv_heads) + Int64(head)) * Int64(2 * splits)
                part = part + Int64(2 * split + multiplier)
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
            elif splits == 1:
                results.write_rows(
                    config,
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

    def load_pages(self, table: Int64, lane: Int32, items: Int32) -> Int32:
        """A lane loads the page of its one of 32 items, or -1 behind the last."""
        return memory.load_global_i32_if(table + Int64(lane) * 4, Int32(lane < items), Int32(-1))

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
        table = table + Int64(begin) * 4
        listed = self.load_pages(table, lane, items)
        now = cute.arch.shuffle_sync(listed, 0)
        soon = cute.arch.shuffle_sync(listed, 1)
        later = Int32(-1)
        if cutlass.const_expr(config.ahead == 2):
            later = cute.arch.shuffle_sync(listed, 2)
        raw = stages.raw_words()
        if cutlass.const_expr(config.way == "registers"):
            from_page = Int64(now) * page_stride
            pages.load_raw(
                self.is_page(now, num_pages),
                k + from_page,
                k_scales + from_page,
                token_stride,
                warp,
                lane,
                raw,
                0,
                Uint32(0),
            )
        for ahead in cutlass.range_constexpr(config.ahead):
            if items > ahead:
                page = soon if ahead else now
                for values in cutlass.range_constexpr(2):
                    stages.start_raw(
                        config,
                        values,
                        shared,
                        warp,
                        lane,
                        Int32(ahead),
                        self.is_page(page, num_pages),
                        (v if values else k) + Int64(page) * page_stride,
                        (v_scales if values else k_scales) + Int64(page) * page_stride,
                        token_stride,
                    )
        for item in cutlass.range(items, unroll=1):
            exists = self.is_page(now, num_pages)
            block = begin + item
            of_k = k + Int64(now) * page_stride
            of_v = v + Int64(now) * page_stride
            if cutlass.const_expr(config.way == "threads" and not config.alternate):
                stages.fill_pairs(config, True, True, shared, warp, lane, item, exists, of_k, of_v, token_stride)
            for values in cutlass.range_constexpr(2):
                if cutlass.const_expr(config.way == "threads" and config.alternate):
                    stages.fill_pairs(
                        config, not values, bool(values), shared, warp, lane, item, exists, of_k, of_v, token_stride
                    )
                seen = last + 1 - block * PAGE
                next_page = soon if values else now
                stages.fill(
                    config,
                    values,
                    shared,
                    warp,
                    lane,
                    item,
                    exists,
                    now,
                    block,
                    Int32(0xFF),
                    seen,
                    raw,
                    self.is_page(next_page, num_pages),
                    (k if values else v) + Int64(next_page) * page_stride,
                    (k_scales if values else v_scales) + Int64(next_page) * page_stride,
                    token_stride,
                )
                if item + config.ahead < items:
                    stages.start_raw(
                        config,
                        values,
                        shared,
                        warp,
                        lane,
                        item + config.ahead,
                        self.is_page(later, num_pages),
                        (v if values else k) + Int64(later) * page_stride,
                        (v_scales if values else k_scales) + Int64(later) * page_stride,
                        token_stride,
                    )
            now = soon
            place = item + (3 if config.ahead == 2 else 2)
            if place % 32 == 0:
                listed = self.load_pages(table + Int64(place) * 4, lane, items - place)
            if cutlass.const_expr(config.ahead == 2):
                soon = later
                later = cute.arch.shuffle_sync(listed, place % 32)
            else:
                soon = cute.arch.shuffle_sync(listed, place % 32)

    def is_page(self, page: Int32, num_pages: Int32) -> Boolean:
        return Boolean(page >= 0) & Boolean(page < num_pages)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    strides = ("q_token_stride", "q_head_stride", "page_stride", "table_stride")
    values = {
        "q": pointer(BFloat16, 16),
        "kv_cache": pointer(Uint8, 16),
        "out": pointer(BFloat16, 16),
        **{name: pointer(Int32, 4) for name in ("block_table", "seq_lens", "cu_seqlens_q")},
        **{name: pointer(Float32, 4) for name in ("k_scale", "v_scale", "lse", "partial_lse")},
        "partial_out": pointer(Float32, 16),
        **{name: Int64(0) for name in strides},
        "softmax_scale": Float32(0.0),
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return DenseAttention(config), (*arguments, make_fake_stream())
