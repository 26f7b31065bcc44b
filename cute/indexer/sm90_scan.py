"""The indexer's scan on Hopper: scores of all blocks, and of each thread block's run of pages the best ones.

Every warp has a ring of its own in shared memory and takes its share of the run's pages: it asks for pages by bulk
copies ahead of time, decodes the keys, multiplies them with up to `columns` queries, and keeps the maximum of each
column in a table of the thread block. No warp waits for another until the run (or a full table) is scored. Then each
warp chooses, column by column, the best blocks of what a request has in this run. If that is the whole request, they
are the result; otherwise they go to the workspace as candidates for the merge.

Workspace: for block i of G two lists a column: list 0 of the request that begins before the run, list 1 of the one
that ends behind it; each topk entries of (block id, key), ascending, with key 0 behind the last.
"""

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.indexer import atoms, keys, queries, ranking, work
from msa_ops.cute.indexer.sm90_scan_configs import Config

PAGE = work.PAGE
GROUP = 8
"""Chunks of 32 keys that a warp looks at together."""


class IndexerScanSm90:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.tiles = config.columns // 8
        self.row_tiles = config.tokens // 16

    @cute.jit
    def __call__(
        self,
        index_q: cute.Pointer,
        index_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        block_ids: cute.Pointer,
        workspace: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        table_stride: Int64,
        out_token_stride: Int64,
        out_head_stride: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_is_fp8: Int32,
        num_blocks: Int32,
        code_factor: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(
            index_q,
            index_cache,
            block_table,
            seq_lens,
            cu_seqlens,
            block_ids,
            workspace,
            q_token_stride,
            q_head_stride,
            page_stride,
            table_stride,
            out_token_stride,
            out_head_stride,
            num_pages,
            num_tokens,
            batch,
            num_heads,
            max_blocks,
            topk,
            init_blocks,
            local_blocks,
            q_is_fp8,
            num_blocks,
            code_factor,
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
        block_ids: cute.Pointer,
        workspace: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        table_stride: Int64,
        out_token_stride: Int64,
        out_head_stride: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_is_fp8: Int32,
        num_blocks: Int32,
        code_factor: Int32,
    ):
        cute.arch.griddepcontrol_launch_dependents()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        a = SimpleNamespace(
            index_q=index_q.toint(),
            index_cache=index_cache.toint(),
            block_table=block_table.toint(),
            seq_lens=seq_lens.toint(),
            cu_seqlens=cu_seqlens.toint(),
            block_ids=block_ids.toint(),
            workspace=workspace.toint(),
            q_token_stride=q_token_stride,
            q_head_stride=q_head_stride,
            page_stride=page_stride,
            table_stride=table_stride,
            out_token_stride=out_token_stride,
            out_head_stride=out_head_stride,
            num_pages=num_pages,
            num_tokens=num_tokens,
            batch=batch,
            num_heads=num_heads,
            max_blocks=max_blocks,
            topk=topk,
            init_blocks=init_blocks,
            local_blocks=local_blocks,
            q_is_fp8=q_is_fp8,
            num_blocks=num_blocks,
            factors=(code_factor, code_factor >> 4),
            thread=thread,
            lane=thread % 32,
            warp=cute.arch.make_warp_uniform(thread // 32),
            block=block,
        )
        self.layout(a)
        if thread < self.config.warps * self.config.stages:
            atoms.barrier_init(a.barriers + thread * 8, 1)
        cute.arch.mbarrier_init_fence()

        threads = self.config.threads
        base = Int32(0)
        window_total = self.load_window(a, Int32(0), base)
        total = window_total + self.work_behind(a, Int32(threads))
        begin = work.run_begin(block, total, num_blocks)
        end = work.run_begin(block + 1, total, num_blocks)
        slot, parity = Int32(0), Int32(0)  # where this warp's ring goes on
        window = Int32(0)
        while base < end:
            low = begin if begin > base else base
            high = base + window_total
            high = end if end < high else high
            while low < high:
                stop = low + self.config.pages
                stop = high if high < stop else stop
                slot, parity = self.score(a, window, low, stop, slot, parity)
                self.choose(a, begin, end, low, stop)
                cute.arch.sync_threads()
                low = stop
            base = base + window_total
            window = window + threads
            if base < end:
                window_total = self.load_window(a, window, base)

    def layout(self, a: SimpleNamespace) -> None:
        """Shared addresses: rings, barriers, scores, sums of warps, and what is known of a window of requests."""
        c = self.config
        a.ring = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        a.barriers = a.ring + c.ring_bytes
        a.scores = a.barriers + 8 * c.warps * c.stages
        a.sums = a.scores + 4 * c.columns * (c.pages + 1)
        a.w_pages = a.sums + 4 * 32
        a.w_first = a.w_pages + 4 * c.threads
        a.w_last = a.w_first + 4 * c.threads
        a.w_length = a.w_last + 4 * c.threads
        a.w_begin = a.w_length + 4 * c.threads  # one more than threads

    @cute.jit
    def request_work(self, a, request: Int32):
        """Pages, query range and length of a request, and the pieces of work that it makes; zeros behind the last."""
        pages, first, last, length, pieces = Int32(0), Int32(0), Int32(0), Int32(0), Int32(0)
        if request < a.batch:
            length = work.load_i32(a.seq_lens, request)
            first, last = work.query_range(request, a.cu_seqlens, a.num_tokens, a.batch)
            pages = work.num_pages(length, a.max_blocks)
            pieces = pages * work.num_tiles(first, last, a.num_tokens, a.num_heads, self.config.columns)
        return pages, first, last, length, pieces

    @cute.jit
    def load_window(self, a, window: Int32, base: Int32) -> Int32:
        """Puts what is known of the requests from `window` on into shared memory; gives their work."""
        pages, first, last, length, pieces = self.request_work(a, window + a.thread)
        before, total = work.block_prefix(pieces, a.sums, a.thread, self.config.warps)
        at = a.thread * 4
        atoms.sts_u32(a.w_pages + at, pages)
        atoms.sts_u32(a.w_first + at, first)
        atoms.sts_u32(a.w_last + at, last)
        atoms.sts_u32(a.w_length + at, length)
        atoms.sts_u32(a.w_begin + at, base + before)
        if a.thread == 0:
            atoms.sts_u32(a.w_begin + 4 * self.config.threads, base + total)
        cute.arch.sync_threads()
        return total

    @cute.jit
    def work_behind(self, a, window: Int32) -> Int32:
        """Work of the requests from `window` on."""
        total = Int32(0)
        while window < a.batch:
            _, _, _, _, pieces = self.request_work(a, window + a.thread)
            _, part = work.block_prefix(pieces, a.sums, a.thread, self.config.warps)
            total = total + part
            window = window + self.config.threads
        return total

    @cute.jit
    def request_of(self, a, piece: Int32) -> Int32:
        """Place in the window of the request that a piece belongs to."""
        low, high = Int32(0), Int32(self.config.threads)  # begin[low] <= piece < begin[high]
        while high - low > 1:
            middle = (low + high) // 2
            if Int32(atoms.lds_u32(a.w_begin + middle * 4)) <= piece:
                low = middle
            else:
                high = middle
        return low

    # Scoring.

    @cute.jit
    def score(self, a, window: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32):
        """Scores the pieces low to stop - 1 into the table, all warps of the block together."""
        c = self.config
        # This warp takes part `part` of every step-th page of the run, from `first` on.
        part = a.warp % c.parts
        step = c.warps // c.parts
        first = low + a.warp // c.parts
        count = (stop - first + (step - 1)) // step
        count = Int32(0) if stop <= first else count
        ring = a.ring + a.warp * (c.stages * c.stage_bytes)
        barriers = a.barriers + a.warp * (c.stages * 8)

        # Each lane knows one of the next 32 pages, and one of the 32 behind those.
        page, item, index = self.look_up(a, window, first + a.lane * step, stop)
        next_page, next_item, next_index = page, item, index
        for ahead in cutlass.range_constexpr(c.stages):
            if ahead < count:
                to = slot + ahead
                to = to - c.stages if to >= c.stages else to
                self.ask(a, ring, barriers, to, cute.arch.shuffle_sync(page, ahead), part)

        row = a.thread
        while row < stop - low:
            for column in cutlass.range_constexpr(c.columns):
                atoms.sts_u32(self.entry(a, column, row), Uint32(0))
            row = row + c.threads
        cute.arch.sync_threads()

        operand = cute.make_rmem_tensor(cute.make_layout((16 * self.tiles,)), Uint32)
        last_visible = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Int32)
        for i in cutlass.range_constexpr(16 * self.tiles):
            operand[i] = Uint32(0)
        for i in cutlass.range_constexpr(2 * self.tiles):
            last_visible[i] = Int32(-1)
        current, columns, seen_by_all = Int32(-1), Int32(0), Int32(-1)
        for i in cutlass.range(count, unroll=1):
            at = i % 32
            if at == 0:
                page, item, index = next_page, next_item, next_index
                next_page, next_item, next_index = self.look_up(a, window, first + (i + 32 + a.lane) * step, stop)
            this_page = cute.arch.shuffle_sync(page, at)
            this_item = cute.arch.shuffle_sync(item, at)
            this_index = cute.arch.shuffle_sync(index, at)
            if this_item != current:
                current = this_item
                columns, seen_by_all = self.load_queries(a, this_item, operand, last_visible)
            atoms.barrier_wait(barriers + slot * 8, parity)
            if this_page >= 0:
                self.score_part(
                    a,
                    ring + slot * c.stage_bytes,
                    operand,
                    last_visible,
                    columns,
                    seen_by_all,
                    this_index * PAGE + part * c.tokens,
                    first + i * step - low,
                )
            cute.arch.sync_warp()
            if i + c.stages < count:
                ahead = at + c.stages
                wanted = cute.arch.shuffle_sync(page if ahead < 32 else next_page, ahead % 32)
                self.ask(a, ring, barriers, slot, wanted, part)
            slot = slot + 1
            if slot == c.stages:
                slot = Int32(0)
                parity = parity ^ 1
        cute.arch.sync_threads()
        return slot, parity

    @cute.jit
    def look_up(self, a, window: Int32, piece: Int32, stop: Int32):
        """Page id (-1 if it does not exist), request and tile in one number, and block of a piece of work."""
        page, item, index = Int32(-1), Int32(0), Int32(0)
        if piece < stop:
            place = self.request_of(a, piece)
            pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
            within = piece - Int32(atoms.lds_u32(a.w_begin + place * 4))
            tile = within // pages
            index = within - tile * pages
            item = place + tile * self.config.threads
            request = window + place
            page = Int32(atoms.ldg_constant_u32(a.block_table + (Int64(request) * a.table_stride + Int64(index)) * 4))
            page = Int32(-1) if page >= a.num_pages else page
        return page, item, index

    @cute.jit
    def ask(self, a, ring: Int32, barriers: Int32, slot: Int32, page: Int32, part: Int32):
        """Starts the copy of a part of a page into the ring, or completes its barrier if there is no such page."""
        c = self.config
        if a.lane == 0:
            barrier = barriers + slot * 8
            target = ring + slot * c.stage_bytes
            size = c.stage_bytes
            atoms.barrier_expect(barrier, Int32(0) if page < 0 else Int32(size))
            if page >= 0:
                source = a.index_cache + Int64(page) * a.page_stride
                row = keys.row_bytes(c.index_format)
                atoms.bulk_load(target, source + Int64(part * (c.tokens * row)), c.tokens * row, barrier)
                if cutlass.const_expr(c.index_format == "nvfp4"):
                    scales = source + Int64(PAGE * row + part * (c.tokens * 8))
                    atoms.bulk_load(target + c.tokens * row, scales, c.tokens * 8, barrier)

    @cute.jit
    def load_queries(self, a, item: Int32, operand: cute.Tensor, last_visible: cute.Tensor):
        """Queries of a tile, and the last position that each of the lane's columns sees.

        Gives the columns of the request from this tile on, and the last position that all of them see.
        """
        place, tile = item % self.config.threads, item // self.config.threads
        first = Int32(atoms.lds_u32(a.w_first + place * 4))
        last = Int32(atoms.lds_u32(a.w_last + place * 4))
        length = Int32(atoms.lds_u32(a.w_length + place * 4))
        begin = work.clamp(first, Int32(0), a.num_tokens)
        columns = (work.clamp(last, Int32(0), a.num_tokens) - begin) * a.num_heads - tile * self.config.columns
        group, t = a.lane // 4, a.lane % 4
        for n in cutlass.range_constexpr(self.tiles):
            address = Int64(0)
            column = 8 * n + group
            if column < columns:
                pair = tile * self.config.columns + column
                token = pair // a.num_heads
                head = pair - token * a.num_heads
                address = a.index_q + Int64(begin + token) * a.q_token_stride + Int64(head) * a.q_head_stride
            if 8 * n < columns:
                queries.load_column(self.config.index_format, address, a.q_is_fp8, t, operand, 16 * n)
            for i in cutlass.range_constexpr(2):
                column = 8 * n + 2 * t + i
                token = begin + (tile * self.config.columns + column) // a.num_heads
                last_visible[2 * n + i] = length - (last - token) if column < columns else Int32(-1)
        return columns, length - (last - (begin + tile * self.config.columns // a.num_heads))

    @cute.jit
    def score_part(
        self,
        a,
        stage: Int32,
        operand: cute.Tensor,
        last_visible: cute.Tensor,
        columns: Int32,
        seen_by_all: Int32,
        position: Int32,
        row: Int32,
    ):
        """Scores `tokens` keys, the first at `position`, and raises the table's entries of `row`."""
        c = self.config
        codes = stage + keys.lane_offset(c.index_format, a.lane)
        scales = stage + (c.tokens * keys.row_bytes(c.index_format) + (a.lane // 4) * 8 + (a.lane % 4) * 2)
        best = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Float32)
        limit = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Int32)
        for i in cutlass.range_constexpr(2 * self.tiles):
            best[i] = -Float32.inf
            limit[i] = last_visible[i] - position - a.lane // 4
        if position + (c.tokens - 1) <= seen_by_all:
            self.score_rows(a, codes, scales, operand, columns, best, limit, False)
        else:
            self.score_rows(a, codes, scales, operand, columns, best, limit, True)
        self.raise_scores(a, best, row)

    @cute.jit
    def score_rows(
        self, a, codes: Int32, scales: Int32, operand, columns: Int32, best, limit, masked: cutlass.Constexpr
    ):
        """Raises best[2 n + i], the maxima of the lane's columns, to the scores of its tokens in the stage.

        masked: a token counts only if its place among those of its lane is at most limit[2 n + i].
        """
        for m in cutlass.range_constexpr(self.row_tiles):
            upper = keys.load_row(self.config.index_format, codes, scales, 16 * m, a.factors)
            lower = keys.load_row(self.config.index_format, codes, scales, 16 * m + 8, a.factors)
            for n in cutlass.range_constexpr(self.tiles):
                if cutlass.const_expr(n == 0):
                    self.multiply(upper, lower, operand, best, limit, m, n, masked)
                else:
                    if 8 * n < columns:
                        self.multiply(upper, lower, operand, best, limit, m, n, masked)

    @cute.jit
    def multiply(
        self, upper, lower, operand, best, limit, m: cutlass.Constexpr, n: cutlass.Constexpr, masked: cutlass.Constexpr
    ):
        sums = (Float32(0.0), Float32(0.0), Float32(0.0), Float32(0.0))
        for step in cutlass.range_constexpr(keys.STEPS):
            left = (upper[2 * step], lower[2 * step], upper[2 * step + 1], lower[2 * step + 1])
            right = (operand[16 * n + 2 * step], operand[16 * n + 2 * step + 1])
            sums = atoms.mma_bf16(left, right, sums)
        for half in cutlass.range_constexpr(2):
            for i in cutlass.range_constexpr(2):
                raised = atoms.max_f32(best[2 * n + i], sums[2 * half + i])
                if cutlass.const_expr(masked):
                    raised = raised if 16 * m + 8 * half <= limit[2 * n + i] else best[2 * n + i]
                best[2 * n + i] = raised

    @cute.jit
    def raise_scores(self, a, best: cute.Tensor, row: Int32):
        """Maximum over the eight lanes that hold other tokens of the same columns, then into the table.

        While a lane has several columns it gives half of them to its partner, so that fewer values travel.
        """
        group, t = a.lane // 4, a.lane % 4
        values = [best[i] for i in range(2 * self.tiles)]
        splits = 0
        for level in cutlass.range_constexpr(3):
            if cutlass.const_expr(len(values) > 1):
                odd = (group // (1 << level)) % 2 == 1
                kept = []
                for i in cutlass.range_constexpr(len(values) // 2):
                    mine = values[2 * i + 1] if odd else values[2 * i]
                    given = values[2 * i] if odd else values[2 * i + 1]
                    other = cute.arch.shuffle_sync_bfly(given, 4 << level)
                    kept.append(atoms.max_f32(mine, other))
                values = kept
                splits += 1
            else:
                values = [atoms.max_f32(values[0], cute.arch.shuffle_sync_bfly(values[0], 4 << level))]
        column_bits = (1 << splits) - 1
        if group <= column_bits:
            for i in cutlass.range_constexpr(len(values)):
                which = (i << splits) + group  # 2 n + i of `best`
                column = (which // 2) * 8 + 2 * t + which % 2
                atoms.max_shared_u32(self.entry(a, column, row), ranking.key_of_score(values[i]))

    def entry(self, a, column: Int32, row: Int32) -> Int32:
        return a.scores + (column * (self.config.pages + 1) + row) * 4

    # Choosing.

    @cute.jit
    def choose(self, a, begin: Int32, end: Int32, low: Int32, stop: Int32):
        """Chooses, for each column of each request's tile in the table, the best of its blocks; a warp a column."""
        c = self.config
        place = self.request_of(a, low)
        piece, turn = low, Int32(0)
        while piece < stop:
            first_piece = Int32(atoms.lds_u32(a.w_begin + place * 4))
            next_request = Int32(atoms.lds_u32(a.w_begin + place * 4 + 4))
            pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
            while piece < next_request and piece < stop:
                tile = (piece - first_piece) // pages
                tile_begin = first_piece + tile * pages
                tile_end = tile_begin + pages
                upto = stop if stop < tile_end else tile_end
                query_begin = work.clamp(Int32(atoms.lds_u32(a.w_first + place * 4)), Int32(0), a.num_tokens)
                query_last = Int32(atoms.lds_u32(a.w_last + place * 4))
                length = Int32(atoms.lds_u32(a.w_length + place * 4))
                columns = (work.clamp(query_last, Int32(0), a.num_tokens) - query_begin) * a.num_heads
                columns = columns - tile * c.columns
                columns = Int32(c.columns) if columns > c.columns else columns
                column = (a.warp + c.warps - turn % c.warps) % c.warps
                while column < columns:
                    pair = tile * c.columns + column
                    offset = pair // a.num_heads
                    head = pair - offset * a.num_heads
                    token = query_begin + offset
                    s = SimpleNamespace(
                        column=column,
                        row=piece - low,
                        entries=upto - piece,
                        block=piece - tile_begin,
                        visible=self.visible_blocks(a, length - (query_last - token)),
                        opened=tile_begin >= begin,
                        closed=upto == tile_end,
                        carries=piece > (begin if begin > tile_begin else tile_begin),
                        output=a.block_ids + (Int64(token) * a.out_token_stride + Int64(head) * a.out_head_stride) * 4,
                    )
                    self.choose_column(a, s)
                    column = column + c.warps
                turn = turn + columns
                piece = upto
            place = place + 1

    @cute.jit
    def visible_blocks(self, a, position: Int32) -> Int32:
        blocks = Int32(0) if position < 0 else position // PAGE + 1
        return a.max_blocks if blocks > a.max_blocks else blocks

    @cute.jit
    def choose_column(self, a, s):
        """The best of one column's entries (and of its list so far), to the result or to its list."""
        c = self.config
        side = Int32(1) if s.opened else Int32(0)
        list_address = a.workspace + Int64(((a.block * 2 + side) * c.columns + s.column) * a.topk) * 8
        carried = a.topk if s.carries else Int32(0)

        # Turn scores into keys, in place.
        table = self.entry(a, s.column, s.row)
        exist, highest = Int32(0), Uint32(0)
        chunk = Int32(0)
        while chunk < s.entries:
            for u in cutlass.range_constexpr(GROUP):
                at = chunk + u * 32 + a.lane
                if at < s.entries:
                    key = ranking.key_of_block(
                        atoms.lds_u32(table + at * 4), s.block + at, s.visible, a.init_blocks, a.local_blocks
                    )
                    atoms.sts_u32(table + at * 4, key)
                    exist = exist + (Int32(1) if key > Uint32(0) else Int32(0))
                    highest = key if key > highest else highest
            chunk = chunk + GROUP * 32
        for u in cutlass.range_constexpr(ranking.MAX_TOPK // 32):
            key = self.carried_key(list_address, u * 32 + a.lane, carried)
            exist = exist + (Int32(1) if key > Uint32(0) else Int32(0))
            highest = key if key > highest else highest
        cute.arch.sync_warp()

        exist = ranking.warp_sum(exist)
        low, high = Uint32(1), ranking.warp_max(highest)
        high = low if exist <= a.topk else high
        while low < high:
            middle = low + ((high - low) >> Uint32(1)) + Uint32(1)
            count = self.count_from(a, table, s.entries, list_address, carried, middle)
            low, high = ranking.search_step(low, high, middle, count, a.topk)
        above = self.count_from(a, table, s.entries, list_address, carried, low + Uint32(1))
        ties = a.topk - above  # that many entries with key `low` are taken, the first ones

        direct = s.opened and s.closed
        written = Int32(0)
        for u in cutlass.range_constexpr(ranking.MAX_TOPK // 32):
            if u * 32 < carried:
                at = u * 32 + a.lane
                id, key = Uint32(0), Uint32(0)
                if at < carried:
                    id, key = atoms.ldg_u32x2(list_address + Int64(at) * 8)
                cute.arch.sync_warp()
                written, ties = self.keep(a, key, id, low, written, ties, direct, s.output, list_address)
        chunk = Int32(0)
        while chunk < s.entries and written < a.topk:
            at = chunk + a.lane
            key = Uint32(0)
            if at < s.entries:
                key = atoms.lds_u32(table + at * 4)
            written, ties = self.keep(a, key, Uint32(s.block + at), low, written, ties, direct, s.output, list_address)
            chunk = chunk + 32
        for u in cutlass.range_constexpr(ranking.MAX_TOPK // 32):
            at = written + u * 32 + a.lane
            if at < a.topk:
                if direct:
                    atoms.stg_u32(s.output + Int64(at) * 4, Int32(-1))
                else:
                    atoms.stg_u32x2(list_address + Int64(at) * 8, Uint32(0), Uint32(0))

    @cute.jit
    def carried_key(self, list_address: Int64, at: Int32, carried: Int32) -> Uint32:
        key = Uint32(0)
        if at < carried:
            _, key = atoms.ldg_u32x2(list_address + Int64(at) * 8)
        return key

    @cute.jit
    def count_from(self, a, table: Int32, entries: Int32, list_address: Int64, carried: Int32, least: Uint32) -> Int32:
        """How many of a column's keys are >= least."""
        count = Int32(0)
        chunk = Int32(0)
        while chunk < entries:
            for u in cutlass.range_constexpr(GROUP):
                at = chunk + u * 32 + a.lane
                if at < entries:
                    count = count + (Int32(1) if atoms.lds_u32(table + at * 4) >= least else Int32(0))
            chunk = chunk + GROUP * 32
        if carried > 0:
            for u in cutlass.range_constexpr(ranking.MAX_TOPK // 32):
                key = self.carried_key(list_address, u * 32 + a.lane, carried)
                count = count + (Int32(1) if key >= least else Int32(0))
        return ranking.warp_sum(count)

    @cute.jit
    def keep(
        self,
        a,
        key: Uint32,
        id: Uint32,
        low: Uint32,
        written: Int32,
        ties: Int32,
        direct,
        output: Int64,
        list_address: Int64,
    ):
        """Writes those of a warp's 32 keys that are chosen behind the `written` ones; both counts go on."""
        before = ranking.lanes_below(a.lane)
        equal = cute.arch.vote_ballot_sync(key == low)
        tied = key == low and cute.arch.popc(equal & before) < ties
        taken = cute.arch.vote_ballot_sync(key > low or tied)
        if key > low or tied:
            at = written + cute.arch.popc(taken & before)
            if direct:
                atoms.stg_u32(output + Int64(at) * 4, id)
            else:
                atoms.stg_u32x2(list_address + Int64(at) * 8, id, key)
        cute.arch.sync_warp()
        return written + cute.arch.popc(taken), ties - cute.arch.popc(equal)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(alignment):
        return make_ptr(Uint8, 16, gmem, assumed_align=alignment)

    return IndexerScanSm90(config), (
        pointer(16),
        pointer(16),
        pointer(4),
        pointer(4),
        pointer(4),
        pointer(4),
        pointer(8),
        *[Int64(0)] * 6,
        *[Int32(0)] * 11,
        make_fake_stream(),
    )
