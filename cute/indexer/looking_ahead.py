"""A batch of up to 32 requests is looked at before the kernel before has ended.

Each warp divides the work by the lengths as they are then, finds the addresses of what it will ask for, and reads the
table. Nothing but addresses (inside the arguments' memory) and requests to the second-level cache come of it: behind
griddepcontrol.wait lengths, table entries and queries are read. Pages are asked for at the same time, as the table was
before; where lengths or entries are others, the warp lets these pages come and begins anew.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from msa_ops.cute.indexer import atoms, work
from msa_ops.cute.indexer.sm90_scan_configs import LONG_RUN, PAGE_BYTES


class LookingAhead:
    """Methods of the scan on Hopper (sm90_scan.IndexerScanSm90)."""

    @cute.jit
    def early_lengths(self, a):
        """`lengths_of` the lane's request of few, as they are before the kernel before has ended."""
        lengths = Int32(0), Int32(0), Int32(0)
        if a.few:
            lengths = self.lengths_of(a, a.lane, True)
        return lengths

    @cute.jit
    def start_early(self, a):
        """`IndexerScan.start`; a.ahead is what is known of the warp's first pieces."""
        c = self.config
        behind, window_total = Int32(0), Int32(0)
        foreseen = Int32(-1)
        first, last, length = a.first_lengths
        table_at, page, guess = Int64(0), Int32(-1), Int32(-1)
        asked, taken_back = Int32(0), Int32(0)
        guesses = cute.make_rmem_tensor(cute.make_layout((c.stages,)), Int32)
        guesses.fill(Int32(-1))
        at, tile_begin, tile_end, columns, seen = Int32(0), Int32(0), Int32(0), Int32(0), Int32(0)
        rows = cute.make_rmem_tensor(cute.make_layout((self.tiles,)), Int64)
        rows.fill(Int64(0))
        a.last_visible.fill(Int32(-1))
        if a.few:
            # As if the lengths were there already; they are looked at again when the kernel before has ended.
            window_total = self.load_few(a, self.work_of(a, (first, last, length)))
            if a.warp == c.warps - 1:
                foreseen = self.foresee(a, window_total)
            table_at, at, tile_begin, tile_end, columns, seen = self.look_ahead(a, window_total, rows)
            if cutlass.const_expr(c.guess) and table_at != Int64(0):
                guess = Int32(atoms.ldg_relaxed_u32(table_at))
            if cutlass.const_expr(c.guess):
                # Before anything else is loaded: a warp that waits for one load may wait for all behind it, too.
                asked = Int32(cute.arch.vote_ballot_sync(table_at != Int64(0))) & Int32((1 << c.stages) - 1)
                for ahead in cutlass.range_constexpr(c.stages):
                    guesses[ahead] = cute.arch.shuffle_sync(guess, ahead)
        cute.arch.griddepcontrol_wait()
        if a.few:
            # Nothing waits for these before pages are asked for.
            new_first, new_last, new_length = self.lengths_of(a, a.lane, True)
            if table_at != Int64(0):
                page = Int32(atoms.ldg_relaxed_u32(table_at))
            self.ask_for_queries(a, rows)
            if cutlass.const_expr(c.guess):
                self.ask_early(a, asked, guesses)
            if cutlass.const_expr(c.later > 0):
                self.bring_to_l2(a, foreseen)
            cute.arch.griddepcontrol_launch_dependents()
            other = new_first != first or new_last != last or new_length != length
            if cute.arch.vote_any_sync(other):
                cute.arch.sync_warp()
                window_total = self.load_few(a, self.work_of(a, (new_first, new_last, new_length)))
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
            request = self.request_work(a, a.thread)
            cute.arch.griddepcontrol_launch_dependents()
            behind = self.work_behind(a, Int32(c.threads))
            window_total = self.load_window(a, request, Int32(0), Int32(-1), behind)
        a.ahead = SimpleNamespace(
            page=page, place=at, tile_begin=tile_begin, tile_end=tile_end, columns=columns, seen=seen, asked=asked
        )
        return window_total, behind, taken_back

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
    def ask_early(self, a, asked: Int32, pages):
        """Asks for the first pages as the table was before the kernel before had ended. asked: a mask of them."""
        c = self.config
        ring, barriers = self.ring_of(a)
        for ahead in cutlass.range_constexpr(c.stages):
            if (asked & (1 << ahead)) != 0:
                self.ask(a, ring, barriers, Int32(ahead), pages[ahead], a.warp % c.parts)

    @cute.jit
    def take_back(self, a, asked: Int32):
        """Waits for pages that are not wanted, so that all barriers of the warp's ring are one phase further."""
        c = self.config
        _, barriers = self.ring_of(a)
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
