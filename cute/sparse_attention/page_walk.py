"""The walk of four warps of sparse_attention from page to page of NVFP4, for a query token and KV head.

All four work on one page together. In the products with K a warp has a quarter of the page's tokens, in those with V a
quarter of the dims; the weights go from the first to the second through shared memory. So a warp's sums are few.
A row's maximum is that of all four. Weights are taken with the one known so far; if a page holds a score that is too
far above it, all warps learn so at the barrier between the two products, and raise it before they go on. A page costs
one barrier.

A page has 16 tiles of 8 tokens, four a warp in the products with K. Pair q of tile j is token 32 q + 2 (j ^ q) and the
next. V lies in shared memory in four parts of 32 tokens with 16 bytes between them: so the eight rows of a tile, of 64
bytes each, lie in different banks where matrices of them are moved, and the exclusive or does the same for scales of K.

The 16 query heads of a KV head are the rows of m16n8k16 products. Column r of the n-th of a warp's four products with V
is dim 32 warp + 4 r + n, so that a lane takes four codes of each of two tokens with one transposed move of matrices.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import matrix_moves as moves
from msa_ops.cute.common import ordered_floats as ordered
from msa_ops.cute.common.asm import select
from msa_ops.cute.common.warp_mma import mma_16816
from msa_ops.cute.sparse_attention import operands
from msa_ops.cute.sparse_attention.sm90_configs import PAGE, ROWS
from msa_ops.cute.sparse_attention.sm90_pages_configs import (
    ENTRY_BYTES,
    K_SCALES_AT,
    KEYS_BYTES,
    PART_BYTES,
    PARTS,
    PROPOSED_AT,
    QUERIES_AT,
    RING_AT,
    SCALES_BYTES,
    STAGE_BYTES,
    STAGES,
    STATES_AT,
    TABLE_AT,
    TABLE_BYTES,
    TABLE_GROUP,
    TABLE_HALF,
    V_AT,
    V_SCALES_AT,
    WARPS,
    WEIGHTS_AT,
    WEIGHTS_BYTES,
    WEIGHTS_ROW,
)

INFINITY = float("inf")
HEADROOM = 4.0
"""Scores may grow by so much (base 2) before what is taken for 1 follows; so it seldom has to.

