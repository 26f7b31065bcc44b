"""Scores of long queries on Hopper, block by block, and the choice among the blocks.

A thread block has warpgroups that multiply and one that makes keys ready. The latter reads page after page of its run
(work.py), decodes the keys and leaves them in shared memory as operands. Each multiplying warpgroup keeps 64 x `tiles`
query rows in registers as the first operand, so the scores of one row with all keys of a block lie in four threads:
the block's maximum takes two shuffles. While one warpgroup takes maxima, another one multiplies.

Each warp puts its rows' maxima into a table of its own, 32 blocks wide. When that is full, a lane takes a row and
offers its scores to the row's list of the best 16 (choosing.py); no warp waits for another. A row whose tile this run
covers gets its result; the lists of others go to the workspace and sm90_merge.py merges them.

With `choose` off the table's scores are stored instead: that is indexer_scores.

Workspace: for thread block i of G two sets of lists, `rows` in each: set 0 of the tile that begins before its run, set
1 of the one that ends behind it.
"""

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import async_copy, bulk_copy, half_pairs, memory, streaming
from msa_ops.cute.common.asm import asm, select
from msa_ops.cute.indexer_prefill import choosing, keys, products, queries, work
from msa_ops.cute.indexer_prefill.sm90_configs import (
    CHUNK,
    LIST_STRIDE,
    PAGE,
    ROW_BYTES,
    STAGE_BYTES,
    TABLE_STRIDE,
    Config,
)

AHEAD = 6
"""Blocks before a page is read, it is brought to the L2 cache."""


