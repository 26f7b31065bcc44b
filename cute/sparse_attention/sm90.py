"""sparse_attention on Hopper: a cluster of thread blocks, or one block, for each pair of a query token and a KV head.

The pages that the token sees are cut into chunks of tokens, which the warps of the cluster take in turn. Every warp
brings its chunks in through a ring of bulk copies of its own and keeps running sums of its own, so nobody waits for
anybody until the end. There the warps' sums meet in shared memory, and those of blocks are sent through the cluster's
distributed shared memory, all merged in a fixed order: results repeat to the bit. One configuration has no clusters:
its blocks write their sums to the workspace, where another kernel, sm90_merge.py, merges them in the same order.

The 16 query heads of a KV head are the 16 rows of m16n8k16 products. K and V are the second operand: a thread reads
what it needs of them straight from the raw bytes and unpacks it in registers, each value once in the whole block.
NVFP4 and FP8 become FP16 exactly; for that q, which is BF16, is scaled by a power of two for each row.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common.asm import select
from msa_ops.cute.common.warp_mma import mma_16816
from msa_ops.cute.sparse_attention import combine, operands
from msa_ops.cute.sparse_attention.page_list import list_pages
from msa_ops.cute.sparse_attention.sm90_configs import (
    BF16,
    COUNT_AT,
    EXCHANGE_AT,
    FACTORS_AT,
    FAMILY,
    LIST_AT,
    QUERIES_AT,
    ROWS,
    STATE_BYTES,
    STATES_AT,
    Config,
    rings_at,
    shared_memory,
)

INFINITY = float("inf")
HEADROOM = 8.0
"""Weights may grow to 2^8 before the running maximum follows; so it seldom has to."""


class SparseAttentionSm90:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.threads = 32 * config.warps
        self.pack = half.pack_bf16x2 if config.mma == "bf16" else half.pack_f16x2

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
        cluster: Int32,
        q_dtype: Int32,
        code_factor: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
        """Addresses of tensors, strides in elements (of q and the cache: bytes), and what the host knows of the shapes.

        head_stride: bytes from a head's K to the next head's, and of V. scale_head_stride: likewise of scales. Offsets
        in a page, from its start. cluster: thread blocks that share a pair; they are a cluster, but for a configuration
        that writes parts. That takes as `out` where the sums go, [pairs, cluster, SUMS_BYTES], and as `lse` where the
        statistics go, [pairs, cluster, STATE_BYTES].
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
            cluster,
            q_dtype,
            code_factor,
            softmax_scale,
        ).launch(
            grid=(tokens * num_kv_heads * cluster, 1, 1),
            block=(self.threads, 1, 1),
            cluster=(1, 1, 1) if self.config.parts else (cluster, 1, 1),
            smem=shared_memory(self.config),
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
        cluster: Int32,
        q_dtype: Int32,
        code_factor: Int32,
        softmax_scale: Float32,
    ):
        config = self.config
        q_dtype = q_dtype if config.any_q else Int32(BF16)
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        rank = block % cluster
        pair = block // cluster
        token = pair // num_kv_heads
        head = pair % num_kv_heads

        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        barriers = shared + warp * (8 * config.stages)
        if lane == 0:
            for stage in cutlass.range_constexpr(config.stages):
                bulk_copy.barrier_init(barriers + 8 * stage, 1)
            if cutlass.const_expr(not config.parts):
                if warp == 0:
                    bulk_copy.barrier_init(shared + EXCHANGE_AT, 1)
                    bulk_copy.barrier_expect(shared + EXCHANGE_AT, combine.expected_bytes(cluster))
            bulk_copy.barrier_init_fence()
        if cutlass.const_expr(not config.parts):
            if cluster > 1:
                cute.arch.cluster_arrive_relaxed()  # the fence has released the barriers; another one waits for memory
        # Nothing that an earlier kernel may have written is read above; the next kernel may begin to do the same.
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        words = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
        own = cute.make_rmem_tensor(cute.make_layout((8,)), Uint32)
        rows = q.toint() + Int64(token) * q_token_stride + Int64(head * group) * q_head_stride
        operands.load_queries(config, words, own, rows, q_head_stride, group, lane, warp % 4, q_dtype)
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
        cute.arch.barrier()

        # The chunks are dealt out to the warps of the whole cluster.
        player = rank * config.warps + warp
        players = cluster * config.warps
        chunks = Int32(memory.load_shared_32(shared + COUNT_AT)) * config.chunks_of_a_page
        items = cute.arch.make_warp_uniform((chunks - player + players - 1) // players)
        # From a head's K in a page to the other members.
        aside = Int64(head) * Int64(scale_head_stride - head_stride)
        k_scale_from_k = aside + Int64(k_scale_offset)
        v_scale_from_k = aside + Int64(v_scale_offset)
        ring = shared + rings_at(config) + warp * config.ring_bytes
        for stage in cutlass.range(config.stages, unroll=1):
            if stage < items:
                self.bring_chunk(
                    shared,
                    player + stage * players,
                    barriers + 8 * stage,
                    ring + stage * config.stage_bytes,
                    k_scale_from_k,
                    Int64(v_offset),
                    v_scale_from_k,
                    cache_policy,
                )

        # While these come.
        base = softmax_scale * Float32(math.log2(math.e))
        if k_scale.toint() != Int64(0):
            base = base * memory.load_global_f32(k_scale.toint())
        if warp < 4:
            queries = shared + QUERIES_AT
            factors = shared + FACTORS_AT
            operands.prepare_queries(config, words, own, queries, factors, 4, warp, lane, base, q_dtype)
        cute.arch.barrier()

        sums = cute.make_rmem_tensor(cute.make_layout((64,)), Float32)
        sums.fill(0.0)
        weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        weight.fill(0.0)
        # Of the rows of the warp, factor and running maximum. They live here because registers are short.
        state = shared + STATES_AT + warp * STATE_BYTES
        if lane < ROWS:
            memory.store_shared_f32(state + lane * 8, memory.load_shared_f32(shared + FACTORS_AT + lane * 4))
            memory.store_shared_f32(state + lane * 8 + 4, Float32(-INFINITY))
        cute.arch.sync_warp()
        code_factors = (code_factor >> 7, code_factor)
        stage = Int32(0)
        parity = Int32(0)
        for item in cutlass.range(items, unroll=1):
            at = ring + stage * config.stage_bytes
            barrier = barriers + stage * 8
            chunk = player + item * players
            entry = shared + LIST_AT + chunk // config.chunks_of_a_page * 16
            visible = Int32(memory.load_shared_32(entry + 8)) - chunk % config.chunks_of_a_page * config.chunk
            bulk_copy.barrier_wait(barrier, parity)
            if visible > 0:
                if visible < config.chunk:
                    operands.clear_hidden_values(config, at, lane, visible)
                queries = shared + QUERIES_AT + lane * 16
                self.attend(at, lane, visible, queries, state + lane // 4 * 8, code_factors, sums, weight)
            cute.arch.sync_warp()
            if item + config.stages < items:
                self.bring_chunk(
                    shared,
                    chunk + config.stages * players,
                    barrier,
                    at,
                    k_scale_from_k,
                    Int64(v_offset),
                    v_scale_from_k,
                    cache_policy,
                )
            stage = stage + 1
            if stage == config.stages:
                stage = Int32(0)
                parity = parity ^ 1

        combine.store_warp(lane, ring, state, sums, weight)
        cute.arch.barrier()
        combine.finish(
            config,
            shared,
            warp,
            lane,
            rank,
            cluster,
            pair,
            group,
            v_scale.toint(),
            out.toint(),
            lse.toint(),
            q_dtype,
        )

    @cute.jit
    def bring_chunk(
        self,
        shared: Int32,
        chunk: Int32,
        barrier: Int32,
        at: Int32,
        k_scale_from_k: Int64,
        v_from_k: Int64,
        v_scale_from_k: Int64,
        policy: Int64,
    ):
        """Starts the copies of a chunk. One without visible tokens is not read."""
        config = self.config
        page, visible = memory.load_shared_i64x2(shared + LIST_AT + chunk // config.chunks_of_a_page * 16)
        first = chunk % config.chunks_of_a_page * config.chunk
        with cute.arch.elect_one():
            if first < Int32(visible):
                bulk_copy.barrier_expect(barrier, Int32(config.stage_bytes))
                k = page + Int64(first * config.token_stride)
                size = Int32(config.chunk * config.token_stride)
                bulk_copy.bulk_load(at, k, size, barrier, policy)
                if cutlass.const_expr(not config.packed):
                    bulk_copy.bulk_load(at + config.v_at, k + v_from_k, size, barrier, policy)
                if cutlass.const_expr(config.kv_format == "nvfp4"):
                    scale = page + Int64(first * config.scale_bytes)
                    size = Int32(config.chunk * config.scale_bytes)
                    bulk_copy.bulk_load(at + config.k_scale_at, scale + k_scale_from_k, size, barrier, policy)
                    bulk_copy.bulk_load(at + config.v_scale_at, scale + v_scale_from_k, size, barrier, policy)
            else:
                bulk_copy.barrier_arrive(barrier)

    @cute.jit
    def attend(
        self,
        at: Int32,
        lane: Int32,
        visible: Int32,
        queries: Int32,
        state: Int32,
        code_factors: tuple,
        sums: cute.Tensor,
        weight: cute.Tensor,
    ):
        """Adds a chunk of tokens to the running sums. `visible`: how many of them may be seen, or more."""
        config = self.config
        tiles = config.chunk // 8
        scores = cute.make_rmem_tensor(cute.make_layout((4 * tiles,)), Float32)
        for tile in cutlass.range_constexpr(0, tiles, config.side):
            k = [operands.k_steps(config, at, lane, tile + i, code_factors) for i in range(config.side)]
            found = [(Float32(0.0),) * 4] * config.side
            for step in cutlass.range_constexpr(8):
                a = operands.query_step(queries, step)
                for i in cutlass.range_constexpr(config.side):
                    found[i] = mma_16816(config.mma, found[i], a, next(k[i]))
            for i in cutlass.range_constexpr(config.side):
                for j in cutlass.range_constexpr(4):
                    scores[4 * (tile + i) + j] = found[i][j]
        # As a loop, whose second turn does nothing: a branch would become instructions that all chunks execute.
        for turn in cutlass.range(select(visible < config.chunk, Int32(2), Int32(0)), unroll=1):
            limit = visible + turn * config.chunk
            column = lane % 4
            for tile in cutlass.range_constexpr(tiles):
                for i in cutlass.range_constexpr(4):
                    token = 8 * tile + ((2 * column + i % 2) ^ (column & 1))
                    scores[4 * tile + i] = select(token < limit, scores[4 * tile + i], Float32(-INFINITY))

        # NaN among the scores is ignored here and comes back through the weights.
        most = [scores[0], scores[2]]
        for tile in cutlass.range_constexpr(tiles):
            for i in cutlass.range_constexpr(4):
                most[i // 2] = half.max_f32(most[i // 2], scores[4 * tile + i])
        rows = [memory.load_shared_f32x2(state + 64 * i) for i in range(2)]
        factor = [row[0] for row in rows]
        top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        for i in cutlass.range_constexpr(2):
            top[i] = rows[i][1]
        most = [most[i] * factor[i] for i in range(2)]
        grown = [Boolean(most[i] > top[i] + Float32(HEADROOM)) for i in range(2)]
        if cute.arch.vote_any_sync(grown[0] | grown[1]):
            cute.arch.sync_warp()  # all lanes have read the maxima; racecheck does not see that from votes and shuffles
            for i in cutlass.range_constexpr(2):
                of_row = most[i]
                for offset in cutlass.range_constexpr(1, 3):
                    of_row = half.max_f32(of_row, cute.arch.shuffle_sync_bfly(of_row, offset=offset))
                # Rows decide for themselves, so that none depends on its neighbours.
                new = select(of_row > top[i] + Float32(HEADROOM), of_row, top[i])
                shrink = select(top[i] == new, Float32(1.0), half.exp2(top[i] - new))
                shrink = select(top[i] == Float32(-INFINITY), Float32(0.0), shrink)
                top[i] = new
                if lane % 4 == 0:
                    memory.store_shared_f32(state + 64 * i + 4, new)
                weight[i] = weight[i] * shrink
                for j in cutlass.range_constexpr(16):
                    sums[4 * j + 2 * i] = sums[4 * j + 2 * i] * shrink
                    sums[4 * j + 2 * i + 1] = sums[4 * j + 2 * i + 1] * shrink
        shift = [select(top[i] == Float32(-INFINITY), Float32(0.0), -top[i]) for i in range(2)]
        for tile in cutlass.range_constexpr(tiles):
            for i in cutlass.range_constexpr(4):
                value = half.exp2(half.fma_f32(scores[4 * tile + i], factor[i // 2], shift[i // 2]))
                weight[i // 2] = weight[i // 2] + value
                scores[4 * tile + i] = value

        for step in cutlass.range_constexpr(config.chunk // 16):
            a = [self.pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]) for i in range(4)]
            v = operands.v_products(config, at, lane, step, code_factors)
            for i in cutlass.range_constexpr(16):
                found = mma_16816(config.mma, [sums[4 * i + j] for j in range(4)], a, next(v))
                for j in cutlass.range_constexpr(4):
                    sums[4 * i + j] = found[j]


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    strides = ("q_token_stride", "q_head_stride", "page_stride", "ids_token_stride", "ids_head_stride", "table_stride")
    values = {
        "q": pointer(Uint8, 16),
        "kv_cache": pointer(Uint8, 16),
        "out": pointer(Uint8, 16),
        **{name: pointer(Int32, 4) for name in ("block_ids", "block_table", "seq_lens", "cu_seqlens_q")},
        **{name: pointer(Float32, 4) for name in ("k_scale", "v_scale", "lse")},
        **{name: Int64(0) for name in (*strides, "cache_policy")},
        "softmax_scale": Float32(0.0),
    }
    arguments = [values.get(name, Int32(0)) for name in FAMILY.arguments]
    return SparseAttentionSm90(config), (*arguments, make_fake_stream())
