"""The indexer's scan on Hopper: scores of all blocks, and of each thread block's run of pages the best ones.

Every warp has a ring of its own in shared memory and takes its share of the run's pages: it asks for pages by bulk
copies ahead of time, decodes the keys, multiplies them with up to `columns` queries, and keeps the maximum of each
column in a table of the thread block. No warp waits for another until the run (or a full table) is scored. Then each
warp chooses, column by column, the best blocks of what a request has in this run. If that is the whole request, they
are the result; otherwise they go to the workspace as candidates for the merge.

With `early`, a batch of up to 32 requests is looked at before the kernel before has ended: each warp divides the work
by the lengths as they are then, finds the addresses of what it will ask for, and reads the table. Nothing but addresses
(inside the arguments' memory) and requests to the second-level cache come of it: behind griddepcontrol.wait lengths,
table entries and queries are read. Pages are asked for at the same time, as the table was before; where lengths or
entries are others, the warp lets these pages come and begins anew.

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
from msa_ops.cute.indexer.choosing import Choosing
from msa_ops.cute.indexer.sm90_scan_configs import LONG_RUN, PAGE_BYTES, Config

PAGE = work.PAGE
WINDOW_OF_FEW = 4 * (1 + 4 * 32 + 33)
"""Bytes in which a warp keeps what is known of 32 requests."""


class IndexerScanSm90(Choosing):
    def __init__(self, config: Config) -> None:
        self.config = config
        self.tiles = config.columns // 8

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
        heads_magic: Int64,
        blocks_magic: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_dtype: Int32,
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
            heads_magic,
            blocks_magic,
            num_pages,
            num_tokens,
            batch,
            q_len,
            num_heads,
            max_blocks,
            topk,
            init_blocks,
            local_blocks,
            q_dtype,
            num_blocks,
            code_factor,
        ).launch(
            grid=(num_blocks, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.bound, 1, 1),
            min_blocks_per_mp=1,
            smem=self.config.shared_memory,
            stream=stream,
            use_pdl=True,
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
        heads_magic: Int64,
        blocks_magic: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_dtype: Int32,
        num_blocks: Int32,
        code_factor: Int32,
    ):
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
            heads_magic=heads_magic,
            blocks_magic=blocks_magic,
            num_pages=num_pages,
            num_tokens=num_tokens,
            batch=batch,
            q_len=q_len,
            num_heads=num_heads,
            max_blocks=max_blocks,
            topk=topk,
            init_blocks=init_blocks,
            local_blocks=local_blocks,
            q_dtype=q_dtype,
            num_blocks=num_blocks,
            factors=keys.factors_of(code_factor, self.config.factors),
            thread=thread,
            lane=thread % 32,
            warp=cute.arch.make_warp_uniform(thread // 32),
            block=block,
        )
        c = self.config
        a.few = batch <= 32
        a.width = Int32(32) if a.few else Int32(c.threads)
        a.own_window = a.warp * WINDOW_OF_FEW if a.few else Int32(0)
        self.layout(a)
        self.set_up(a)
        cute.arch.mbarrier_init_fence()
        self.clear(a)
        cute.arch.sync_threads()
        base, window = Int32(0), Int32(0)
        behind, window_total = Int32(0), Int32(0)
        self.registers(a)
        if cutlass.const_expr(c.early > 0):
            first, last, length, pieces, foreseen = Int32(0), Int32(0), Int32(0), Int32(0), Int32(-1)
            table_at, page, guess = Int64(0), Int32(-1), Int32(-1)
            asked, taken_back = Int32(0), Int32(0)
            at, tile_begin, tile_end, columns, seen = Int32(0), Int32(0), Int32(0), Int32(0), Int32(0)
            rows = cute.make_rmem_tensor(cute.make_layout((self.tiles,)), Int64)
            rows.fill(Int64(0))
            a.last_visible.fill(Int32(-1))
            if a.few:
                # As if the lengths were there already; they are looked at again when the kernel before has ended.
                pages, first, last, length, pieces = self.request_work(a, a.lane, True)
                window_total = self.load_few(a, (pages, first, last, length, pieces))
                table_at, at, tile_begin, tile_end, columns, seen = self.look_ahead(a, window_total, rows)
                if cutlass.const_expr(c.guess) and table_at != Int64(0):
                    guess = Int32(atoms.ldg_relaxed_u32(table_at))
                if a.warp == c.warps - 1:
                    foreseen = self.foresee(a, window_total)
            cute.arch.griddepcontrol_wait()
            if a.few:
                pages, new_first, new_last, new_length, pieces = self.request_work(a, a.lane, True)
                if table_at != Int64(0):
                    page = Int32(atoms.ldg_relaxed_u32(table_at))
                self.ask_for_queries(a, rows)
                if cutlass.const_expr(c.guess):
                    asked = self.ask_early(a, table_at != Int64(0), guess)
                if cutlass.const_expr(c.later > 0):
                    self.bring_to_l2(a, foreseen)
                cute.arch.griddepcontrol_launch_dependents()
                other = new_first != first or new_last != last or new_length != length
                if cute.arch.vote_any_sync(other):
                    cute.arch.sync_warp()
                    window_total = self.load_few(a, (pages, new_first, new_last, new_length, pieces))
                    table_at, at, tile_begin, tile_end, columns, seen = self.look_ahead(a, window_total, rows)
                    page = Int32(-1)
                    if table_at != Int64(0):
                        page = Int32(atoms.ldg_relaxed_u32(table_at))
                    self.ask_for_queries(a, rows)
                if cutlass.const_expr(c.guess):
                    if asked != 0 and cute.arch.vote_any_sync(other or (a.lane < c.stages and page != guess)):
                        self.take_back(a, asked)
                        asked, taken_back = Int32(0), Int32(1)
            else:
                request = self.request_work(a, thread)
                cute.arch.griddepcontrol_launch_dependents()
                behind = self.work_behind(a, Int32(c.threads))
                window_total = self.load_window(a, request, base, Int32(-1), behind)
            a.ahead = SimpleNamespace(
                page=page, place=at, tile_begin=tile_begin, tile_end=tile_end, columns=columns, seen=seen, asked=asked
            )
        else:
            cute.arch.griddepcontrol_wait()
            request = self.request_work(a, a.lane if a.few else thread)  # what everything else waits for
            cute.arch.griddepcontrol_launch_dependents()
            if a.few:
                window_total = self.load_few(a, request)
            else:
                behind = self.work_behind(a, Int32(c.threads))
                window_total = self.load_window(a, request, base, Int32(-1), behind)
        total = window_total + behind
        begin = work.run_begin(block, total, num_blocks, blocks_magic)
        end = work.run_begin(block + 1, total, num_blocks, blocks_magic)
        if cutlass.const_expr(c.early > 0):
            a.ahead.of = begin if a.few else Int32(-1)
        end = Int32(0) if begin == end else end  # no work
        slot, parity = Int32(0), Int32(0)  # where this warp's ring goes on
        if cutlass.const_expr(c.early > 0):
            parity = taken_back
        while base < end:
            low = begin if begin > base else base
            high = base + window_total
            high = end if end < high else high
            place = Int32(atoms.lds_u32(a.w_place))  # of the request of `low`
            while low < high:
                stop = low + c.pages
                stop = high if high < stop else stop
                slot, parity, known = self.score(a, window, place, begin, low, stop, slot, parity)
                place = self.choose(a, place, known, begin, end, low, stop)
                low = stop
                cute.arch.sync_threads()
                if low < end:
                    self.clear(a)
                    cute.arch.sync_threads()
            base = base + window_total
            window = window + c.threads
            if base < end:
                later = self.request_work(a, window + thread)
                window_total = self.load_window(a, later, base, total, Int32(0))
        self.tear_down(a)

    def layout(self, a: SimpleNamespace) -> None:
        """Shared addresses: rings, barriers, scores, sums of warps, and what is known of a window of requests."""
        c = self.config
        a.ring = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        a.scores = a.ring + c.ring_bytes
        a.sums = a.scores + c.score_bytes
        a.barriers = a.sums + 4 * 32
        self.layout_window(a, a.barriers + 8 * c.warps * c.stages)

    def layout_window(self, a: SimpleNamespace, address: Int32) -> None:
        """What is known of a window of requests (the block's, or with few one of each warp), and spare words."""
        c = self.config
        a.spare = address + 4 * (5 * c.threads + 2 * c.warps) + a.warp * (4 * 32)
        a.w_place = address + a.own_window
        a.w_pages = a.w_place + 4
        a.w_first = a.w_pages + 4 * a.width
        a.w_last = a.w_first + 4 * a.width
        a.w_length = a.w_last + 4 * a.width
        a.w_begin = a.w_length + 4 * a.width  # one more than the others

    @cute.jit
    def set_up(self, a):
        """Barriers of the rings; known to all after the next barrier of the block."""
        c = self.config
        if a.thread < c.warps * c.stages:
            atoms.barrier_init(a.barriers + a.thread * 8, 1)

    def tear_down(self, a) -> None:
        """Nothing is held."""

    def registers(self, a) -> None:
        """What each lane keeps of its queries."""
        a.operand = cute.make_rmem_tensor(cute.make_layout((16 * self.tiles,)), Uint32)
        a.last_visible = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Int32)

    @cute.jit
    def clear(self, a):
        """No scores in the table."""
        at = a.scores + a.thread * 16
        while at < a.scores + self.config.score_bytes:
            atoms.sts_zero_x4(at)
            at = at + self.config.threads * 16

    # Requests.

    @cute.jit
    def request_work(self, a, request: Int32, early: cutlass.Constexpr = False):
        """Pages, query range and length of a request, and the pieces of work that it makes; zeros behind the last.

        early: before the kernel before has ended.
        """
        pages, first, last, length, pieces = Int32(0), Int32(0), Int32(0), Int32(0), Int32(0)
        if request < a.batch:
            length = work.load_i32(a.seq_lens, request, early)
            first, last = work.query_range(request, a.cu_seqlens, a.q_len, early)
            pages = work.num_pages(length, a.max_blocks)
            shift = Int32(self.config.columns.bit_length() - 1)
            pieces = pages * work.num_tiles(first, last, a.num_tokens, a.num_heads, shift)
        return pages, first, last, length, pieces

    @cute.jit
    def look_ahead(self, a, total: Int32, rows):
        """Of this warp's first pieces of a batch of few requests: what it needs to ask for them.

        Gives the address in the table of the page of the lane's first piece but for `lane` ones (0 if there is none),
        and for the first: the request's place and what `find_queries` gives, with the addresses of queries in `rows`.
        """
        c = self.config
        low = work.run_begin(a.block, total, a.num_blocks, a.blocks_magic)
        stop = work.run_begin(a.block + 1, total, a.num_blocks, a.blocks_magic)
        stop = low + c.pages if low + c.pages < stop else stop
        first = low + a.warp // c.parts
        address, place, tile_begin, tile_end, columns, seen = Int64(0), Int32(0), Int32(0), Int32(0), Int32(0), Int32(0)
        if low < stop:
            place = self.place_of(a, Int32(atoms.lds_u32(a.w_place)), first if first < stop else low)
            piece = first + a.lane * (c.warps // c.parts)
            if piece < stop:
                address = self.table_address(a, Int32(0), place, piece)
            tile_begin, tile_end, columns, seen = self.find_queries(a, place, first, rows)
        return address, place, tile_begin, tile_end, columns, seen

    @cute.jit
    def foresee(self, a, total: Int32) -> Int32:
        """Brings the block's first pages to the second-level cache while the kernel before may still run; one warp.

        That kernel may be about to write what is read here, so nothing but hints comes of it. Gives some lanes a page
        to bring there when it has ended, the others -1.
        """
        c = self.config
        begin = work.run_begin(a.block, total, a.num_blocks, a.blocks_magic)
        stop = work.run_begin(a.block + 1, total, a.num_blocks, a.blocks_magic)
        piece = begin + a.lane
        known = Int32(c.early + c.later) if stop - begin >= LONG_RUN else Int32(c.early)
        page = Int32(-1)
        if piece < stop and a.lane < known:
            page = Int32(atoms.ldg_relaxed_u32(self.table_address(a, Int32(0), Int32(atoms.lds_u32(a.w_place)), piece)))
            if a.lane < c.early:
                self.bring_to_l2(a, page)
                page = Int32(-1)
        return page

    @cute.jit
    def ask_early(self, a, exists, page: Int32) -> Int32:
        """Asks for the first pages as the table was before the kernel before had ended. Gives a mask of these pages.

        exists, page: of lane i for the warp's piece i.
        """
        c = self.config
        asked = Int32(cute.arch.vote_ballot_sync(exists)) & Int32((1 << c.stages) - 1)
        ring = a.ring + a.warp * (c.stages * c.stage_bytes)
        barriers = a.barriers + a.warp * (c.stages * 8)
        for ahead in cutlass.range_constexpr(c.stages):
            if (asked & (1 << ahead)) != 0:
                self.ask(a, ring, barriers, Int32(ahead), cute.arch.shuffle_sync(page, ahead), a.warp % c.parts)
        return asked

    @cute.jit
    def take_back(self, a, asked: Int32):
        """Waits for pages that are not wanted, so that all barriers of the warp's ring are one phase further."""
        c = self.config
        barriers = a.barriers + a.warp * (c.stages * 8)
        for ahead in cutlass.range_constexpr(c.stages):
            if (asked & (1 << ahead)) == 0:
                with cute.arch.elect_one():
                    atoms.barrier_expect(barriers + ahead * 8, Int32(0))
            else:
                atoms.barrier_wait(barriers + ahead * 8, Int32(0))
        cute.arch.sync_warp()

    @cute.jit
    def bring_to_l2(self, a, page: Int32):
        """Asks for a page, if there is such a page, without waiting for it."""
        if page >= 0 and page < a.num_pages:
            atoms.bulk_prefetch_l2(a.index_cache + Int64(page) * a.page_stride, PAGE_BYTES[self.config.index_format])

    @cute.jit
    def load_few(self, a, request) -> Int32:
        """`load_window` of all requests, one a lane, by each warp for itself: no warp waits for another."""
        pages, first, last, length, pieces = request
        total = cute.arch.shuffle_sync(pieces, 0)
        before = Int32(0) if a.lane == 0 else total
        if a.batch > 1:
            inclusive = work.warp_prefix(pieces, a.lane)
            total = cute.arch.shuffle_sync(inclusive, 31)
            before = inclusive - pieces
        begin = work.run_begin(a.block, total, a.num_blocks, a.blocks_magic)
        at = a.lane * 4
        atoms.sts_u32(a.w_pages + at, pages)
        atoms.sts_u32(a.w_first + at, first)
        atoms.sts_u32(a.w_last + at, last)
        atoms.sts_u32(a.w_length + at, length)
        atoms.sts_u32(a.w_begin + at, before)
        if before <= begin and begin < before + pieces:
            atoms.sts_u32(a.w_place, a.lane)
        if a.lane == 0:
            atoms.sts_u32(a.w_begin + 4 * 32, total)
        cute.arch.sync_warp()
        return total

    @cute.jit
    def load_window(self, a, request, base: Int32, total: Int32, behind: Int32) -> Int32:
        """Puts what is known of a window of requests, one a thread, into shared memory; gives their work.

        Also the place of the request with this block's first piece at or behind `base`, the pieces before the window.
        total: all work, or -1 if it is what this window and those `behind` it have.
        """
        pages, first, last, length, pieces = request
        before, here = work.block_prefix(pieces, a.sums, a.thread, self.config.warps)
        total = base + here + behind if total < 0 else total
        begin = work.run_begin(a.block, total, a.num_blocks, a.blocks_magic)
        begin = begin if begin > base else base
        at = a.thread * 4
        mine = base + before
        atoms.sts_u32(a.w_pages + at, pages)
        atoms.sts_u32(a.w_first + at, first)
        atoms.sts_u32(a.w_last + at, last)
        atoms.sts_u32(a.w_length + at, length)
        atoms.sts_u32(a.w_begin + at, mine)
        if mine <= begin and begin < mine + pieces:
            atoms.sts_u32(a.w_place, a.thread)
        if a.thread == 0:
            atoms.sts_u32(a.w_begin + 4 * self.config.threads, base + here)
        cute.arch.sync_threads()
        return here

    @cute.jit
    def work_behind(self, a, window: Int32) -> Int32:
        """Work of the requests from `window` on."""
        total = Int32(0)
        while window < a.batch:
            _, _, _, _, pieces = self.request_work(a, window + a.thread)
            _, part = work.block_prefix(pieces, a.sums, a.thread, self.config.warps)
            cute.arch.sync_threads()
            total = total + part
            window = window + self.config.threads
        return total

    @cute.jit
    def place_of(self, a, place: Int32, piece: Int32) -> Int32:
        """Place in the window of the request that a piece belongs to, which is `place` or behind it."""
        while piece >= Int32(atoms.lds_u32(a.w_begin + place * 4, 4)):
            place = place + 1
        return place

    @cute.jit
    def query_rows(self, a, place: Int32):
        """First query token, query tokens, and the position of that first one."""
        first = Int32(atoms.lds_u32(a.w_first + place * 4))
        last = Int32(atoms.lds_u32(a.w_last + place * 4))
        length = Int32(atoms.lds_u32(a.w_length + place * 4))
        begin = work.clamp(first, Int32(0), a.num_tokens)
        return begin, work.clamp(last, Int32(0), a.num_tokens) - begin, length - (last - begin)

    @cute.jit
    def tile_of(self, within: Int32, pages: Int32) -> Int32:
        """Tile of a request's piece; most requests have one."""
        tile = Int32(0)
        if within >= pages and pages > 0:
            tile = within // pages
        return tile

    # Scoring.

    @cute.jit
    def score(self, a, window: Int32, place: Int32, begin: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32):
        """Scores the pieces low to stop - 1 into the table, all warps of the block together.

        place: of the request of `low`. Gives where the warp's ring goes on, and what `choose` has to know.
        """
        c = self.config
        # This warp takes part `part` of every step-th page of the run, from `first` on.
        part = a.warp % c.parts
        step = c.warps // c.parts
        first = low + a.warp // c.parts
        count = (stop - first + (step - 1)) // step
        count = Int32(0) if stop <= first else count
        ring = a.ring + a.warp * (c.stages * c.stage_bytes)
        barriers = a.barriers + a.warp * (c.stages * 8)

        # Each lane knows one of the next 32 pages, and one of the 32 behind those. They and the queries of the first
        # page are asked for before anything waits.
        first_place = place
        page, tile_begin, tile_end, columns, seen_by_all = Int32(-1), Int32(0), Int32(0), Int32(0), Int32(0)
        known_ahead = Int32(0)
        if cutlass.const_expr(c.early > 0):
            known_ahead = Int32(1) if low == a.ahead.of else Int32(0)
            page, place = a.ahead.page, a.ahead.place
            tile_begin, tile_end, columns = a.ahead.tile_begin, a.ahead.tile_end, a.ahead.columns
            seen_by_all = a.ahead.seen
        if known_ahead == 0:
            place = self.place_of(a, first_place, first if count > 0 else low)
            page = self.look_up(a, window, place, first + a.lane * step, stop)
            tile_begin, tile_end, columns, seen_by_all = self.load_queries(a, place, first)
        next_page = page
        to_ask = count
        if cutlass.const_expr(c.early > 0):
            to_ask = Int32(0) if known_ahead != 0 and a.ahead.asked != 0 else count
        for ahead in cutlass.range_constexpr(c.stages):
            if ahead < to_ask:
                to = slot + ahead
                to = to - c.stages if to >= c.stages else to
                self.ask(a, ring, barriers, to, cute.arch.shuffle_sync(page, ahead), part)
        self.convert_queries(a, columns, a.operand)
        known = None
        if cutlass.const_expr(self.tiles == 1):
            known = self.before_choosing(a, first_place, begin, low, stop)

        for i in cutlass.range(count, unroll=1):
            at = i % 32
            if at == 0 and i > 0:
                page = next_page
            if at == 8 and i + 24 < count:
                next_page = self.look_up(a, window, place, first + (i + 24 + a.lane) * step, stop)
            this_page = cute.arch.shuffle_sync(page, at)
            piece = first + i * step
            if piece >= tile_end:
                place = self.place_of(a, place, piece)
                tile_begin, tile_end, columns, seen_by_all = self.load_queries(a, place, piece)
                self.convert_queries(a, columns, a.operand)
            atoms.barrier_wait(barriers + slot * 8, parity)
            if this_page >= 0 and this_page < a.num_pages:
                self.score_part(
                    a,
                    ring + slot * c.stage_bytes,
                    a.operand,
                    a.last_visible,
                    columns,
                    seen_by_all,
                    (piece - tile_begin) * PAGE + part * c.tokens,
                    piece - low,
                )
            cute.arch.sync_warp()
            if i + c.stages < count:
                ahead = at + c.stages
                wanted = cute.arch.shuffle_sync(page if ahead < 32 else next_page, ahead & 31)
                self.ask(a, ring, barriers, slot, wanted, part)
            slot = slot + 1
            if slot == c.stages:
                slot = Int32(0)
                parity = parity ^ 1
        if cutlass.const_expr(self.tiles > 1):  # registers are short
            known = self.before_choosing(a, first_place, begin, low, stop)
        cute.arch.sync_threads()
        return slot, parity, known

    @cute.jit
    def look_up(self, a, window: Int32, place: Int32, piece: Int32, stop: Int32):
        """Page id of a piece of work as the table has it; -1 from `stop` on. Nothing waits for the table here.

        place: of the piece's request, or of one before.
        """
        page = Int32(-1)
        if piece < stop:
            page = Int32(atoms.ldg_constant_u32(self.table_address(a, window, place, piece)))
        return page

    @cute.jit
    def table_address(self, a, window: Int32, place: Int32, piece: Int32) -> Int64:
        """Where the table has the page of a piece. place: of the piece's request, or of one before."""
        place = self.place_of(a, place, piece)
        pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
        within = piece - Int32(atoms.lds_u32(a.w_begin + place * 4))
        index = within - self.tile_of(within, pages) * pages
        return a.block_table + Int64(window + place) * (a.table_stride * 4) + Int64(index) * 4

    @cute.jit
    def ask(self, a, ring: Int32, barriers: Int32, slot: Int32, page: Int32, part: Int32):
        """Starts the copy of a part of a page into the ring, or completes its barrier if there is no such page."""
        c = self.config
        exists = page >= 0 and page < a.num_pages
        with cute.arch.elect_one():
            barrier = barriers + slot * 8
            target = ring + slot * c.stage_bytes
            atoms.barrier_expect(barrier, Int32(c.stage_bytes) if exists else Int32(0))
            if exists:
                source = a.index_cache + Int64(page) * a.page_stride
                row = keys.row_bytes(c.index_format)
                atoms.bulk_load(target, source + Int64(part * (c.tokens * row)), c.tokens * row, barrier)
                if cutlass.const_expr(c.index_format == "nvfp4"):
                    scales = source + Int64(PAGE * row + part * (c.tokens * 8))
                    atoms.bulk_load(target + c.tokens * row, scales, c.tokens * 8, barrier)

    @cute.jit
    def load_queries(self, a, place: Int32, piece: Int32):
        """`find_queries`, and asks for them."""
        rows = cute.make_rmem_tensor(cute.make_layout((self.tiles,)), Int64)
        tile_begin, tile_end, columns, seen_by_all = self.find_queries(a, place, piece, rows)
        self.ask_for_queries(a, rows)
        return tile_begin, tile_end, columns, seen_by_all

    @cute.jit
    def find_queries(self, a, place: Int32, piece: Int32, rows):
        """Addresses of the queries of a piece's tile, one for each of the lane's columns, 0 behind the last; the last
        position that each of the lane's columns sees.

        Gives the tile's first piece and the one behind its last, the columns of the request from the tile on, and the
        last position that all of them see.
        """
        c = self.config
        begin, tokens, position = self.query_rows(a, place)
        pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
        request_begin = Int32(atoms.lds_u32(a.w_begin + place * 4))
        tile = self.tile_of(piece - request_begin, pages)
        columns = tokens * a.num_heads - tile * c.columns
        group, t = a.lane // 4, a.lane % 4
        for n in cutlass.range_constexpr(self.tiles):
            column = 8 * n + group
            rows[n] = Int64(0)
            if column < columns:
                pair = tile * c.columns + column
                token = work.divide(pair, a.heads_magic)
                head = pair - token * a.num_heads
                rows[n] = a.index_q + Int64(begin + token) * a.q_token_stride + Int64(head) * a.q_head_stride
            for i in cutlass.range_constexpr(2):
                column = 8 * n + 2 * t + i
                seen = position + work.divide(tile * c.columns + column, a.heads_magic)
                a.last_visible[2 * n + i] = seen if column < columns else Int32(-1)
        tile_begin = request_begin + tile * pages
        return tile_begin, tile_begin + pages, columns, position + work.divide(tile * c.columns, a.heads_magic)

    @cute.jit
    def ask_for_queries(self, a, rows):
        """Tiles beyond a request's columns become zeros: they are multiplied, too."""
        for n in cutlass.range_constexpr(self.tiles):
            queries.load_words(self.config.index_format, rows[n], a.q_dtype, a.lane % 4, a.operand, 16 * n)

    @cute.jit
    def convert_queries(self, a, columns: Int32, operand):
        for n in cutlass.range_constexpr(self.tiles):
            if 8 * n < columns:
                queries.convert(self.config.index_format, a.q_dtype, operand, 16 * n)

    @cute.jit
    def score_part(
        self,
        a,
        stage: Int32,
        operand,
        last_visible,
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
        for i in cutlass.range_constexpr(2 * self.tiles):
            best[i] = -Float32.inf
        own = position + a.lane // 4
        if position + (c.tokens - 1) <= seen_by_all:
            # A decode step in a batch for verification has columns for one tile only.
            if cutlass.const_expr(self.tiles > 1):
                if columns <= 8:
                    self.score_rows(a, codes, scales, operand, best, last_visible, own, 1, False)
                else:
                    self.score_rows(a, codes, scales, operand, best, last_visible, own, self.tiles, False)
            else:
                self.score_rows(a, codes, scales, operand, best, last_visible, own, 1, False)
        else:
            self.score_rows(a, codes, scales, operand, best, last_visible, own, self.tiles, True)
        self.raise_scores(a, best, row)

    @cute.jit
    def score_rows(
        self,
        a,
        codes: Int32,
        scales: Int32,
        operand,
        best,
        last_visible,
        position: Int32,
        tiles: cutlass.Constexpr,
        masked: cutlass.Constexpr,
    ):
        """Raises best[2 n + i], the maxima of the lane's columns in the first `tiles`, to the scores of its tokens.

        position: of the lane's first token. masked: a token counts only up to position last_visible[2 n + i].
        """
        c = self.config
        for m in cutlass.range(c.tokens // 16, unroll=1):
            upper = keys.load_row(c.index_format, codes, scales, 0, a.factors)
            lower = keys.load_row(c.index_format, codes, scales, 8, a.factors)
            for n in cutlass.range_constexpr(0, tiles, c.together):
                self.multiply(
                    upper, lower, operand, best, last_visible, position + 16 * m, n, min(tiles - n, c.together), masked
                )
            codes = codes + 16 * keys.row_bytes(c.index_format)
            scales = scales + 16 * 8

    @cute.jit
    def multiply(
        self,
        upper,
        lower,
        operand,
        best,
        last_visible,
        position: Int32,
        begin: cutlass.Constexpr,
        tiles: cutlass.Constexpr,
        masked: cutlass.Constexpr,
    ):
        """16 tokens, the lane's first at `position`, with `tiles` tiles of 8 columns from `begin` on, side by side."""
        sums = [(Float32(0.0), Float32(0.0), Float32(0.0), Float32(0.0))] * tiles
        kind = keys.operand_kind(self.config.index_format)
        for step in cutlass.range_constexpr(keys.STEPS):
            left = (upper[2 * step], lower[2 * step], upper[2 * step + 1], lower[2 * step + 1])
            for n in cutlass.range_constexpr(tiles):
                at = 16 * (begin + n) + 2 * step
                sums[n] = atoms.mma(kind, left, (operand[at], operand[at + 1]), sums[n])
        for n in cutlass.range_constexpr(tiles):
            for half in cutlass.range_constexpr(2):
                for i in cutlass.range_constexpr(2):
                    at = 2 * (begin + n) + i
                    raised = atoms.max_f32(best[at], sums[n][2 * half + i])
                    if cutlass.const_expr(masked):
                        raised = raised if position + 8 * half <= last_visible[at] else best[at]
                    best[at] = raised

    @cute.jit
    def raise_scores(self, a, best, row: Int32):
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
            column = (group // 2) * 8 + 2 * t + group % 2
            at = self.entry(a, column, row)
            for i in cutlass.range_constexpr(len(values)):
                # 2 n + i of `best` is (i << splits) + group
                further = (i << splits) // 2 * 8 * (self.config.pages + 1) * 4
                atoms.max_shared_u32(at, ranking.key_of_score(values[i]), further)

    def entry(self, a, column: Int32, row: Int32) -> Int32:
        return a.scores + (column * (self.config.pages + 1) + row) * 4


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
        *[Int64(0)] * 8,
        *[Int32(0)] * 12,
        make_fake_stream(),
    )
