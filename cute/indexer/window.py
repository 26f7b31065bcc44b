"""What a thread block of the scan knows of a window of requests, in shared memory, and what follows from it.

A window has as many requests as the block has threads. Of up to 32 requests each warp has a window of its own.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from msa_ops.cute.indexer import atoms, work

WINDOW_OF_FEW = 4 * (1 + 4 * 32 + 33)
"""Bytes in which a warp keeps what is known of 32 requests."""


class Window:
    """Methods of a scan (scan.IndexerScan); `a` is what it knows everywhere. A request's place is its number in the
    window.
    """

    @cute.jit
    def own_window(self, a) -> Int32:
        """Of few requests: where the warp's own window begins behind the first warp's."""
        return a.warp * WINDOW_OF_FEW if a.few else Int32(0)

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
    def request_work(self, a, request: Int32, early: cutlass.Constexpr = False):
        """Pages, query range and length of a request, and the pieces of work that it makes; zeros behind the last."""
        return self.work_of(a, self.lengths_of(a, request, early))

    @cute.jit
    def lengths_of(self, a, request: Int32, early: cutlass.Constexpr = False):
        """Query range and length of a request; zeros behind the last. Nothing waits for them here.

        early: before the kernel before has ended.
        """
        first, last, length = Int32(0), Int32(0), Int32(0)
        if request < a.batch:
            length = work.load_i32(a.seq_lens, request, early)
            first, last = work.query_range(request, a.cu_seqlens, a.q_len, early)
        return first, last, length

    @cute.jit
    def work_of(self, a, lengths):
        """`request_work` of what `lengths_of` gave."""
        first, last, length = lengths
        pages = work.num_pages(length, a.max_blocks)
        shift = Int32(self.config.columns.bit_length() - 1)
        pieces = pages * work.num_tiles(first, last, a.num_tokens, a.num_heads, shift)
        return pages, first, last, length, pieces

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

    @cute.jit
    def tile_at(self, a, place: Int32, piece: Int32):
        """What is known of the tile of a piece, which is of the request at `place`.

        `number` of the tile in its request; its first piece (`begin`) and the one behind its last (`end`); the columns
        of the request from the tile on; the request's first query token (`query_begin`) and that one's position.
        """
        query_begin, tokens, position = self.query_rows(a, place)
        pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
        request_begin = Int32(atoms.lds_u32(a.w_begin + place * 4))
        number = self.tile_of(piece - request_begin, pages)
        columns = tokens * a.num_heads - number * self.config.columns
        begin = request_begin + number * pages
        return SimpleNamespace(
            number=number, begin=begin, end=begin + pages, columns=columns, query_begin=query_begin, position=position
        )

    @cute.jit
    def query_address(self, a, t, column: Int32) -> Int64:
        """Of the query of a column of a tile; 0 if it has no such column."""
        address = Int64(0)
        if column < t.columns:
            pair = t.number * self.config.columns + column
            token = work.divide(pair, a.heads_magic)
            head = pair - token * a.num_heads
            address = a.index_q + Int64(t.query_begin + token) * a.q_token_stride + Int64(head) * a.q_head_stride
        return address

    @cute.jit
    def last_seen(self, a, t, column: Int32) -> Int32:
        """The last position that a column of a tile sees. All columns see what the first one does."""
        return t.position + work.divide(t.number * self.config.columns + column, a.heads_magic)

    @cute.jit
    def table_address(self, a, window: Int32, place: Int32, piece: Int32) -> Int64:
        """Where the table has the page of a piece. place: of the piece's request, or of one before."""
        place = self.place_of(a, place, piece)
        pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
        within = piece - Int32(atoms.lds_u32(a.w_begin + place * 4))
        index = within - self.tile_of(within, pages) * pages
        return a.block_table + Int64(window + place) * (a.table_stride * 4) + Int64(index) * 4

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
    def pages_ahead(self, a, page: Int32, later: Int32, i: Int32, count: Int32, window: Int32, place: Int32, of, stop):
        """Keeps the pages of up to 64 of `count` pieces in a warp's lanes: those of 32 from a multiple of 32 on in
        `page` and, looked up in time, of the 32 behind them in `later`. Gives both for piece i; its page is lane
        i % 32's. The pages of the first 32 are there.

        of: first piece and distance of the pieces. place: of piece i, or before.
        """
        first, step = of
        at = i % 32
        if at == 0 and i > 0:
            page = later
        if at == 8 and i + 24 < count:
            later = self.look_up(a, window, place, first + (i + 24 + a.lane) * step, stop)
        return page, later
