"""The indexer's scan on Hopper (scan.py): each warp scores pages of its own.

Every warp has a ring of its own in shared memory and takes its share of the run's pages: it asks for pages by bulk
copies ahead of time, decodes the keys, multiplies them with up to `columns` queries, and keeps the maximum of each
column in a table of the thread block. No warp waits for another until the run (or a full table) is scored.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8, Uint32
from msa_ops.cute.indexer import atoms, work
from msa_ops.cute.indexer.column_queries import ColumnQueries
from msa_ops.cute.indexer.looking_ahead import LookingAhead
from msa_ops.cute.indexer.page_ring import PageRing
from msa_ops.cute.indexer.scan import IndexerScan, trace_as
from msa_ops.cute.indexer.sm90_scan_configs import Config
from msa_ops.cute.indexer.warp_products import WarpProducts

PAGE = work.PAGE


class IndexerScanSm90(PageRing, LookingAhead, ColumnQueries, WarpProducts, IndexerScan):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tiles = config.columns // 8

    def layout(self, a: SimpleNamespace) -> None:
        """Shared addresses: rings, barriers, scores, sums of warps, and what is known of a window of requests."""
        c = self.config
        a.ring = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        a.scores = a.ring + c.ring_bytes
        a.sums = a.scores + c.score_bytes
        a.barriers = a.sums + 4 * 32
        self.layout_window(a, a.barriers + 8 * c.warps * c.stages)

    def registers(self, a) -> None:
        """What each lane keeps of its queries."""
        a.operand = cute.make_rmem_tensor(cute.make_layout((16 * self.tiles,)), Uint32)
        a.last_visible = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Int32)

    def look_first(self, a) -> None:
        if self.config.early > 0:
            a.first_lengths = self.early_lengths(a)

    def start(self, a):
        return self.start_early(a) if self.config.early > 0 else super().start(a)

    @cute.jit
    def score(self, a, window: Int32, place: Int32, begin: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32):
        """Scores the pieces low to stop - 1 into the table, all warps of the block together.

        place: of the request of `low`. Gives where the warp's ring goes on, and what `choose` has to know.
        """
        slot, parity, known = self.score_by_warps(a, window, place, begin, low, stop, slot, parity)
        if cutlass.const_expr(self.tiles > 1):  # registers are short
            known = self.before_choosing(a, place, begin, low, stop)
        cute.arch.sync_threads()
        return slot, parity, known

    @cute.jit
    def score_by_warps(
        self, a, window: Int32, place: Int32, begin: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32
    ):
        """`score` but for the last wait; with 8 columns what `choose` has to know is looked up behind the copies."""
        c = self.config
        # This warp takes part `part` of every step-th page of the run, from `first` on.
        part = a.warp % c.parts
        step = c.warps // c.parts
        first = low + a.warp // c.parts
        count = (stop - first + (step - 1)) // step
        count = Int32(0) if stop <= first else count
        ring, barriers = self.ring_of(a)

        # The first pages and their queries are asked for before anything waits.
        first_place = place
        page, tile_begin, tile_end, columns, seen_by_all = Int32(-1), Int32(0), Int32(0), Int32(0), Int32(0)
        known_ahead = Int32(0)
        if cutlass.const_expr(c.early > 0):
            known_ahead = Int32(1) if low == (begin if a.few else Int32(-1)) else Int32(0)
            page, place = a.ahead.page, a.ahead.place
            tile_begin, tile_end, columns = a.ahead.tile_begin, a.ahead.tile_end, a.ahead.columns
            seen_by_all = a.ahead.seen
        if known_ahead == 0:
            place = self.place_of(a, first_place, first if count > 0 else low)
            page = self.look_up(a, window, place, first + a.lane * step, stop)
            tile_begin, tile_end, columns, seen_by_all = self.load_queries(a, place, first)
        later = page
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
            page, later = self.pages_ahead(a, page, later, i, count, window, place, (first, step), stop)
            this_page = cute.arch.shuffle_sync(page, i % 32)
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
                ahead = i % 32 + c.stages
                wanted = cute.arch.shuffle_sync(page if ahead < 32 else later, ahead & 31)
                self.ask(a, ring, barriers, slot, wanted, part)
            slot = slot + 1
            if slot == c.stages:
                slot = Int32(0)
                parity = parity ^ 1
        return slot, parity, known


def trace(config: Config):
    return trace_as(IndexerScanSm90(config))
