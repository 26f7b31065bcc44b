"""sparse_attention on Hopper: one cluster of thread blocks for each query token and KV head.

The blocks of a cluster deal the token's pages out among themselves, and the warps of a block share out each page by
tokens; every warp brings its tokens in through a ring of bulk copies of its own and keeps running sums of its own, so
nobody waits for anybody until the end. There the warps' sums meet in shared memory and the blocks' sums through the
cluster's distributed shared memory, always in the same order: results repeat to the bit, and there is no workspace.

The 16 query heads of a KV head are the 16 rows of m16n8k16 products. K and V are the second operand: a thread reads
what it needs of them straight from the raw bytes and unpacks it in registers, each value once in the whole block. Which
dimension is which column of a product is free, as long as both operands agree, and chosen so that a thread's share is
contiguous: 32 dimensions of a token of K, 16 of V.

NVFP4 and FP8 become FP16 exactly. For that q, which is BF16, is scaled by a power of two for each row.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common.asm import select
from msa_ops.cute.common.warp_mma import mma_16816
from msa_ops.cute.sparse_attention.sm90_configs import (
    COUNT_AT,
    FAMILY,
    HEAD_DIM,
    LIST_AT,
    PAGE,
    ROW_BYTES,
    ROWS,
    SCALE_BYTES,
    STATISTICS_AT,
    Config,
    rings_at,
    shared_memory,
    sums_at,
)

INFINITY = float("inf")
HEADROOM = 8.0
"""Weights may grow to 2^8 before the running maximum follows; so it seldom has to."""
Q_EXPONENT = 14
"""The largest element of a scaled row of q has this exponent."""


class SparseAttentionSm90:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.kind = "bf16" if config.kv_format == "bf16" else "f16"
        self.threads = 32 * config.warps
        self.tiles = config.chunk // 8  # of 8 tokens
        self.steps = config.chunk // 16  # of 16 tokens
        self.row_bytes = ROW_BYTES[config.kv_format]
        self.v_at = self.row_bytes if config.packed else config.chunk * self.row_bytes
        self.k_scale_at = 2 * config.chunk * self.row_bytes
        self.v_scale_at = self.k_scale_at + config.chunk * SCALE_BYTES[config.kv_format]
        self.rings = rings_at(config)
        self.sums = sums_at(config)
        self.pack = half.pack_bf16x2 if self.kind == "bf16" else half.pack_f16x2

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
        splits: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
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
            splits,
            softmax_scale,
        ).launch(
            grid=(tokens * num_kv_heads * splits, 1, 1),
            block=(self.threads, 1, 1),
            cluster=(splits, 1, 1),
            smem=shared_memory(self.config),
            min_blocks_per_mp=self.config.blocks,
            preferred_smem_carveout=100,
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
        splits: Int32,
        softmax_scale: Float32,
    ):
        config = self.config
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        row = lane // 4  # of a product; this thread also has row + 8
        column = lane % 4  # the thread has columns 2 column and 2 column + 1 of a product
        rank = block % splits
        head = block // splits % num_kv_heads
        token = block // splits // num_kv_heads

        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        barriers = shared + warp * (8 * config.stages)
        ring = shared + self.rings + warp * (config.stages * config.stage_bytes)
        if lane == 0:
            for stage in cutlass.range_constexpr(config.stages):
                bulk_copy.barrier_init(barriers + 8 * stage, 1)
            bulk_copy.barrier_init_fence()

        # This thread's part of q: dims 32 column to 32 column + 31 of both rows.
        q_words = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
        for i in cutlass.range_constexpr(2):
            q_row = row + 8 * i
            source = q.toint() + 2 * (
                Int64(token) * q_token_stride + Int64(head * group + q_row) * q_head_stride + Int64(32 * column)
            )
            for j in cutlass.range_constexpr(4):
                words = memory.load_global_128_if(source + Int64(16 * j), Int32(q_row < group))
                for k in cutlass.range_constexpr(4):
                    q_words[16 * i + 4 * j + k] = words[k]

        if warp == 0:
            self.list_pages(
                shared,
                lane,
                token,
                block_ids.toint() + 4 * (Int64(token) * ids_token_stride + Int64(head) * ids_head_stride),
                block_table.toint(),
                seq_lens.toint(),
                cu_seqlens_q.toint(),
                table_stride,
                tokens,
                batch,
                topk,
                num_pages,
                max_blocks,
            )
        cute.arch.barrier()

        # Of the list, this block has entries rank, rank + splits, ...; of each page, the warp has chunks warp, ...
        listed = Int32(memory.load_shared_32(shared + COUNT_AT))
        items = (listed - rank + splits - 1) // splits * config.chunks_of_a_warp
        cache = kv_cache.toint() + Int64(head) * Int64(head_stride)
        scales = kv_cache.toint() + Int64(head) * Int64(scale_head_stride)
        for stage in cutlass.range_constexpr(config.stages):
            if stage < items:
                self.bring(
                    Int32(stage),
                    barriers + 8 * stage,
                    ring + stage * config.stage_bytes,
                    shared,
                    warp,
                    lane,
                    rank,
                    splits,
                    cache,
                    scales,
                    page_stride,
                    k_scale_offset,
                    v_offset,
                    v_scale_offset,
                    cache_policy,
                )

        factor = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        q_parts = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
        base = softmax_scale * Float32(math.log2(math.e))
        if k_scale.toint() != Int64(0):
            base = base * memory.load_global_f32(k_scale.toint())
        self.prepare_q(q_words, q_parts, factor, base)

        sums = cute.make_rmem_tensor(cute.make_layout((64,)), Float32)
        sums.fill(0.0)
        top = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        top.fill(-INFINITY)
        weight = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
        weight.fill(0.0)
        stage = Int32(0)
        parity = Int32(0)
        for item in cutlass.range(items, unroll=1):
            at = ring + stage * config.stage_bytes
            barrier = barriers + stage * 8
            entry = shared + LIST_AT + 8 * (rank + splits * (item // config.chunks_of_a_warp))
            chunk = warp + config.warps * (item % config.chunks_of_a_warp)
            visible = Int32(memory.load_shared_32(entry + 4)) - chunk * config.chunk
            bulk_copy.barrier_wait(barrier, parity)
            if visible > 0:
                self.attend(at, lane, visible, q_parts, factor, sums, top, weight)
            cute.arch.sync_warp()
            if item + config.stages < items:
                self.bring(
                    item + config.stages,
                    barrier,
                    at,
                    shared,
                    warp,
                    lane,
                    rank,
                    splits,
                    cache,
                    scales,
                    page_stride,
                    k_scale_offset,
                    v_offset,
                    v_scale_offset,
                    cache_policy,
                )
            stage = stage + 1
            if stage == config.stages:
                stage = Int32(0)
                parity = parity ^ 1

        self.combine(
            shared,
            ring,
            warp,
            lane,
            thread,
            rank,
            splits,
            token,
            head,
            num_kv_heads,
            group,
            sums,
            top,
            weight,
            v_scale.toint(),
            out.toint(),
            lse.toint(),
        )

    @cute.jit
    def list_pages(
        self,
        shared: Int32,
        lane: Int32,
        token: Int32,
        ids: Int64,
        table: Int64,
        seq_lens: Int64,
        starts: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        topk: Int32,
        num_pages: Int32,
        max_blocks: Int32,
    ):
        """One warp writes (page, visible tokens) of all blocks that the token sees, and their number."""
        chosen = cute.make_rmem_tensor(cute.make_layout((2,)), Int32)
        for i in cutlass.range_constexpr(2):
            place = lane + 32 * i
            chosen[i] = memory.load_global_i32_if(ids + Int64(4 * place), Int32(place < topk), Int32(-1))
        request = Int32(0)
        position = Int32(-1)
        if starts == Int64(0):
            each = tokens // batch
            if each > 0:
                request = token // each
                if request < batch:
                    length = memory.load_global_i32(seq_lens + Int64(request) * 4)
                    position = length - ((request + 1) * each - token)
        else:
            # The number of requests that end at or before the token, 32 probes at a time.
            low = Int32(0)
            high = batch
            while low < high:
                step = (high - low + 31) // 32
                probe = low + (lane + 1) * step - 1
                end = memory.load_global_i32_if(starts + Int64(probe + 1) * 4, Int32(probe < high), Int32(0x7FFFFFFF))
                passed = cute.arch.popc(cute.arch.vote_ballot_sync(end <= token))
                low = low + passed * step
                high = cutlass.min(high, low + step - 1)
            request = low
            if request < batch:
                first = memory.load_global_i32(starts)
                end = memory.load_global_i32(starts + Int64(request + 1) * 4)
                length = memory.load_global_i32(seq_lens + Int64(request) * 4)
                if token >= first:
                    position = length - (end - token)
        blocks = Int32(0)
        if position >= 0:
            blocks = cutlass.min(position // PAGE + 1, max_blocks)
        pages = cute.make_rmem_tensor(cute.make_layout((2,)), Int32)
        for i in cutlass.range_constexpr(2):
            wanted = cutlass.Boolean(chosen[i] >= 0) & cutlass.Boolean(chosen[i] < blocks)
            row = table + (Int64(request) * table_stride + Int64(chosen[i])) * 4
            pages[i] = memory.load_global_i32_if(row, Int32(wanted), Int32(-1))
        count = Int32(0)
        for i in cutlass.range_constexpr(2):
            usable = cutlass.Boolean(pages[i] >= 0) & cutlass.Boolean(pages[i] < num_pages)
            votes = cute.arch.vote_ballot_sync(usable)
            place = count + cute.arch.popc(votes & ((Int32(1) << lane) - 1))
            if usable:
                visible = cutlass.min(position + 1 - chosen[i] * PAGE, PAGE)
                memory.store_shared_i32x2(shared + LIST_AT + 8 * place, pages[i], visible)
            count = count + cute.arch.popc(votes)
        if lane == 0:
            memory.store_shared_i32(shared + COUNT_AT, count)

    @cute.jit
    def bring(
        self,
        item: Int32,
        barrier: Int32,
        at: Int32,
        shared: Int32,
        warp: Int32,
        lane: Int32,
        rank: Int32,
        splits: Int32,
        cache: Int64,
        scales: Int64,
        page_stride: Int64,
        k_scale_offset: Int32,
        v_offset: Int32,
        v_scale_offset: Int32,
        policy: Int64,
    ):
        """Starts the copies of a chunk. One without visible tokens is not read."""
        config = self.config
        if lane == 0:
            entry = shared + LIST_AT + 8 * (rank + splits * (item // config.chunks_of_a_warp))
            page = Int32(memory.load_shared_32(entry))
            visible = Int32(memory.load_shared_32(entry + 4))
            first = (warp + config.warps * (item % config.chunks_of_a_warp)) * config.chunk
            if first < visible:
                bulk_copy.barrier_expect(barrier, Int32(config.stage_bytes))
                start = Int64(page) * page_stride
                k = cache + start + Int64(first * config.token_stride)
                data = Int32(config.chunk * config.token_stride)
                bulk_copy.bulk_load(at, k, data, barrier, policy)
                if cutlass.const_expr(not config.packed):
                    bulk_copy.bulk_load(at + self.v_at, k + Int64(v_offset), data, barrier, policy)
                if cutlass.const_expr(config.kv_format == "nvfp4"):
                    scale = scales + start + Int64(first * SCALE_BYTES["nvfp4"])
                    size = Int32(config.chunk * SCALE_BYTES["nvfp4"])
                    bulk_copy.bulk_load(at + self.k_scale_at, scale + Int64(k_scale_offset), size, barrier, policy)
                    bulk_copy.bulk_load(at + self.v_scale_at, scale + Int64(v_scale_offset), size, barrier, policy)
            else:
                bulk_copy.barrier_arrive(barrier)

    @cute.jit
    def prepare_q(self, words: cute.Tensor, parts: cute.Tensor, factor: cute.Tensor, base: Float32):
        """The first operand of the products with K, and what turns their results into base-2 logarithms.

        parts[4 s + i]: register i of step s. The dims of a step are those that `load_k` puts there.
        """
        if cutlass.const_expr(self.kind == "bf16"):
            for i in cutlass.range_constexpr(2):
                factor[i] = base
                for j in cutlass.range_constexpr(16):
                    parts[4 * (j // 2) + 2 * (j % 2) + i] = words[16 * i + j]
        else:
            for i in cutlass.range_constexpr(2):
                largest = Uint32(0)
                for j in cutlass.range_constexpr(16):
                    word = words[16 * i + j]
                    largest = cutlass.max(largest, word & Uint32(0x7FFF))
                    largest = cutlass.max(largest, (word >> Uint32(16)) & Uint32(0x7FFF))
                for offset in cutlass.range_constexpr(1, 3):
                    largest = cutlass.max(largest, cute.arch.shuffle_sync_bfly(largest, offset=offset))
                # For very small rows the factor ends at 2^126; for a row with infinities, at 2^-114.
                exponent = Q_EXPONENT + 127 - cutlass.max(Int32(largest >> Uint32(7)), Int32(15))
                scale = half.float_of_bits((exponent + 127) << 23)
                back = half.float_of_bits((127 - exponent) << 23)
                if cutlass.const_expr(self.config.kv_format == "nvfp4"):
                    back = back * Float32(2.0**half.E2M1_SHIFT)
                factor[i] = base * back
                floats = []
                for j in cutlass.range_constexpr(16):
                    word = words[16 * i + j]
                    floats += [
                        half.float_of_bits(Int32(word << Uint32(16))) * scale,
                        half.float_of_bits(Int32(word & Uint32(0xFFFF0000))) * scale,
                    ]
                for j in cutlass.range_constexpr(16):
                    if cutlass.const_expr(self.config.kv_format == "nvfp4"):
                        low, high = 8 * (j // 4) + j % 4, 8 * (j // 4) + j % 4 + 4
                    else:
                        low, high = 2 * j, 2 * j + 1
                    parts[4 * (j // 2) + 2 * (j % 2) + i] = half.pack_f16x2(floats[low], floats[high])

    def load_k(self, at, lane, tile: int) -> list:
        """Second operand of the 8 steps of a product with 8 tokens of K: 16 registers."""
        config = self.config
        column = lane % 4
        token = 8 * tile + ((lane // 4) ^ ((lane // 8) & 1))
        row = at + token * config.token_stride + column * (self.row_bytes // 4)
        words = []
        for i in range(self.row_bytes // 64):
            words += memory.load_shared_128(row + 16 * i)
        if config.kv_format == "bf16":
            return words
        if config.kv_format == "fp8":
            return [pair for word in words for pair in half.e4m3x4_to_f16x2(word)]
        scales = half.e4m3x2_to_f16x2(memory.load_shared_16(at + self.k_scale_at + token * 8 + column * 2))
        both = [half.prmt(scales, scales, 0x1010), half.prmt(scales, scales, 0x3232)]
        return [
            half.mul_f16x2(pair, both[i // 2]) for i, word in enumerate(words) for pair in half.e2m1x8_to_f16x2(word)
        ]

    def load_v(self, at, lane, step: int, visible) -> list:
        """Second operand of the products of 16 tokens' weights with V: for each of 16 dims, two registers.

        Tokens from `visible` on are zero, whatever stands there.
        """
        config = self.config
        group = lane // 4  # of 16 dims
        column = lane % 4
        swap = column & 1  # tokens of odd columns change places, so that half as many rows share banks
        registers = []
        for part in range(2):
            tokens = [16 * step + 8 * part + ((2 * column + i) ^ swap) for i in range(2)]
            live = select(tokens[0] < visible, Uint32(0xFFFF), Uint32(0))
            live = live | select(tokens[1] < visible, Uint32(0xFFFF0000), Uint32(0))
            rows = [at + self.v_at + t * config.token_stride + group * (self.row_bytes // 8) for t in tokens]
            if config.kv_format == "nvfp4":
                one, other = (memory.load_shared_64(row) for row in rows)
                low, high = (memory.load_shared_8(at + self.v_scale_at + t * 8 + group) for t in tokens)
                scales = half.e4m3x2_to_f16x2(half.prmt(low, high, 0x0040)) & live
                found = []
                for i in range(2):
                    for selector in (0x5410, 0x7632):
                        both = half.prmt(one[i], other[i], selector)
                        found += [half.mul_f16x2(pair, scales) for pair in half.e2m1x8_to_f16x2(both)]
            elif config.kv_format == "fp8":
                one, other = (memory.load_shared_128(row) for row in rows)
                bytes_live = half.prmt(live, live, 0x2020)
                found = []
                for i in range(4):
                    for selector in (0x5140, 0x7362):
                        both = half.prmt(one[i], other[i], selector) & bytes_live
                        found += half.e4m3x4_to_f16x2(both)
            else:
                one, other = (memory.load_shared_128(row) + memory.load_shared_128(row + 16) for row in rows)
                found = [
                    half.prmt(one[i], other[i], selector) & live for i in range(8) for selector in (0x5410, 0x7632)
                ]
            registers.append(found)
        return [list(pair) for pair in zip(*registers, strict=True)]

    @cute.jit
    def attend(
        self,
        at: Int32,
        lane: Int32,
        visible: Int32,
        q_parts: cute.Tensor,
        factor: cute.Tensor,
        sums: cute.Tensor,
        top: cute.Tensor,
        weight: cute.Tensor,
    ):
        """Adds a chunk of tokens to the running sums. `visible`: how many of them may be seen, or more."""
        tiles, chunk = self.tiles, self.config.chunk
        scores = cute.make_rmem_tensor(cute.make_layout((4 * tiles,)), Float32)
        for tile in cutlass.range_constexpr(tiles):
            k = self.load_k(at, lane, tile)
            found = (Float32(0.0),) * 4
            for step in cutlass.range_constexpr(8):
                a = [q_parts[4 * step + i] for i in range(4)]
                found = mma_16816(self.kind, found, a, k[2 * step : 2 * step + 2])
            for i in cutlass.range_constexpr(4):
                scores[4 * tile + i] = found[i] * factor[i // 2]
        if visible < chunk:
            column = lane % 4
            for tile in cutlass.range_constexpr(tiles):
                for i in cutlass.range_constexpr(4):
                    token = 8 * tile + ((2 * column + i % 2) ^ (column & 1))
                    if token >= visible:
                        scores[4 * tile + i] = Float32(-INFINITY)

        grown = []
        for i in cutlass.range_constexpr(2):
            most = scores[2 * i]
            for tile in cutlass.range_constexpr(tiles):
                for j in cutlass.range_constexpr(2):
                    most = half.max_f32(most, scores[4 * tile + 2 * i + j])
            for offset in cutlass.range_constexpr(1, 3):
                most = half.max_f32(most, cute.arch.shuffle_sync_bfly(most, offset=offset))
            # NaN among the scores is ignored here and comes back through the weights.
            grown.append(select(most > top[i] + Float32(HEADROOM), most, top[i]))
        changed = cutlass.Boolean(grown[0] != top[0]) | cutlass.Boolean(grown[1] != top[1])
        if cute.arch.vote_any_sync(changed):
            for i in cutlass.range_constexpr(2):
                shrink = half.exp2(top[i] - grown[i])
                shrink = select(top[i] == grown[i], Float32(1.0), shrink)
                shrink = select(top[i] == Float32(-INFINITY), Float32(0.0), shrink)
                top[i] = grown[i]
                weight[i] = weight[i] * shrink
                for j in cutlass.range_constexpr(16):
                    sums[4 * j + 2 * i] = sums[4 * j + 2 * i] * shrink
                    sums[4 * j + 2 * i + 1] = sums[4 * j + 2 * i + 1] * shrink
        shift = [select(top[i] == Float32(-INFINITY), Float32(0.0), top[i]) for i in range(2)]
        for tile in cutlass.range_constexpr(tiles):
            for i in cutlass.range_constexpr(4):
                value = half.exp2(scores[4 * tile + i] - shift[i // 2])
                weight[i // 2] = weight[i // 2] + value
                scores[4 * tile + i] = value

        for step in cutlass.range_constexpr(self.steps):
            a = [self.pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]) for i in range(4)]
            v = self.load_v(at, lane, step, visible)
            for i in cutlass.range_constexpr(16):
                found = mma_16816(self.kind, [sums[4 * i + j] for j in range(4)], a, v[i])
                for j in cutlass.range_constexpr(4):
                    sums[4 * i + j] = found[j]

    @cute.jit
    def combine(
        self,
        shared: Int32,
        ring: Int32,
        warp: Int32,
        lane: Int32,
        thread: Int32,
        rank: Int32,
        splits: Int32,
        token: Int32,
        head: Int32,
        num_kv_heads: Int32,
        group: Int32,
        sums: cute.Tensor,
        top: cute.Tensor,
        weight: cute.Tensor,
        v_scale: Int64,
        out: Int64,
        lse: Int64,
    ):
        """Merges the warps' sums, then the blocks', each in ascending order, and writes the result.

        Sums lie in shared memory as they lie in registers: 16 pieces of 4 dims for each lane, piece 8 i + 4 j + k of
        row + 8 i, dims 32 column + 16 j + 4 k to + 3.
        """
        config = self.config
        statistics = shared + STATISTICS_AT
        row = lane // 4
        for i in cutlass.range_constexpr(2):
            for offset in cutlass.range_constexpr(1, 3):
                weight[i] = weight[i] + cute.arch.shuffle_sync_bfly(weight[i], offset=offset)
            if lane % 4 == 0:
                place = statistics + warp * (8 * ROWS) + (row + 8 * i) * 4
                memory.store_shared_f32(place, top[i])
                memory.store_shared_f32(place + 4 * ROWS, weight[i])
            for j in cutlass.range_constexpr(2):
                for k in cutlass.range_constexpr(4):
                    piece = [sums[4 * (4 * k + n) + 2 * i + j] for n in range(4)]
                    memory.store_shared_f32x4(ring + ((8 * i + 4 * j + k) * 32 + lane) * 16, *piece)
        cute.arch.barrier()

        scale = Float32(1.0)
        if cutlass.const_expr(config.kv_format == "nvfp4"):
            scale = Float32(2.0**half.E2M1_SHIFT)
        if v_scale != Int64(0):
            scale = scale * memory.load_global_f32(v_scale)

        # The block's sums: a warp has 16 / warps pieces, all of the same rows.
        pieces = 16 // config.warps
        mine = warp * pieces
        mine_row = row + mine // 8 * 8
        tops = [memory.load_shared_f32(statistics + (w * 2 * ROWS + mine_row) * 4) for w in range(config.warps)]
        weights = [
            memory.load_shared_f32(statistics + ((w * 2 + 1) * ROWS + mine_row) * 4) for w in range(config.warps)
        ]
        most, total, shares = self.merge(tops, weights)
        rings = shared + self.rings
        merged = []
        for k in cutlass.range_constexpr(pieces):
            piece = [Float32(0.0)] * 4
            for w in cutlass.range_constexpr(config.warps):
                found = memory.load_shared_f32x4(
                    rings + w * (config.stages * config.stage_bytes) + ((mine + k) * 32 + lane) * 16
                )
                piece = [a + b * shares[w] for a, b in zip(piece, found, strict=True)]
            merged.append(piece)

        first_row = token * (num_kv_heads * group) + head * group
        if splits == 1:
            if mine_row < group:
                factor = self.normaliser(total, scale)
                place = out + Int64(first_row + mine_row) * (2 * HEAD_DIM)
                for k in cutlass.range_constexpr(pieces // 2):
                    both = [self.result(x, total, factor) for x in merged[2 * k] + merged[2 * k + 1]]
                    dim = 32 * (lane % 4) + (mine + 2 * k) % 8 * 4
                    memory.store_global_128(
                        place + Int64(2 * dim), *[half.pack_bf16x2(both[2 * n], both[2 * n + 1]) for n in range(4)]
                    )
                if cutlass.Boolean(lane % 4 == 0) & cutlass.Boolean(mine % 8 == 0):
                    memory.store_global_f32(lse + Int64(first_row + mine_row) * 4, self.log_sum(most, total))
        else:
            own = shared + self.sums
            if cutlass.Boolean(lane % 4 == 0) & cutlass.Boolean(mine % 8 == 0):
                memory.store_shared_f32(own + mine_row * 4, most)
                memory.store_shared_f32(own + (ROWS + mine_row) * 4, total)
            for k in cutlass.range_constexpr(pieces):
                memory.store_shared_f32x4(own + 8 * ROWS + ((mine + k) * 32 + lane) * 16, *merged[k])
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
            share = 1024 // splits  # pairs of values that this block finishes
            for index in cutlass.range(thread, share, self.threads, unroll=1):
                self.finish_pair(rank * share + index, own, splits, first_row, group, scale, out, lse)
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()  # nobody may leave while others read its sums

    @cute.jit
    def finish_pair(
        self,
        pair: Int32,
        own: Int32,
        splits: Int32,
        first_row: Int32,
        group: Int32,
        scale: Float32,
        out: Int64,
        lse: Int64,
    ):
        """Merges two neighbouring values of the blocks of the cluster and writes them."""
        piece = pair // 64
        lane = pair // 2 % 32
        row = lane // 4 + piece // 8 * 8
        dim = 32 * (lane % 4) + piece % 8 * 4 + pair % 2 * 2
        most = Float32(-INFINITY)
        for r in cutlass.range(splits, unroll=1):
            most = half.max_f32(most, memory.load_cluster_f32(memory.map_to_rank(own + row * 4, r)))
        total = Float32(0.0)
        low = Float32(0.0)
        high = Float32(0.0)
        for r in cutlass.range(splits, unroll=1):
            place = memory.map_to_rank(own, r)
            its_top = memory.load_cluster_f32(place + row * 4)
            share = self.share(its_top, most)
            total = total + share * memory.load_cluster_f32(place + (ROWS + row) * 4)
            its_low, its_high = memory.load_cluster_f32x2(place + 8 * ROWS + pair * 8)
            low = low + share * its_low
            high = high + share * its_high
        if row < group:
            factor = self.normaliser(total, scale)
            word = half.pack_bf16x2(self.result(low, total, factor), self.result(high, total, factor))
            memory.store_global_32(out + Int64(first_row + row) * (2 * HEAD_DIM) + Int64(2 * dim), word)
            if dim == 0:
                memory.store_global_f32(lse + Int64(first_row + row) * 4, self.log_sum(most, total))

    @staticmethod
    def share(top, most):
        """Weight of sums that were taken with the maximum `top` among others; those of nothing have none."""
        share = select(top == most, Float32(1.0), half.exp2(top - most))
        return select(top == Float32(-INFINITY), Float32(0.0), share)

    def merge(self, tops: list, weights: list) -> tuple:
        most = tops[0]
        for top in tops[1:]:
            most = half.max_f32(most, top)
        shares = [self.share(top, most) for top in tops]
        total = Float32(0.0)
        for share, weight in zip(shares, weights, strict=True):
            total = total + share * weight
        return most, total, shares

    @staticmethod
    def normaliser(total, scale):
        return scale / total

    @staticmethod
    def result(value, total, factor):
        return select(total == Float32(0.0), Float32(0.0), value * factor)

    @staticmethod
    def log_sum(most, total):
        value = (half.log2(total) + most) * Float32(math.log(2.0))
        return select(total == Float32(0.0), Float32(-INFINITY), value)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    pointers = {
        "q": pointer(BFloat16, 16),
        "kv_cache": pointer(Uint8, 16),
        "out": pointer(BFloat16, 16),
        **{name: pointer(Int32, 4) for name in ("block_ids", "block_table", "seq_lens", "cu_seqlens_q")},
        **{name: pointer(Float32, 4) for name in ("k_scale", "v_scale", "lse")},
    }
    wide = ("q_token_stride", "q_head_stride", "page_stride", "ids_token_stride", "ids_head_stride", "table_stride")
    values = {
        **pointers,
        **{name: Int64(0) for name in (*wide, "cache_policy")},
        "softmax_scale": Float32(0.0),
    }
    return SparseAttentionSm90(config), (
        *(values.get(name, Int32(0)) for name in FAMILY.arguments),
        make_fake_stream(),
    )
