"""sparse_attention on Hopper for NVFP4, page by page: a thread block for a query token and KV head.

Nothing is merged between blocks: results repeat to the bit.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.sparse_attention import operands, page_results
from msa_ops.cute.sparse_attention.page_list import list_pages
from msa_ops.cute.sparse_attention.page_walk import PageWalk
from msa_ops.cute.sparse_attention.sm90_configs import BF16
from msa_ops.cute.sparse_attention.sm90_pages_configs import (
    COUNT_AT,
    FAMILY,
    LIST_AT,
    QUERIES_AT,
    SHARED_MEMORY,
    STAGES,
    STATES_AT,
    TOTALS_AT,
    WARPS,
    Config,
)


class SparseAttentionPagesSm90:
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
        cache_policy: Int64,
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
        q_dtype: Int32,
        code_factor: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
        """The arguments of sm90.SparseAttentionSm90, without `cluster`: a block does all pages of its pair."""
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
            cache_policy,
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
            q_dtype,
            code_factor,
            softmax_scale,
        ).launch(
            grid=(tokens * num_kv_heads, 1, 1),
            block=(32 * WARPS, 1, 1),
            smem=SHARED_MEMORY,
            min_blocks_per_mp=self.config.blocks,
            preferred_smem_carveout=100,
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
        cache_policy: Int64,
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
        q_dtype: Int32,
        code_factor: Int32,
        softmax_scale: Float32,
    ):
        config = self.config
        walk = PageWalk(alone=True)
        q_dtype = q_dtype if config.any_q else Int32(BF16)
        thread, _, _ = cute.arch.thread_idx()
        pair, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        token = pair // num_kv_heads
        head = pair % num_kv_heads

        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        if thread == 0:
            for i in cutlass.range_constexpr(2 * STAGES):
                bulk_copy.barrier_init(shared + 8 * i, 1)
            bulk_copy.barrier_init_fence()
        walk.reset(shared, thread)
        # Nothing that an earlier kernel may have written is read above; the next kernel may begin to do the same.
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        own = cute.make_rmem_tensor(cute.make_layout((8,)), Uint32)
        rows = q.toint() + Int64(token) * q_token_stride + Int64(head * group) * q_head_stride
        operands.load_queries(config, None, own, rows, q_head_stride, group, lane, warp, q_dtype)
        if warp == 0:
            list_pages(
                shared + LIST_AT,
                shared + COUNT_AT,
                lane,
                token,
                block_ids.toint() + 4 * (Int64(token) * ids_token_stride + Int64(head) * ids_head_stride),
                block_table.toint(),
                seq_lens.toint(),
                cu_seqlens_q.toint(),
                kv_cache.toint() + Int64(head) * Int64(head_stride),
                table_stride,
                page_stride,
                tokens,
                batch,
                topk,
                num_pages,
                max_blocks,
            )
        if q_dtype == BF16:
            operands.store_largest(own, shared + TOTALS_AT, warp, lane)
        cute.arch.barrier()

        items = cute.arch.make_warp_uniform(Int32(memory.load_shared_32(shared + COUNT_AT)))
        # From a head's K in a page to the other members.
        aside = Int64(head) * Int64(scale_head_stride - head_stride)
        offsets = (aside + Int64(k_scale_offset), Int64(v_offset), aside + Int64(v_scale_offset))
        entries = shared + LIST_AT
        walk.begin(shared, entries, warp, items, 0, offsets, cache_policy)

        # While these come.
        base = softmax_scale * Float32(math.log2(math.e))
        if k_scale.toint() != Int64(0):
            base = base * memory.load_global_f32(k_scale.toint())
        queries = shared + QUERIES_AT
        operands.prepare_queries(
            config, None, own, queries, shared + STATES_AT, 8, warp, lane, base, q_dtype, shared + TOTALS_AT
        )
        sums = cute.make_rmem_tensor(cute.make_layout((16,)), Float32)
        sums.fill(0.0)
        weights = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        weights.fill(0.0)
        cute.arch.barrier()

        walk.walk(shared, entries, warp, lane, items, 0, 0, offsets, cache_policy, code_factor, sums, weights)
        page_results.store_totals(shared, warp, lane, weights)
        cute.arch.barrier()
        page_results.write_rows(
            shared, warp, lane, pair * group, group, sums, v_scale.toint(), out.toint(), lse.toint(), q_dtype
        )


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    words = ("block_ids", "block_table", "seq_lens", "cu_seqlens_q", "k_scale", "v_scale", "lse")
    pointers = {name: make_ptr(Uint8, 16, gmem, assumed_align=16) for name in ("q", "kv_cache", "out")}
    pointers |= {name: make_ptr(Uint8, 16, gmem, assumed_align=4) for name in words}
    strides = ("q_token_stride", "q_head_stride", "page_stride", "ids_token_stride", "ids_head_stride", "table_stride")
    values = {**pointers, **{name: Int64(0) for name in (*strides, "cache_policy")}, "softmax_scale": Float32(0.0)}
    arguments = [values.get(name, Int32(0)) for name in FAMILY.arguments]
    return SparseAttentionPagesSm90(config), (*arguments, make_fake_stream())