It stands HEADROOM - 1 above the highest score that it followed: weights of 2 and more show that it must follow again.
"""
LOWEST = -3.4028234663852886e38
"""What is taken for 1 before any score is known: all weights are then infinite, or 0 for hidden tokens."""
TILES = 4
"""Of 8 tokens, of a page for a warp in the products with K."""


class PageWalk:
    """alone: the four warps are their thread block; else they have a barrier of their own."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone

    def meet(self, barrier: Int32) -> None:
        """All four warps; `barrier`: its number."""
        if self.alone:
            cute.arch.barrier()
        else:
            cute.arch.barrier(barrier_id=barrier, number_of_threads=32 * WARPS)

    def any_thread(self, condition: Boolean, barrier: Int32) -> Int32:
        """The same; 1 if the condition holds for any thread, else 0."""
        return moves.any_thread(condition) if self.alone else moves.any_thread_of(condition, barrier, 32 * WARPS)

    @cute.jit
    def reset(self, shared: Int32, thread: Int32):
        """Before any page: no score is known. A barrier is to follow."""
        if thread < ROWS:
            memory.store_shared_32(shared + PROPOSED_AT + 4 * thread, Uint32(0))
            memory.store_shared_f32(shared + STATES_AT + 8 * thread + 4, Float32(LOWEST))

    @cute.jit
    def begin(
        self,
        shared: Int32,
        entries: Int32,
        warp: Int32,
        items: Int32,
        before: Int32,
        offsets: tuple,
        policy: Int64,
    ):
        """Starts the copies of the first pages. The arguments of `walk`."""
        if warp < STAGES:
            if warp < items:
                stage = (before + warp) & 1
                entry = entries + warp * ENTRY_BYTES
                self.bring_keys(shared, stage, entry, offsets[0], offsets[2], policy)
                self.bring_values(shared, stage, entry, offsets[1], policy)

    @cute.jit
    def walk(
        self,
        shared: Int32,
        entries: Int32,
        warp: Int32,
        lane: Int32,
        items: Int32,
        before: Int32,
        barrier: Int32,
        offsets: tuple,
        policy: Int64,
        code_factor: Int32,
        sums: cute.Tensor,
        weights: cute.Tensor,
    ):
        """Adds `items` pages to the sums, which are relative to the rows' maxima in shared memory.

        entries: the list of pages. before: pages that went through the two stages before, none if `alone`. offsets:
        from a head's K in a page to its scales, to V, to the scales of V. weights: this lane's share of the sums of
        weights.
        """
        code_factors = (code_factor >> 7, code_factor)
        if cutlass.const_expr(self.alone):
            # Two pages a turn, so that stages are constants.
            for turn in cutlass.range((items + 1) // 2, unroll=1):
                for stage in cutlass.range_constexpr(2):
                    item = 2 * turn + stage
                    if Boolean(stage == 0) | Boolean(item < items):
                        self.page(
                            shared,
                            entries,
                            warp,
                            lane,
                            item,
                            items,
                            Int32(stage),
                            turn & 1,
                            barrier,
                            offsets,
                            policy,
                            code_factors,
                            sums,
                            weights,
                        )
        else:
            for item in cutlass.range(items, unroll=1):
                number = before + item
                self.page(
                    shared,
                    entries,
                    warp,
                    lane,
                    item,
                    items,
                    number & 1,
                    (number >> 1) & 1,
                    barrier,
                    offsets,
                    policy,
                    code_factors,
                    sums,
                    weights,
                )

    @cute.jit
    def page(
        self,
        shared: Int32,
        entries: Int32,
        warp: Int32,
        lane: Int32,
        item: Int32,
        items: Int32,
        stage: Int32,
        parity: Int32,
        barrier: Int32,
        offsets: tuple,
        policy: Int64,
        code_factors: tuple,
        sums: cute.Tensor,
        weights: cute.Tensor,
    ):
        """Adds a page, which is in a stage for a time of that parity, and asks for what takes its place."""
        at = shared + RING_AT + stage * STAGE_BYTES
        entry = entries + item * ENTRY_BYTES
        visible = Int32(memory.load_shared_32(entry + 8))
        bulk_copy.barrier_wait(shared + 8 * stage, parity)
        self.weigh_page(shared, at, stage, warp, lane, visible, barrier, code_factors, sums, weights)
        # All warps are done with this page's keys and scales and with the last page's values.
        if warp == (item & 3):
            if item + 2 < items:
                self.bring_keys(shared, stage, entry + 2 * ENTRY_BYTES, offsets[0], offsets[2], policy)
            if Boolean(item > 0) & Boolean(item + 1 < items):
                self.bring_values(shared, stage ^ 1, entry + ENTRY_BYTES, offsets[1], policy)
        self.add_values(shared, at, stage, parity, warp, lane, code_factors, sums)

    @cute.jit
    def bring_keys(
        self,
        shared: Int32,
        stage: Int32,
        entry: Int32,
        k_scale_from_k: Int64,
        v_scale_from_k: Int64,
        policy: Int64,
    ):
        """Starts the copies of a page's K and of all its scales. For one warp."""
        page, _ = memory.load_shared_i64x2(entry)
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
        page, _ = memory.load_shared_i64x2(entry)
        barrier = shared + 8 * (STAGES + stage)
        with cute.arch.elect_one():
            bulk_copy.barrier_expect(barrier, Int32(KEYS_BYTES))
            target = shared + (RING_AT + V_AT) + stage * STAGE_BYTES
            size = KEYS_BYTES // PARTS
            for i in cutlass.range_constexpr(PARTS):
                source = page + v_from_k + Int64(size * i)
                bulk_copy.bulk_load(target + PART_BYTES * i, source, Int32(size), barrier, policy)

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
        barrier: Int32,
        code_factors: tuple,
        sums: cute.Tensor,
        weights: cute.Tensor,
    ):
        """Puts weights of a page's tokens and scales of V into shared memory for all warps; ends behind a barrier."""
        target = shared + WEIGHTS_AT + buffer * WEIGHTS_BYTES + 64 * warp + self.row_offset(lane)
        states = shared + STATES_AT + lane // 4 * 8
        proposed = shared + PROPOSED_AT + lane // 4 * 4
        scores = cute.make_rmem_tensor(cute.make_layout((4 * TILES,)), Float32)
        codes = [self.codes_of_tile(at, warp, lane, tile) for tile in range(TILES)]
        # Behind these loads, which would otherwise wait for its stores.
        v_scales, table = at + V_SCALES_AT, shared + TABLE_AT + buffer * TABLE_BYTES
        self.tabulate(v_scales, table, warp, lane, None)
        keys = [self.keys_of_tile(*of_tile, code_factors) for of_tile in codes]
        self.multiply(shared + QUERIES_AT + lane * 16, keys, scores)
        self.hide(scores, v_scales, table, warp, lane, visible)
        top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        factors = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        for i in cutlass.range_constexpr(2):
            factors[i], top[i] = memory.load_shared_f32x2(states + 64 * i)
        words = cute.make_rmem_tensor(cute.make_layout((2 * TILES,)), Uint32)
        own = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)  # sums of this page's weights
        self.store_weights(scores, factors, top, target, words, own)
        grown = cute.arch.vote_any_sync(self.any_large(words))
        if grown:
            self.propose(proposed, scores, factors, top, lane)
        if self.any_thread(grown, barrier) != 0:
            self.raise_top(proposed, top, sums, weights)
            self.store_weights(scores, factors, top, target, words, own)
            if Boolean(warp == 0) & Boolean(lane % 4 == 0):
                for i in cutlass.range_constexpr(2):
                    memory.store_shared_f32(states + 64 * i + 4, top[i])
            self.meet(barrier)
        for i in cutlass.range_constexpr(2):
            weights[i] = weights[i] + own[i]

    def row_offset(self, lane: Int32) -> Int32:
        """Of the row of 16 bytes whose address the lane gives when four matrices of weights are moved."""
        return lane % 16 * WEIGHTS_ROW + lane // 16 * 16

    def pair_of_tile(self, four: Int32, q: Int32, tile) -> Int32:
        """Half the first token of pair q of a tile of the `four`th four, which are those of a warp."""
        return 16 * q + 4 * four + (Int32(tile) ^ q)

    def codes_of_tile(self, at: Int32, warp: Int32, lane: Int32, tile: int) -> tuple:
        """The lane's four words of codes of a tile of 8 tokens, and their two scales."""
        column = lane % 4
        token = 2 * self.pair_of_tile(warp, lane // 8, tile) + lane // 4 % 2
        words = memory.load_shared_128(at + (token * 64 + column * 16))
        return words, memory.load_shared_16(at + (K_SCALES_AT + token * 8 + column * 2))

    def keys_of_tile(self, words: tuple, scales: Uint32, code_factors: tuple):
        """Generates, for 8 steps, the two registers of a tile of 8 tokens."""
        scales = half.e4m3x2_to_f16x2(scales)
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
    def hide(self, scores: cute.Tensor, v_scales: Int32, table: Int32, warp: Int32, lane: Int32, visible: Int32):
        """Tokens from `visible` of the page on get no weight, and scales of V that are zero."""
        # As a loop, whose second turn does nothing: a branch would become instructions that all pages execute.
        for turn in cutlass.range(select(visible < PAGE, Int32(2), Int32(0)), unroll=1):
            limit = visible + turn * PAGE
            self.tabulate(v_scales, table, warp, lane, visible)
            for tile in cutlass.range_constexpr(TILES):
                for i in cutlass.range_constexpr(4):
                    token = 2 * self.pair_of_tile(warp, lane % 4, tile) + i % 2
                    scores[4 * tile + i] = select(token < limit, scores[4 * tile + i], Float32(-INFINITY))

    def any_large(self, words: cute.Tensor) -> Boolean:
        """Whether any of the weights is 2 or more: then the highest bit of its exponent is set."""
        found = words[0]
        for i in range(1, 2 * TILES):
            found = found | words[i]
        return Boolean((found & Uint32(0x40004000)) != Uint32(0))

    @cute.jit
    def propose(self, proposed: Int32, scores: cute.Tensor, factors: cute.Tensor, top: cute.Tensor, lane: Int32):
        """Proposes what is to be taken for 1 in rows whose scores are too far above that.

        NaN among the scores is ignored here and comes back through the weights. Rows decide for themselves, so that
        none depends on its neighbours.
        """
        most = [scores[0], scores[2]]
        for tile in cutlass.range_constexpr(TILES):
            for i in cutlass.range_constexpr(4):
                most[i // 2] = half.max_f32(most[i // 2], scores[4 * tile + i])
        for i in cutlass.range_constexpr(2):
            of_row = most[i] * factors[i]
            for offset in cutlass.range_constexpr(1, 3):
                of_row = half.max_f32(of_row, cute.arch.shuffle_sync_bfly(of_row, offset=offset))
            if Boolean(lane % 4 == 0) & Boolean(of_row > top[i] + Float32(1.0)):
                ordered.max_shared(proposed + 32 * i, ordered.key(of_row))

    @cute.jit
    def raise_top(self, proposed: Int32, top: cute.Tensor, sums: cute.Tensor, weights: cute.Tensor):
        """Takes what was proposed for the rows and shrinks the sums to it."""
        for i in cutlass.range_constexpr(2):
            key = memory.load_shared_32(proposed + 32 * i)
            value = select(key == Uint32(0), Float32(-INFINITY), ordered.value(key))
            new = select(value > top[i] + Float32(1.0), value + Float32(HEADROOM - 1.0), top[i])
            shrink = select(top[i] == new, Float32(1.0), half.exp2(top[i] - new))
            top[i] = new
            weights[i] = weights[i] * shrink
            for n in cutlass.range_constexpr(4):
                for j in cutlass.range_constexpr(2):
                    sums[4 * n + 2 * i + j] = sums[4 * n + 2 * i + j] * shrink

    def store_weights(
        self,
        scores: cute.Tensor,
        factors: cute.Tensor,
        top: cute.Tensor,
        target: Int32,
        words: cute.Tensor,
        own: cute.Tensor,
    ) -> None:
        """Weights of the 16 rows and the warp's tokens, as pairs, and their sums."""
        totals = [None, None]
        for tile in range(0, TILES, 2):
            for i in range(4):
                row = i % 2
                low, high = (
                    half.exp2(half.fma_f32(scores[4 * tile + 2 * i + j], factors[row], -top[row])) for j in range(2)
                )
                totals[row] = low + high if totals[row] is None else totals[row] + (low + high)
                words[2 * tile + i] = half.pack_f16x2(low, high)
            moves.store_matrices(target + 16 * tile, *[words[2 * tile + i] for i in range(4)])
        for row in range(2):
            own[row] = totals[row]

    # Products with V.

    def tabulate(self, scales: Int32, table: Int32, warp: Int32, lane: Int32, visible: Int32 | None) -> None:
        """Scales of V of a pair of tokens and four groups a thread, as FP16 pairs of the two.

        Tokens from `visible` on get zero, unless it is None: `hide` corrects those few pages that end early.

        In the table, group g has 16 rows (4 j + c) of four pairs m: pair c of tile 4 j + m of the page.
        """
        of_dims = lane % 2
        m = lane // 2 % 4
        c = warp % 2 * 2 + lane // 8 % 2
        j = warp // 2 * 2 + lane // 16
        pair = self.pair_of_tile(j, c, m)
        source = scales + (16 * pair + 4 * of_dims)
        low = memory.load_shared_32(source)
        high = memory.load_shared_32(source + 8)
        if visible is not None:
            low = select(2 * pair < visible, low, Uint32(0))
            high = select(2 * pair + 1 < visible, high, Uint32(0))
        place = table + (of_dims * TABLE_HALF + 64 * j + 16 * c + 4 * m)
        for i in range(4):
            both = half.e4m3x2_to_f16x2(half.prmt(low, high, (4 + i) << 4 | i))
            memory.store_shared_32(place + i * TABLE_GROUP, both)

    @cute.jit
    def add_values(
        self,
        shared: Int32,
        at: Int32,
        buffer: Int32,
        parity: Int32,
        warp: Int32,
        lane: Int32,
        code_factors: tuple,
        sums: cute.Tensor,
    ):
        """Adds the products of the page's weights and V to the sums."""
        q = lane // 2 % 4
        row = 2 * (lane // 8 ^ q) + lane % 2
        codes = at + (V_AT + q * PART_BYTES + 64 * row + 16 * warp)
        group = warp // 2 * TABLE_HALF + (warp % 2 * 2 + lane // 16) * TABLE_GROUP
        table = shared + TABLE_AT + buffer * TABLE_BYTES + (group + lane % 4 * 16)
        source = shared + WEIGHTS_AT + buffer * WEIGHTS_BYTES + self.row_offset(lane)
        # What does not come with V is loaded before the wait for it.
        first_scales = memory.load_shared_128(table)
        first_weights = moves.load_matrices(source)
        bulk_copy.barrier_wait(shared + 8 * (STAGES + buffer), parity)
        for part in cutlass.range_constexpr(4):
            found = moves.load_matrices_transposed(codes + 512 * part)
            scales = first_scales if part == 0 else memory.load_shared_128(table + 64 * part)
            values = []
            for m in cutlass.range_constexpr(4):
                pairs = half.e2m1x8_to_f16x2_by_products(found[m], *code_factors)
                values.append([half.mul_f16x2(pair, scales[m]) for pair in pairs])
            for step in cutlass.range_constexpr(2):
                first = part == 0 and step == 0
                a = first_weights if first else moves.load_matrices(source + 64 * part + 32 * step)
                for n in cutlass.range_constexpr(4):
                    b = (values[2 * step][n], values[2 * step + 1][n])
                    product = mma_16816("f16", [sums[4 * n + j] for j in range(4)], a, b)
                    for j in cutlass.range_constexpr(4):
                        sums[4 * n + j] = product[j]
