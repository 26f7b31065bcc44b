"""sparse_attention of a few query tokens a request on Hopper: what neighbouring tokens chose alike is read once.

A thread block, or a cluster, works on a tile of eight query tokens of a request and a KV head. Eight warps make a list
of the blocks that any of them chose, then bring in the page of each and turn it into 16-bit operands in shared memory,
four warps K and four V.
Two warpgroups multiply, each with four tokens, whose 16 query heads are the 64 rows of its products; a warp is one
token. They pass over pages that none of their tokens chose. The blocks of a cluster take entries of the list in turn,
and exchange their sums in the end. Tokens that chose too little alike are worked on alone, see chosen_apart.
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
from msa_ops.cute.tiled_attention import chosen_apart, chosen_merge, nonfinite, queries, results, softmax, stages, tiles
from msa_ops.cute.tiled_attention.chosen_layout import (
    BRINGER_REGISTERS,
    BRINGERS,
    EXCHANGE_AT,
    LENGTH_AT,
    MULTIPLIER_REGISTERS,
    TOKENS,
    TURNS,
    Config,
    shared_memory,
)
from msa_ops.cute.tiled_attention.chosen_pages import entry_of, list_pages
from msa_ops.cute.tiled_attention.layout import (
    FACTORS_AT,
    OPERAND_BYTES,
    PAGE,
    QUERIES_AT,
    QUERY_BYTES,
    RECORD_BYTES,
    RECORDS_AT,
)
from msa_ops.cute.tiled_attention.sm90_chosen_configs import ARGUMENTS

MULTIPLYING = 2
"""Number of the barrier of the warps that multiply."""


class ChosenTiles:
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
        head_stride: Int32,
        scale_head_stride: Int32,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        tiles_wanted: Int32,
        cluster: Int32,
        cache_policy: Int64,
        code_factor: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
        """The arguments of sparse_attention.sm90; tiles_wanted: as many as there may be; strides of q in elements."""
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
            head_stride,
            scale_head_stride,
            k_scale_offset,
            v_offset,
            v_scale_offset,
            tiles_wanted,
            cluster,
            cache_policy,
            code_factor,
            softmax_scale,
        ).launch(
            grid=(tiles_wanted * num_kv_heads * cluster, 1, 1),
            block=(self.config.threads, 1, 1),
            cluster=(cluster, 1, 1),
            smem=shared_memory(self.config),
            min_blocks_per_mp=1,
            stream=stream,
            use_pdl=True,
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
        head_stride: Int32,
        scale_head_stride: Int32,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        tiles_wanted: Int32,
        cluster: Int32,
        cache_policy: Int64,
        code_factor: Int32,
        softmax_scale: Float32,
    ):
        config = self.config
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        rank = block % cluster
        head = block // cluster % num_kv_heads
        tile = block // cluster // num_kv_heads

        shared = cute.arch.get_dyn_smem(Uint8, alignment=1024).toint()
        if thread == 0:
            stages.init_barriers(config, shared)
            bulk_copy.barrier_init(shared + EXCHANGE_AT, 1)
            bulk_copy.barrier_expect(shared + EXCHANGE_AT, Int32(chosen_merge.EXPECTED_BYTES))
            bulk_copy.barrier_init_fence()
        # Nothing that an earlier kernel may have written is read above; the next kernel may begin to do the same.
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        if Boolean(warp >= BRINGERS // 32) & Boolean(cu_seqlens_q.toint() == Int64(0)):
            self.prefetch(
                warp - BRINGERS // 32,
                lane,
                tile,
                q.toint() + 2 * Int64(head * group) * q_head_stride,
                block_ids.toint() + Int64(head) * (4 * ids_head_stride),
                block_table.toint(),
                q_token_stride,
                q_head_stride,
                ids_token_stride,
                table_stride,
                tokens,
                batch,
                group,
                topk,
                max_blocks,
            )
        if warp == 0:
            tiles.find_tile(shared, lane, tile, TOKENS, cu_seqlens_q.toint(), seq_lens.toint(), tokens, batch)
        cute.arch.barrier()
        first = Int32(memory.load_shared_32(shared + tiles.FIRST))
        count = Int32(memory.load_shared_32(shared + tiles.COUNT))
        request = Int32(memory.load_shared_32(shared + tiles.REQUEST))
        base = Int32(memory.load_shared_32(shared + tiles.BASE))
        seeing = count  # tokens that may see something
        if request < 0:
            seeing = Int32(0)
        k = kv_cache.toint() + Int64(head) * Int64(head_stride)
        v = k + Int64(v_offset)
        scales = kv_cache.toint() + Int64(head) * Int64(scale_head_stride)
        k_scales = scales + Int64(k_scale_offset)
        v_scales = scales + Int64(v_scale_offset)
        chosen = cute.make_rmem_tensor(cute.make_layout((TURNS,)), Int32)
        chosen.fill(-1)
        pages = cute.make_rmem_tensor(cute.make_layout((TURNS,)), Int32)
        pages.fill(-1)
        if warp < BRINGERS // 32:
            list_pages(
                config,
                shared,
                warp,
                lane,
                seeing,
                base,
                first,
                block_ids.toint() + Int64(head) * (4 * ids_head_stride),
                ids_token_stride,
                block_table.toint() + 4 * Int64(cutlass.max(request, 0)) * table_stride,
                topk,
                num_pages,
                max_blocks,
                chosen,
                pages,
            )
            if chosen_apart.chose_apart(shared):
                chosen_apart.store_list(
                    shared, warp, lane, rank, cluster, base + first + warp, k, page_stride, chosen, pages
                )
                chosen_apart.make_ready(shared, thread)
            else:
                length = Int32(memory.load_shared_32(shared + LENGTH_AT))
                for item in cutlass.range_constexpr(2):
                    if warp < 4:
                        self.start(shared, warp, lane, Int32(item), 0, rank, cluster, length, k, k_scales, page_stride)
                    else:
                        self.start(
                            shared, warp - 4, lane, Int32(item), 1, rank, cluster, length, v, v_scales, page_stride
                        )
        cute.arch.barrier()

        if chosen_apart.chose_apart(shared):
            aside = Int64(head) * Int64(scale_head_stride - head_stride)
            chosen_apart.attend(
                shared,
                warp,
                lane,
                rank,
                cluster,
                first,
                count,
                q.toint() + 2 * Int64(head * group) * q_head_stride,
                2 * q_token_stride,
                2 * q_head_stride,
                k_scale.toint(),
                v_scale.toint(),
                out.toint(),
                lse.toint(),
                head,
                num_kv_heads,
                group,
                (aside + Int64(k_scale_offset), Int64(v_offset), aside + Int64(v_scale_offset)),
                cache_policy,
                code_factor,
                softmax_scale,
            )
        else:
            # The blocks of the cluster take entries in turn.
            length = Int32(memory.load_shared_32(shared + LENGTH_AT))
            items = (length - rank + cluster - 1) // cluster
            if warp < BRINGERS // 32:
                cute.arch.setmaxregister_decrease(BRINGER_REGISTERS)
                seen = base + first + count  # by the last token
                if warp < 4:
                    self.bring(shared, warp, lane, 0, items, seen, rank, cluster, length, k, k_scales, page_stride)
                else:
                    self.bring(shared, warp - 4, lane, 1, items, seen, rank, cluster, length, v, v_scales, page_stride)
                if cluster > 1:
                    bulk_copy.order_before_copies()  # what others send comes to where ids, and K, were written
                    cute.arch.cluster_arrive()
                    cute.arch.cluster_wait()
            else:
                cute.arch.setmaxregister_increase(MULTIPLIER_REGISTERS)
                slot = warp - BRINGERS // 32
                rows = Int32(0)
                if slot < count:
                    rows = group
                base_factor = softmax_scale * Float32(math.log2(math.e))
                if k_scale.toint() != Int64(0):
                    base_factor = base_factor * memory.load_global_f32(k_scale.toint())
                queries.bring_queries(
                    config,
                    q.toint() + 2 * (Int64(first + slot) * q_token_stride + Int64(head * group) * q_head_stride),
                    q_head_stride,
                    Int32(2),
                    rows,
                    shared + QUERIES_AT + slot // 4 * QUERY_BYTES,
                    shared + FACTORS_AT + slot // 4 * 256,
                    slot % 4,
                    lane,
                    base_factor,
                )
                bulk_copy.order_before_copies()
                cute.arch.barrier(barrier_id=MULTIPLYING, number_of_threads=config.threads - BRINGERS)
                position = Int32(-1)
                if slot < count:
                    position = base + first + slot
                sums = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
                sums.fill(0.0)
                top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
                top.fill(-softmax.INFINITY)
                weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
                weight.fill(0.0)
                self.multiply(shared, slot, lane, items, position, v, v_scales, page_stride, top, weight, sums)
                results.whole_weight(weight)
                scale = Float32(2.0**half.E2M1_SHIFT)
                if v_scale.toint() != Int64(0):
                    scale = scale * memory.load_global_f32(v_scale.toint())
                token_rows = num_kv_heads * group
                row = Int64(first) * Int64(token_rows) + Int64(head * group)
                if cluster == 1:
                    rows = Int32(0)
                    if slot < count:
                        rows = group
                    row = row + Int64(slot) * Int64(token_rows)
                    results.write_rows(
                        config, lane, sums, top, weight, scale, out.toint() + row * 256, lse.toint() + row * 4, rows
                    )
                else:
                    cute.arch.cluster_arrive()
                    cute.arch.cluster_wait()  # all blocks are done with what the others write over
                    chosen_merge.send(config, shared, slot, lane, rank, cluster, sums, top, weight)
                    chosen_merge.finish(
                        config,
                        shared,
                        slot,
                        lane,
                        rank,
                        cluster,
                        scale,
                        out.toint() + row * 256,
                        lse.toint() + row * 4,
                        token_rows,
                        count,
                        group,
                    )

    @cute.jit
    def prefetch(
        self,
        slot: Int32,
        lane: Int32,
        tile: Int32,
        q: Int64,
        ids: Int64,
        table: Int64,
        q_token_stride: Int64,
        q_head_stride: Int64,
        ids_token_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        group: Int32,
        topk: Int32,
        max_blocks: Int32,
    ):
        """Requests of equal lengths: brings rows of q, ids and the table to the L2 cache before others ask for them."""
        each = Int32(0)
        if batch > 0:
            each = tokens // batch
        tiles_of_request = cutlass.max((each + TOKENS - 1) // TOKENS, 1)
        request = tile // tiles_of_request
        number = tile % tiles_of_request * TOKENS + slot
        if Boolean(request < batch) & Boolean(number < each):
            token = Int64(request * each + number)
            row = ids + token * (4 * ids_token_stride)
            if lane * 32 < topk:
                memory.prefetch_global(row + Int64(128 * lane))
            if lane // 2 < group:
                of_head = q + 2 * (token * q_token_stride + Int64(lane // 2) * q_head_stride)
                memory.prefetch_global(of_head + Int64(128 * (lane % 2)))
            first = (32 * slot + lane) * 32
            if first < max_blocks:
                memory.prefetch_global(table + 4 * (Int64(request) * table_stride + Int64(first)))

    @cute.jit
    def start(
        self,
        shared: Int32,
        warp: Int32,
        lane: Int32,
        item: Int32,
        values: cutlass.Constexpr,
        rank: Int32,
        cluster: Int32,
        length: Int32,
        source: Int64,
        scales: Int64,
        page_stride: Int64,
    ):
        """Starts the copies of K or V of an item, if there is such."""
        number = rank + item * cluster
        if number < length:
            _, _, page = entry_of(self.config, shared, number)
            from_page = Int64(page) * page_stride
            stages.start_raw(
                self.config,
                values,
                shared,
                warp,
                lane,
                item,
                Boolean(True),
                source + from_page,
                scales + from_page,
                Int32(self.config.row_bytes),
            )

    @cute.jit
    def bring(
        self,
        shared: Int32,
        warp: Int32,
        lane: Int32,
        values: cutlass.Constexpr,
        items: Int32,
        seen: Int32,
        rank: Int32,
        cluster: Int32,
        length: Int32,
        source: Int64,
        scales: Int64,
        page_stride: Int64,
    ):
        """One of the four warps that bring in K, or V; 32 tokens of each page are its."""
        raw = stages.raw_words()  # not used: pages come by bulk copies
        for item in cutlass.range(items, unroll=1):
            block, mask, page = entry_of(self.config, shared, rank + item * cluster)
            seen_of_page = seen - block * PAGE
            stages.fill(
                self.config,
                values,
                shared,
                warp,
                lane,
                item,
                Boolean(True),
                page,
                block,
                mask,
                seen_of_page,
                raw,
                Boolean(False),
                Int64(0),
                Int64(0),
                Int32(self.config.row_bytes),
            )
            self.start(shared, warp, lane, item + 2, values, rank, cluster, length, source, scales, page_stride)

    @cute.jit
    def multiply(
        self,
        shared: Int32,
        slot: Int32,
        lane: Int32,
        items: Int32,
        position: Int32,
        v: Int64,
        v_scales: Int64,
        page_stride: Int64,
        top: cute.Tensor,
        weight: cute.Tensor,
        sums: cute.Tensor,
    ):
        """Adds the items that any token of the warpgroup chose to the sums of the warp's token, `slot` of the tile."""
        config = self.config
        warpgroup = slot // 4
        operand = mma.along_rows(shared + QUERIES_AT + warpgroup * QUERY_BYTES)
        factors_at = shared + FACTORS_AT + slot * 64 + lane // 4 * 4
        factors = [memory.load_shared_f32(factors_at + 32 * i) for i in range(2)]
        scores = cute.make_rmem_tensor(cute.make_layout((mma.SUMS,)), Float32)
        words = cute.make_rmem_tensor(cute.make_layout((mma.SUMS // 2,)), Uint32)
        shrink = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        shrink.fill(1.0)
        for item in cutlass.range(items, unroll=1):
            stage = item % 2
            parity = item // 2 % 2
            record = shared + RECORDS_AT + stage * RECORD_BYTES
            bulk_copy.barrier_wait(shared + stages.K_FULL + 8 * stage, parity)
            block_id, mask, page = stages.read_record(record, lane)
            wanted = cute.arch.make_warp_uniform(Int32(mask >> Uint32(4 * warpgroup)) & 15)
            visible = Int32(0)
            if ((wanted >> (slot % 4)) & 1) != 0:
                visible = position + 1 - Int32(block_id) * PAGE
            if wanted != 0:
                k_operand = mma.along_rows(shared + config.k_at + stage * OPERAND_BYTES)
                fresh = mma.finish(mma.start_product(config.mma, operand, k_operand, 64, PAGE))
                for i in cutlass.range_constexpr(mma.SUMS):
                    scores[i] = fresh[i]
            cute.arch.sync_warp()
            if lane == 0:
                bulk_copy.barrier_arrive(shared + stages.K_FREE + 8 * stage)
            words.fill(0)
            if visible > 0:
                softmax.hide(scores, lane, visible)
                softmax.weigh(config, scores, factors, top, weight, shrink, words)
                softmax.follow(shrink, sums)
            bulk_copy.barrier_wait(shared + stages.V_FULL + 8 * stage, parity)
            flags = stages.read_flags(record + 16, lane)
            if wanted != 0:
                v_operand = mma.across_rows(shared + config.v_at + stage * OPERAND_BYTES, PAGE)
                summed = mma.finish(
                    mma.start_product_of_registers(
                        config.mma,
                        [sums[i] for i in range(mma.SUMS)],
                        [words[i] for i in range(mma.SUMS // 2)],
                        v_operand,
                    )
                )
                for i in cutlass.range_constexpr(mma.SUMS):
                    sums[i] = summed[i]
            cute.arch.sync_warp()
            if lane == 0:
                bulk_copy.barrier_arrive(shared + stages.V_FREE + 8 * stage)
            if flags != Uint32(0):
                if visible > 0:
                    of_page = Int64(Int32(page)) * page_stride
                    shown = cutlass.min(visible, PAGE)
                    nonfinite.add_nonfinite(
                        config, v + of_page, v_scales + of_page, Int32(config.row_bytes), lane, shown, sums
                    )


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    strides = ("q_token_stride", "q_head_stride", "page_stride", "ids_token_stride", "ids_head_stride", "table_stride")
    values = {
        **{name: pointer(BFloat16, 16) for name in ("q", "out")},
        "kv_cache": pointer(Uint8, 16),
        **{name: pointer(Int32, 4) for name in ("block_ids", "block_table", "seq_lens", "cu_seqlens_q")},
        **{name: pointer(Float32, 4) for name in ("k_scale", "v_scale", "lse")},
        **{name: Int64(0) for name in (*strides, "cache_policy")},
        "softmax_scale": Float32(0.0),
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return ChosenTiles(config), (*arguments, make_fake_stream())
