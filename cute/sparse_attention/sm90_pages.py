"""sparse_attention on Hopper for NVFP4, page by page: a thread block, or a cluster, for a query token and KV head.

All warps of a block work on one page together. In the products with K a warp has a quarter of the page's tokens, in
those with V a quarter of the dims; the weights go from the first to the second through shared memory. So a warp's sums
are few, and at the end only blocks of a cluster have anything to merge, in a fixed order: results repeat to the bit.
A row's maximum is that of the block. Weights are taken with the one known so far; if a page holds a score that is too
far above it, all warps learn so at the barrier between the two products, and raise it before they go on. A page costs
one barrier.

The 16 query heads of a KV head are the rows of m16n8k16 products. Column r of the n-th of a warp's four products with V
is dim 32 warp + 4 r + n, so that a lane takes four codes of each of two tokens with one transposed move of matrices.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import matrix_moves as moves
from msa_ops.cute.common import ordered_floats as ordered
from msa_ops.cute.common.asm import select
from msa_ops.cute.common.warp_mma import mma_16816
from msa_ops.cute.sparse_attention import operands, pages_combine
from msa_ops.cute.sparse_attention.page_list import list_pages
from msa_ops.cute.sparse_attention.sm90_configs import BF16, ROWS
from msa_ops.cute.sparse_attention.sm90_pages_configs import (
    COUNT_AT,
    EXCHANGE_AT,
    FAMILY,
    K_SCALES_AT,
    KEYS_BYTES,
    LIST_AT,
    PROPOSED_AT,
    QUERIES_AT,
    RING_AT,
    SCALES_BYTES,
    SHARED_MEMORY,
    STAGE_BYTES,
    STAGES,
    STATES_AT,
    TABLE_AT,
    TABLE_BYTES,
    TABLE_GROUP,
    V_AT,
    V_SCALES_AT,
    WARPS,
    WEIGHTS_AT,
    WEIGHTS_BYTES,
    WEIGHTS_ROW,
    Config,
)

INFINITY = float("inf")
HEADROOM = 8.0
"""Weights may grow to 2^8 before the running maximum follows; so it seldom has to."""
TILES = 4
"""Of 8 tokens, of a page for a warp in the products with K."""


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
        cluster: Int32,
        q_dtype: Int32,
        code_factor: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
        """The arguments of sm90.SparseAttentionSm90."""
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
            block=(32 * WARPS, 1, 1),
            cluster=(cluster, 1, 1),
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
        if thread == 0:
            for i in cutlass.range_constexpr(2 * STAGES):
                bulk_copy.barrier_init(shared + 8 * i, 1)
            bulk_copy.barrier_init(shared + EXCHANGE_AT, 1)
            bulk_copy.barrier_expect(shared + EXCHANGE_AT, pages_combine.expected_bytes(cluster))
            bulk_copy.barrier_init_fence()
        if thread < ROWS:
            memory.store_shared_32(shared + PROPOSED_AT + 4 * thread, Uint32(0))
            memory.store_shared_f32(shared + STATES_AT + 8 * thread + 4, Float32(-INFINITY))
        # Nothing that an earlier kernel may have written is read above; the next kernel may begin to do the same.
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        words = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
        own = cute.make_rmem_tensor(cute.make_layout((8,)), Uint32)
        rows = q.toint() + Int64(token) * q_token_stride + Int64(head * group) * q_head_stride
        operands.load_queries(config, words, own, rows, q_head_stride, group, lane, warp, q_dtype)
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

        # The pages are dealt out to the blocks of the cluster.
        count = Int32(memory.load_shared_32(shared + COUNT_AT))
        items = cute.arch.make_warp_uniform((count - rank + cluster - 1) // cluster)
        # From a head's K in a page to the other members.
        aside = Int64(head) * Int64(scale_head_stride - head_stride)
        offsets = (aside + Int64(k_scale_offset), Int64(v_offset), aside + Int64(v_scale_offset))
        if warp < STAGES:
            if warp < items:
                self.bring_keys(shared, warp, rank + warp * cluster, offsets[0], offsets[2], cache_policy)
                self.bring_values(shared, warp, rank + warp * cluster, offsets[1], cache_policy)

        # While these come.
        base = softmax_scale * Float32(math.log2(math.e))
        if k_scale.toint() != Int64(0):
            base = base * memory.load_global_f32(k_scale.toint())
        queries = shared + QUERIES_AT
        operands.prepare_queries(config, words, own, queries, shared + STATES_AT, 8, warp, lane, base, q_dtype)
        sums = cute.make_rmem_tensor(cute.make_layout((16,)), Float32)
        sums.fill(0.0)
        weights = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        weights.fill(0.0)
        cute.arch.barrier()

        code_factors = (code_factor >> 7, code_factor)
        for item in cutlass.range(items, unroll=1):
            stage = item & 1
            parity = (item >> 1) & 1
            at = shared + RING_AT + stage * STAGE_BYTES
            entry = rank + item * cluster
            visible = Int32(memory.load_shared_32(shared + LIST_AT + 16 * entry + 8))
            bulk_copy.barrier_wait(shared + 8 * stage, parity)
            self.tabulate(at + V_SCALES_AT, shared + TABLE_AT + stage * TABLE_BYTES, thread, visible)
            self.weigh_page(shared, at, stage, warp, lane, visible, code_factors, sums, weights)
            # All warps are done with this page's keys and scales and with the last page's values.
            if warp == (item & 3):
                if item + 2 < items:
                    self.bring_keys(shared, stage, entry + 2 * cluster, offsets[0], offsets[2], cache_policy)
                if Boolean(item > 0) & Boolean(item + 1 < items):
                    self.bring_values(shared, stage ^ 1, entry + cluster, offsets[1], cache_policy)
            bulk_copy.barrier_wait(shared + 8 * (STAGES + stage), parity)
            self.add_values(shared, at, stage, warp, lane, code_factors, sums)

        pages_combine.finish(
            shared,
            warp,
            lane,
            rank,
            cluster,
            pair * group,
            group,
            sums,
            weights,
            v_scale.toint(),
            out.toint(),
            lse.toint(),
            q_dtype,
        )

    @cute.jit
    def bring_keys(
        self, shared: Int32, stage: Int32, entry: Int32, k_scale_from_k: Int64, v_scale_from_k: Int64, policy: Int64
    ):
        """Starts the copies of a page's K and of all its scales. For one warp."""
        page, _ = memory.load_shared_i64x2(shared + LIST_AT + 16 * entry)
        at = shared + RING_AT + stage * STAGE_BYTES
        barrier = shared + 8 * stage
        with cute.arch.elect_one():
            bulk_copy.barrier_expect(barrier, Int32(KEYS_BYTES + 2 * SCALES_BYTES))
            bulk_copy.bulk_load(at, page, Int32(KEYS_BYTES), barrier, policy)
            bulk_copy.bulk_load(at + K_SCALES_AT, page + k_scale_from_k, Int32(SCALES_BYTES), barrier, policy)
            bulk_copy.bulk_load(at + V_SCALES_AT, page + v_scale_from_k, Int32(SCALES_BYTES), barrier, policy)

    @cute.jit
    def bring_values(self, shared: Int32, stage: Int32, entry: Int32, v_from_k: Int64, policy: Int64):
        """Starts the copy of a page's V. For one warp."""
        page, _ = memory.load_shared_i64x2(shared + LIST_AT + 16 * entry)
        barrier = shared + 8 * (STAGES + stage)
        with cute.arch.elect_one():
            bulk_copy.barrier_expect(barrier, Int32(KEYS_BYTES))
            target = shared + (RING_AT + V_AT) + stage * STAGE_BYTES
            bulk_copy.bulk_load(target, page + v_from_k, Int32(KEYS_BYTES), barrier, policy)

    # Products with K.

    @cute.jit
    def weigh_page(
        self,
        shared: Int32,
        at: Int32,
        buffer: Int32,
        warp: Int32,
        lane: Int32,
        visible: Int32,
        code_factors: tuple,
        sums: cute.Tensor,
        weights: cute.Tensor,
    ):
        """Puts the weights of the page's tokens into shared memory, for all warps; ends behind a barrier."""
        target = shared + WEIGHTS_AT + buffer * WEIGHTS_BYTES + 64 * warp + self.row_offset(lane)
        states = shared + STATES_AT + lane // 4 * 8
        proposed = shared + PROPOSED_AT + lane // 4 * 4
        scores = cute.make_rmem_tensor(cute.make_layout((4 * TILES,)), Float32)
        keys = [self.keys_of_tile(at, 32 * warp, lane, tile, code_factors) for tile in range(TILES)]
        self.multiply(shared + QUERIES_AT + lane * 16, keys, scores)
        self.hide(scores, 32 * warp, lane, visible)
        top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        factors = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        grown = self.propose(proposed, scores, states, lane, factors, top)
        own = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)  # sums of this page's weights
        own.fill(0.0)
        if not grown:
            self.store_weights(scores, factors, top, target, own)
        if moves.any_thread(grown) != 0:
            self.raise_top(proposed, top, sums, weights)
            own.fill(0.0)
            self.store_weights(scores, factors, top, target, own)
            if Boolean(warp == 0) & Boolean(lane % 4 == 0):
                for i in cutlass.range_constexpr(2):
                    memory.store_shared_f32(states + 64 * i + 4, top[i])
            cute.arch.barrier()
        for i in cutlass.range_constexpr(2):
            weights[i] = weights[i] + own[i]

    def row_offset(self, lane: Int32) -> Int32:
        """Of the row of 16 bytes whose address the lane gives when four matrices of weights are moved."""
        return lane % 16 * WEIGHTS_ROW + lane // 16 * 16

    def keys_of_tile(self, at: Int32, first: Int32, lane: Int32, tile: int, code_factors: tuple):
        """Generates, for 8 steps, the two registers of a tile of 8 tokens. first: token of tile 0."""
        column = lane % 4
        token = first + lane // 4
        words = memory.load_shared_128(at + token * 64 + column * 16 + 512 * tile)
        scales = half.e4m3x2_to_f16x2(memory.load_shared_16(at + K_SCALES_AT + token * 8 + column * 2 + 64 * tile))
        both = [half.both_low(scales), half.both_high(scales)]
        for i, word in enumerate(words):
            pairs = [
                half.mul_f16x2(pair, both[i // 2]) for pair in half.e2m1x8_to_f16x2_by_products(word, *code_factors)
            ]
            yield pairs[:2]
            yield pairs[2:]

    def multiply(self, queries: Int32, keys: list, scores: cute.Tensor) -> None:
        """Scores of all tiles of `keys`, side by side: a product waits for the one before."""
        found = [(Float32(0.0),) * 4] * TILES
        for step in range(8):
            a = operands.query_step(queries, step)
            for tile in range(TILES):
                found[tile] = mma_16816("f16", found[tile], a, next(keys[tile]))
        for tile in range(TILES):
            for i in range(4):
                scores[4 * tile + i] = found[tile][i]

    @cute.jit
    def hide(self, scores: cute.Tensor, first: Int32, lane: Int32, visible: Int32):
        """Tokens from `visible` of the page on get no weight. first: token of the first tile."""
        # As a loop, whose second turn does nothing: a branch would become instructions that all pages execute.
        for turn in cutlass.range(select(visible < first + 8 * TILES, Int32(2), Int32(0)), unroll=1):
            limit = visible - first + turn * 128
            for tile in cutlass.range_constexpr(TILES):
                for i in cutlass.range_constexpr(4):
                    token = 8 * tile + 2 * (lane % 4) + i % 2
                    scores[4 * tile + i] = select(token < limit, scores[4 * tile + i], Float32(-INFINITY))

    @cute.jit
    def propose(
        self,
        proposed: Int32,
        scores: cute.Tensor,
        states: Int32,
        lane: Int32,
        factors: cute.Tensor,
        top: cute.Tensor,
    ) -> Boolean:
        """Reads the rows' factors and maxima; proposes higher maxima where scores are too far above them.

        Gives whether any lane of the warp did so. NaN among the scores is ignored here and comes back through the
        weights. Rows decide for themselves, so that none depends on its neighbours.
        """
        most = [scores[0], scores[2]]
        for tile in cutlass.range_constexpr(TILES):
            for i in cutlass.range_constexpr(4):
                most[i // 2] = half.max_f32(most[i // 2], scores[4 * tile + i])
        for i in cutlass.range_constexpr(2):
            factors[i], top[i] = memory.load_shared_f32x2(states + 64 * i)
        most = [most[i] * factors[i] for i in range(2)]
        grown = [Boolean(most[i] > top[i] + Float32(HEADROOM)) for i in range(2)]
        any_grown = cute.arch.vote_any_sync(grown[0] | grown[1])
        if any_grown:
            for i in cutlass.range_constexpr(2):
                of_row = most[i]
                for offset in cutlass.range_constexpr(1, 3):
                    of_row = half.max_f32(of_row, cute.arch.shuffle_sync_bfly(of_row, offset=offset))
                if Boolean(lane % 4 == 0) & Boolean(of_row > top[i] + Float32(HEADROOM)):
                    ordered.max_shared(proposed + 32 * i, ordered.key(of_row))
        return any_grown

    @cute.jit
    def raise_top(self, proposed: Int32, top: cute.Tensor, sums: cute.Tensor, weights: cute.Tensor):
        """Takes the proposed maxima of the rows and shrinks the sums to them."""
        for i in cutlass.range_constexpr(2):
            key = memory.load_shared_32(proposed + 32 * i)
            value = select(key == Uint32(0), Float32(-INFINITY), ordered.value(key))
            new = select(value > top[i] + Float32(HEADROOM), value, top[i])
            shrink = select(top[i] == new, Float32(1.0), half.exp2(top[i] - new))
            shrink = select(top[i] == Float32(-INFINITY), Float32(0.0), shrink)
            top[i] = new
            weights[i] = weights[i] * shrink
            for n in cutlass.range_constexpr(4):
                for j in cutlass.range_constexpr(2):
                    sums[4 * n + 2 * i + j] = sums[4 * n + 2 * i + j] * shrink

    @cute.jit
    def store_weights(
        self, scores: cute.Tensor, factors: cute.Tensor, top: cute.Tensor, target: Int32, own: cute.Tensor
    ):
        """Weights of the 16 rows and the warp's tokens; their sums are added to `own`."""
        shift = [select(top[i] == Float32(-INFINITY), Float32(0.0), -top[i]) for i in range(2)]
        for tile in cutlass.range_constexpr(0, TILES, 2):
            values = []
            for i in cutlass.range_constexpr(8):
                row = i % 4 // 2
                value = half.exp2(half.fma_f32(scores[4 * tile + i], factors[row], shift[row]))
                own[row] = own[row] + value
                values.append(value)
            packed = [half.pack_f16x2(values[2 * i], values[2 * i + 1]) for i in range(4)]
            moves.store_matrices(target + 16 * tile, *packed)

    # Products with V.

    @cute.jit
    def tabulate(self, scales: Int32, table: Int32, thread: Int32, visible: Int32):
        """Scales of V of two tokens and four groups a thread, as FP16 pairs of the two; hidden tokens get zero.

        In the table, group g has 16 rows (4 j + c) of four pairs m: of tokens 32 j + 8 m + 2 c and the next.
        """
        pair = thread // 2
        first = 4 * (thread % 2)
        low = memory.load_shared_32(scales + 16 * pair + first)
        high = memory.load_shared_32(scales + 16 * pair + first + 8)
        low = select(2 * pair < visible, low, Uint32(0))
        high = select(2 * pair + 1 < visible, high, Uint32(0))
        place = table + first * TABLE_GROUP + pair // 16 * 64 + pair % 4 * 16 + pair // 4 % 4 * 4
        for i in cutlass.range_constexpr(4):
            both = half.e4m3x2_to_f16x2(half.prmt(low, high, (4 + i) << 4 | i))
            memory.store_shared_32(place + i * TABLE_GROUP, both)

    @cute.jit
    def add_values(
        self, shared: Int32, at: Int32, buffer: Int32, warp: Int32, lane: Int32, code_factors: tuple, sums: cute.Tensor
    ):
        """Adds the products of the page's weights and V to the sums."""
        codes = at + V_AT + lane * 64 + 16 * warp
        table = shared + TABLE_AT + buffer * TABLE_BYTES + (2 * warp + lane // 16) * TABLE_GROUP + lane % 4 * 16
        source = shared + WEIGHTS_AT + buffer * WEIGHTS_BYTES + self.row_offset(lane)
        for part in cutlass.range_constexpr(4):
            found = moves.load_matrices_transposed(codes + 2048 * part)
            scales = memory.load_shared_128(table + 64 * part)
            values = []
            for m in cutlass.range_constexpr(4):
                pairs = half.e2m1x8_to_f16x2_by_products(found[m], *code_factors)
                values.append([half.mul_f16x2(pair, scales[m]) for pair in pairs])
            for step in cutlass.range_constexpr(2):
                a = moves.load_matrices(source + 64 * part + 32 * step)
                for n in cutlass.range_constexpr(4):
                    b = (values[2 * step][n], values[2 * step + 1][n])
                    product = mma_16816("f16", [sums[4 * n + j] for j in range(4)], a, b)
                    for j in cutlass.range_constexpr(4):
                        sums[4 * n + j] = product[j]


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