class IndexerPrefillSm90:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        index_q: cute.Pointer,
        index_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        out: cute.Pointer,
        workspace: cute.Pointer,
        k_scale: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        table_stride: Int64,
        out_token_stride: Int64,
        out_head_stride: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        tile_tokens: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_dtype: Int32,
        num_blocks: Int32,
        code_factor: Int32,
        score_scale: Float32,
        stream: cuda.CUstream,
    ):
        self.kernel(
            index_q,
            index_cache,
            block_table,
            seq_lens,
            cu_seqlens,
            out,
            workspace,
            k_scale,
            q_token_stride,
            q_head_stride,
            page_stride,
            table_stride,
            out_token_stride,
            out_head_stride,
            num_pages,
            num_tokens,
            batch,
            q_len,
            num_heads,
            max_blocks,
            tile_tokens,
            topk,
            init_blocks,
            local_blocks,
            q_dtype,
            num_blocks,
            code_factor,
            score_scale,
        ).launch(
            grid=(num_blocks, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.threads, 1, 1),
            min_blocks_per_mp=1,
            smem=self.config.shared_memory,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        index_q: cute.Pointer,
        index_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        out: cute.Pointer,
        workspace: cute.Pointer,
        k_scale: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        table_stride: Int64,
        out_token_stride: Int64,
        out_head_stride: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        tile_tokens: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_dtype: Int32,
        num_blocks: Int32,
        code_factor: Int32,
        score_scale: Float32,
    ):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        stages = cute.arch.get_dyn_smem(Uint8, alignment=1024).toint()
        tables = stages + STAGE_BYTES * c.stages
        lists = tables + c.multiplying_warps * c.table_bytes
        full = lists + c.lists * c.list_bytes
        a = SimpleNamespace(
            index_q=index_q.toint(),
            index_cache=index_cache.toint(),
            block_table=block_table.toint(),
            seq_lens=seq_lens.toint(),
            cu_seqlens=cu_seqlens.toint(),
            out=out.toint(),
            workspace=workspace.toint(),
            k_scale=k_scale.toint(),
            q_token_stride=q_token_stride,
            q_head_stride=q_head_stride,
            page_stride=page_stride,
            table_stride=table_stride,
            out_token_stride=out_token_stride,
            out_head_stride=out_head_stride,
            num_pages=num_pages,
            num_tokens=num_tokens,
            batch=batch,
            q_len=q_len,
            num_heads=num_heads,
            max_blocks=max_blocks,
            tile_tokens=tile_tokens,
            enough=topk,
            topk=topk,
            init_blocks=init_blocks,
            local_blocks=local_blocks,
            q_dtype=q_dtype,
            score_scale=score_scale,
            factors=(code_factor >> 7, code_factor),
            block=block,
            warp=warp,
            lane=thread % 32,
            stages=stages,
            tables=tables,
            list=lists + (warp % c.lists) * c.list_bytes,
            group=warp // 4,
            first_row=(0 if c.alternate else warp // 4) * (64 * c.tiles) + warp % 4 * 16,
            full=full,
            empty=full + 8 * c.stages,
            exists=full + 16 * c.stages,
        )
        if thread == 0:
            for i in cutlass.range_constexpr(c.stages):
                bulk_copy.barrier_init(a.full + 8 * i, 4)
                bulk_copy.barrier_init(a.empty + 8 * i, 4 if c.alternate else c.multiplying_warps)
            bulk_copy.barrier_init_fence()
        total = work.all_pieces(a)
        a.begin = work.run_begin(block, total, num_blocks)
        a.end = work.run_begin(block + 1, total, num_blocks)
        cute.arch.sync_threads()
        if warp < c.multiplying_warps:
            asm(f"setmaxnreg.inc.sync.aligned.u32 {c.registers[0]};", [])
            if a.begin < a.end:
                self.multiply_run(a)
        else:
            asm(f"setmaxnreg.dec.sync.aligned.u32 {c.registers[1]};", [])
            if a.begin < a.end:
                self.load_run(a)

    # The warpgroup that makes keys ready.

    @cute.jit
    def load_run(self, a):
        c = self.config
        loader, warp = a.group - c.groups, a.warp % 4
        p = keys.place(warp, a.lane, c.index_format)
        slot, parity, turn = Int32(0), Int32(1), Int32(0)  # the first turn of each stage finds it empty
        behind = Int32(-1)  # the stage whose copies are under way
        request, begin, tokens, position, tile, first = work.first_segment(a, a.begin)
        piece = a.begin
        while piece < a.end:
            pages = work.tile_pages(a, tokens, position, tile)
            stop = first + (a.end - piece)
            stop = pages if stop > pages else stop
            row = a.block_table + Int64(request) * (a.table_stride * 4)
            # Each lane knows one of the next 32 pages, and one of the 32 behind those.
            ids = self.look_up(a, row, first + a.lane, stop)
            next_ids = self.look_up(a, row, first + 32 + a.lane, stop)
            if turn == loader:
                for ahead in cutlass.range_constexpr(AHEAD):
                    self.prefetch(a, cute.arch.shuffle_sync(ids, ahead), warp)
            for b in cutlass.range(first, stop, unroll=1):
                at = (b - first) % 32
                if at == 0 and b > first:
                    ids = next_ids
                    next_ids = self.look_up(a, row, b + 32 + a.lane, stop)
                page = cute.arch.shuffle_sync(ids, at)
                if turn == loader:
                    near, far = (
                        cute.arch.shuffle_sync(ids, (at + AHEAD) % 32),
                        cute.arch.shuffle_sync(next_ids, (at + AHEAD) % 32),
                    )
                    self.prefetch(a, near if at + AHEAD < 32 else far, warp)
                    behind = self.load_page(a, p, page, slot, parity, behind, warp)
                turn = Int32(0) if turn == c.loaders - 1 else turn + 1
                slot = slot + 1
                if slot == c.stages:
                    slot = Int32(0)
                    parity = parity ^ 1
            piece = piece + (stop - first)
            first = Int32(0)
            if piece < a.end:
                request, begin, tokens, position, tile = work.next_segment(a, request, begin, tokens, position, tile)
        if cutlass.const_expr(c.index_format == "bf16"):
            async_copy.wait(0)
            if behind >= 0:
                self.ready(a, behind)

    @cute.jit
    def look_up(self, a, row: Int64, block: Int32, stop: Int32) -> Int32:
        """Page id of a block as the table has it; -1 from `stop` on. Nothing waits for the table here."""
        page = Int32(-1)
        if block < stop:
            page = streaming.load_i32(row + Int64(block) * 4)
        return page

    @cute.jit
    def prefetch(self, a, page: Int32, warp: Int32):
        """Brings a page to the L2 cache; bf16 keys are copied far enough ahead without it."""
        lines = PAGE * (ROW_BYTES[self.config.index_format] + (8 if self.config.index_format == "nvfp4" else 0)) // 128
        lines = 0 if self.config.index_format == "bf16" else lines
        if page >= 0 and page < a.num_pages:
            source = a.index_cache + Int64(page) * a.page_stride
            for i in cutlass.range_constexpr((lines + 127) // 128):
                line = warp * 32 + a.lane + 128 * i
                if line < lines:
                    memory.prefetch_global(source + Int64(line * 128))

    @cute.jit
    def load_page(self, a, p, page: Int32, slot: Int32, parity: Int32, behind: Int32, warp: Int32) -> Int32:
        """One page into a stage, if there is such a page; gives the stage that is still being copied to."""
        c = self.config
        exists = page >= 0 and page < a.num_pages
        source = a.index_cache + Int64(page) * a.page_stride
        stage = a.stages + slot * STAGE_BYTES
        if cutlass.const_expr(c.index_format == "bf16"):
            bulk_copy.barrier_wait(a.empty + 8 * slot, parity)
            if warp == 0 and a.lane == 0:
                memory.store_shared_i32(a.exists + 4 * slot, Int32(exists))
            if exists:
                keys.copy(stage, source, p)
            async_copy.commit()
            if behind >= 0:
                async_copy.wait(1)
                self.ready(a, behind)
            behind = slot
        else:
            words = cute.make_rmem_tensor(cute.make_layout((16 if c.index_format == "nvfp4" else 32,)), Uint32)
            scales = cute.make_rmem_tensor(cute.make_layout((4,)), Uint32)
            if exists:
                keys.load(c.index_format, source, p, words, scales)
            bulk_copy.barrier_wait(a.empty + 8 * slot, parity)
            if warp == 0 and a.lane == 0:
                memory.store_shared_i32(a.exists + 4 * slot, Int32(exists))
            if exists:
                keys.store(c.index_format, stage, p, words, scales, a.factors)
            self.ready(a, slot)
        return behind

    @cute.jit
    def ready(self, a, slot: Int32):
        """What this warp wrote to a stage may be multiplied."""
        bulk_copy.order_before_copies()
        cute.arch.sync_warp()
        if a.lane == 0:
            bulk_copy.barrier_arrive(a.full + 8 * slot)

    # Warpgroups that multiply.

    @cute.jit
    def multiply_run(self, a):
        c = self.config
        rows = cute.make_rmem_tensor(cute.make_layout((32 * c.tiles,)), Uint32)
        last = cute.make_rmem_tensor(cute.make_layout((2 * c.tiles,)), Int32)
        scale = a.score_scale
        if cutlass.const_expr(not c.choose):
            if a.k_scale != Int64(0):
                scale = scale * streaming.load_f32(a.k_scale)
        slot, parity, turn, chunk = Int32(0), Int32(0), Int32(0), Int32(0)
        request, begin, tokens, position, tile, first = work.first_segment(a, a.begin)
        piece = a.begin
        while piece < a.end:
            pages = work.tile_pages(a, tokens, position, tile)
            stop = first + (a.end - piece)
            stop = pages if stop > pages else stop
            tile_begin = tile * a.tile_tokens
            there = tokens - tile_begin
            there = a.tile_tokens if there > a.tile_tokens else there
            there = there * a.num_heads  # rows of the tile
            self.load_rows(a, begin + tile_begin, position + tile_begin, there, rows, last)
            # The row that this lane chooses for.
            mine = self.row_of_lane(a)
            token = mine // a.num_heads
            head = mine - token * a.num_heads
            count = Int32(0)
            output = Int64(0)
            if mine < there and a.lane < c.warp_rows:
                count = work.visible_blocks(a, position + tile_begin + token)
                output = Int64(begin + tile_begin + token) * a.out_token_stride + Int64(head) * a.out_head_stride
                output = a.out + output * 4
            low, high, rest = choosing.limits(count, a.topk, a.init_blocks, a.local_blocks)
            seen_by_all = position + tile_begin
            # The groups come to choose at different times, so that one of them multiplies.
            column, width = Int32(0), Int32(CHUNK)
            if cutlass.const_expr(not c.alternate):
                width = CHUNK - a.group * (CHUNK // c.groups)
            for b in cutlass.range(first, stop, unroll=1):
                table = a.tables + (self.keeper(a, chunk) * 4 + a.warp % 4) * c.table_bytes
                if cutlass.const_expr(c.alternate):
                    if turn == a.group:
                        self.score_block(a, rows, last, there, b, slot, parity, seen_by_all, table, column)
                    turn = turn ^ 1
                else:
                    self.score_block(a, rows, last, there, b, slot, parity, seen_by_all, table, column)
                slot = slot + 1
                if slot == c.stages:
                    slot = Int32(0)
                    parity = parity ^ 1
                column = column + 1
                if column == width or b + 1 == stop:
                    # In turns of blocks, a warp's partner has the other scores of its rows.
                    if cutlass.const_expr(c.alternate):
                        cute.arch.barrier(barrier_id=1 + a.warp % 4, number_of_threads=64)
                    else:
                        cute.arch.sync_warp()
                    if self.keeper(a, chunk) == a.group:
                        if cutlass.const_expr(c.choose):
                            self.choose(a, table, first, b + 1 - column, b + 1, low, high)
                            if b + 1 == stop and output != Int64(0):
                                own = a.list + a.lane * LIST_STRIDE
                                if first == 0 and stop == pages:
                                    choosing.write_row(output, own, count, low, high, rest, a.topk)
                                elif count > a.topk:
                                    side = Int32(1) if first == 0 else Int32(0)
                                    at = Int64((a.block * 2 + side) * c.rows + mine)
                                    choosing.keep_row(a.workspace + at * 128, own)
                        else:
                            self.store_scores(a, table, b + 1 - column, column, output, scale)
                    cute.arch.sync_warp()
                    column, width = Int32(0), Int32(CHUNK)
                    if cutlass.const_expr(c.alternate):
                        chunk = chunk ^ 1
            piece = piece + (stop - first)
            first = Int32(0)
            if piece < a.end:
                request, begin, tokens, position, tile = work.next_segment(a, request, begin, tokens, position, tile)

    def row_of_lane(self, a) -> Int32:
        """Lane 16 u + x of warp w of a warpgroup has its row 64 u + 16 w + x."""
        return a.first_row + (a.lane // 16) * 64 + a.lane % 16

    def keeper(self, a, chunk: Int32) -> Int32:
        """The warpgroup whose tables take a chunk, and whose warps choose from them."""
        return chunk if self.config.alternate else a.group

    @cute.jit
    def load_rows(self, a, first_token: Int32, first_position: Int32, there: Int32, rows, last):
        """The warpgroup's queries, and for each of the lane's rows the position that it sees up to, -1 for none."""
        c = self.config
        words = [cute.make_rmem_tensor(cute.make_layout((16,)), Uint32) for _ in range(2 * c.tiles)]
        for i in cutlass.range_constexpr(2 * c.tiles):
            row = a.first_row + 64 * (i // 2) + a.lane // 4 + 8 * (i % 2)
            token = row // a.num_heads
            head = row - token * a.num_heads
            address = Int64(0)
            last[i] = Int32(-1)
            if row < there:
                address = Int64(first_token + token) * a.q_token_stride + Int64(head) * a.q_head_stride
                address = a.index_q + address
                last[i] = first_position + token
            queries.load_row(c.index_format, address, a.q_dtype, a.lane % 4, words[i])
        for i in cutlass.range_constexpr(2 * c.tiles):
            factor = queries.convert(c.index_format, a.q_dtype, a.lane, words[i])
            if cutlass.const_expr(not c.choose):
                if a.lane % 4 == 0:
                    place = a.list + (16 * (i // 2) + a.lane // 4 + 8 * (i % 2)) * 4
                    memory.store_shared_f32(place, factor)
            for step in cutlass.range_constexpr(8):
                rows[32 * (i // 2) + 4 * step + i % 2] = words[i][2 * step]
                rows[32 * (i // 2) + 4 * step + 2 + i % 2] = words[i][2 * step + 1]

    @cute.jit
    def score_block(
        self,
        a,
        rows,
        last,
        there: Int32,
        block: Int32,
        slot: Int32,
        parity: Int32,
        seen_by_all: Int32,
        table: Int32,
        column: Int32,
    ):
        """Scores of the warpgroup's rows with a block, to a column of the warp's table; frees the stage."""
        c = self.config
        bulk_copy.barrier_wait(a.full + 8 * slot, parity)
        exists = memory.load_shared_32(a.exists + 4 * slot) != Uint32(0)
        first_row = a.first_row - a.warp % 4 * 16
        descriptor = products.descriptor(a.stages + slot * STAGE_BYTES)
        for u in cutlass.range_constexpr(c.tiles):
            best = Float32(-Float32.inf)
            if exists and there > first_row + 64 * u:
                sums = products.multiply(c.kind, [rows[32 * u + i] for i in range(32)], descriptor)
                best = self.best(a, sums, last, u, block, seen_by_all)
            if cutlass.const_expr(u == c.tiles - 1):
                self.release(a, slot)
            self.put(a, best, u, table, column)

    @cute.jit
    def release(self, a, slot: Int32):
        """This warp needs the stage no more."""
        cute.arch.sync_warp()
        if a.lane == 0:
            bulk_copy.barrier_arrive(a.empty + 8 * slot)

    @cute.jit
    def best(self, a, sums, last, u: cutlass.Constexpr, block: Int32, seen_by_all: Int32) -> Float32:
        """The best score of a tile's row with a block: in lanes of even t of the upper row, else of the lower."""
        upper, lower = Float32(0.0), Float32(0.0)
        if block * PAGE + (PAGE - 1) <= seen_by_all:
            upper, lower = self.maxima(sums)
        else:
            limits = [last[2 * u + half] - block * PAGE - 2 * (a.lane % 4) for half in range(2)]
            upper, lower = self.maxima(self.masked(sums, limits))
        odd = a.lane % 2 == 1
        best = lower if odd else upper
        other = upper if odd else lower
        best = half_pairs.max_f32(best, cute.arch.shuffle_sync_bfly(other, 1))
        best = half_pairs.max_f32(best, cute.arch.shuffle_sync_bfly(best, 2))
        return half_pairs.max_f32(best, Float32(-Float32.inf))

    @cute.jit
    def put(self, a, best: Float32, u: cutlass.Constexpr, table: Int32, column: Int32):
        """Two lanes of four put the scores of their tile's two rows into the table."""
        t = a.lane % 4
        if t < 2:
            place = table + ((16 * u + a.lane // 4 + 8 * t) * TABLE_STRIDE + column) * 4
            if cutlass.const_expr(self.config.choose):
                memory.store_shared_i32(place, Int32(choosing.key_of_score(best)))
            else:
                memory.store_shared_f32(place, best)

    def masked(self, sums, limits):
        """The sums of the upper and the lower row, -inf where a key's number among the lane's is above its limit."""
        hidden = Float32(-Float32.inf)
        return [select(limits[i % 4 // 2] >= 8 * (i // 4) + i % 2, value, hidden) for i, value in enumerate(sums)]

    def maxima(self, sums):
        """Of the upper row and of the lower."""
        found = []
        for half in range(2):
            values = [value for i, value in enumerate(sums) if i % 4 // 2 == half]
            while len(values) > 1:
                values = [half_pairs.max_f32(values[i], values[i + 1]) for i in range(0, len(values), 2)]
            found.append(values[0])
        return found

    @cute.jit
    def choose(self, a, table: Int32, segment: Int32, first: Int32, stop: Int32, low: Int32, high: Int32):
        """Offers the table's columns, blocks first to stop - 1 of a segment, to the rows' lists."""
        begin = low if low > first else first
        end = high if high < stop else stop
        owns = a.lane < self.config.warp_rows
        begin = begin if owns else end
        lane = a.lane % self.config.warp_rows
        row, own = table + lane * (TABLE_STRIDE * 4), a.list + lane * LIST_STRIDE
        choosing.offer(row, own, first, begin, end, first == segment, owns)
        cute.arch.sync_warp()

    @cute.jit
    def store_scores(self, a, table: Int32, first: Int32, columns: Int32, output: Int64, scale: Float32):
        """Stores the table's columns of all rows that exist, a row at a time."""
        c = self.config
        own = Float32(1.0)
        if a.lane < c.warp_rows:
            own = half_pairs.float_of_bits(Int32(memory.load_shared_32(a.list + a.lane * 4)))
        for row in cutlass.range(c.warp_rows, unroll=1):
            low = cute.arch.shuffle_sync(Int32(output & Int64(0xFFFFFFFF)), row)
            high = cute.arch.shuffle_sync(Int32(output >> 32), row)
            target = Int64(high) << 32 | Int64(Uint32(low))
            factor = cute.arch.shuffle_sync(own, row)
            if target != Int64(0) and a.lane < columns:
                value = Int32(memory.load_shared_32(table + (row * TABLE_STRIDE + a.lane) * 4))
                score = half_pairs.float_of_bits(value) * factor * scale
                streaming.store_32(target + Int64(first + a.lane) * 4, half_pairs.bits_of_float(score))


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(alignment):
        return make_ptr(Uint8, 16, gmem, assumed_align=alignment)

    return IndexerPrefillSm90(config), (
        pointer(16),
        pointer(16),
        *[pointer(4)] * 4,
        pointer(16),
        pointer(4),
        *[Int64(0)] * 6,
        *[Int32(0)] * 13,
        Float32(1.0),
        make_fake_stream(),
    )
