"""The indexer's scan on Hopper for 16 columns of NVFP4 keys: as in sm90_scan, or with products of warpgroups where the
lengths say that pages and pages of a request are many.

Four warps form a group and take four pages side by side, a page each. Each warp decodes 16 keys of its page into
registers; together they are the first operand of a product with the group's queries, which lie in shared memory. The
warps of a group go in step with the same queries: where a request's tile ends among their pages, all of them multiply
once more with the next one's, and each takes what is of its page's own tile. A warp without a page multiplies what its
ring holds.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Uint8, Uint32
from msa_ops.cute.common import bulk_copy
from msa_ops.cute.indexer import atoms, group_products, keys, queries, work
from msa_ops.cute.indexer.scan import trace_as
from msa_ops.cute.indexer.sm90_group_scan_configs import Config
from msa_ops.cute.indexer.sm90_scan import IndexerScanSm90

PAGE = work.PAGE
HALF = PAGE // 2


class IndexerGroupScanSm90(IndexerScanSm90):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        assert config.pages <= 32 * config.warps

    def layout(self, a: SimpleNamespace) -> None:
        c = self.config
        a.group, a.part = a.warp // 4, a.warp % 4
        base = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        a.queries = base + a.group * c.query_bytes
        a.ring = base + c.groups * c.query_bytes
        a.scores = a.ring + c.ring_bytes
        a.sums = a.scores + c.score_bytes
        a.barriers = a.sums + 4 * 32
        visible = a.barriers + 8 * c.warps * c.stages
        a.visible = visible + a.thread * (8 * self.tiles)
        self.layout_window(a, visible + c.visible_bytes)

    def own_words(self):
        """The words of the warp's own queries on their way to shared memory."""
        words = cute.make_rmem_tensor(cute.make_layout((16,)), Uint32)
        words.fill(Uint32(0))
        return words

    @cute.jit
    def find_own_queries(self, a, place: Int32, piece: Int32, own):
        """As `find_queries`, and asks for those that the warp brings to shared memory: 8 columns.

        The last position that each of the lane's columns sees goes to shared memory: few pages need it.
        """
        t = self.tile_at(a, place, piece)
        if a.part < self.tiles:
            row = self.query_address(a, t, 8 * a.part + a.lane // 4)
            queries.load_words(self.config.index_format, row, a.q_dtype, a.lane % 4, own, 0)
        for n in cutlass.range_constexpr(self.tiles):
            for i in cutlass.range_constexpr(2):
                column = 8 * n + 2 * (a.lane % 4) + i
                seen = self.last_seen(a, t, column)
                atoms.sts_u32(a.visible + (8 * n + 4 * i), seen if column < t.columns else Int32(-1))
        return t.begin, t.end, self.last_seen(a, t, Int32(0))

    @cute.jit
    def put_queries(self, a, own):
        """Converts the warp's queries and brings them to shared memory; then the group has all of them."""
        c = self.config
        if a.part < self.tiles:
            queries.convert(c.index_format, a.q_dtype, own, 0)
            at = a.queries + a.part * (2 * group_products.BLOCK) + a.lane * 4
            for step in cutlass.range_constexpr(group_products.STEPS):
                for half in cutlass.range_constexpr(2):
                    to = at + group_products.offset(c.columns, step, 0, half)
                    atoms.sts_u32(to, own[2 * step + half])
            bulk_copy.order_before_copies()
        self.meet(a)

    @cute.jit
    def meet(self, a):
        """All warps of the group."""
        cute.arch.barrier(barrier_id=1 + a.group, number_of_threads=128)

    @cute.jit
    def scan(self, a, total: Int32, window_total: Int32, parity: Int32):
        """The lengths decide between two runs; one run with both ways to score would take more registers."""
        if total >= a.group_block_pages * a.num_blocks and total >= a.group_request_pages * a.batch:
            self.scan_run(self.in_a_way(a, True), total, window_total, parity)
        else:
            self.scan_run(self.in_a_way(a, False), total, window_total, parity)

    def in_a_way(self, a, by_groups: bool) -> SimpleNamespace:
        return SimpleNamespace(**vars(a), by_groups=by_groups)

    @cute.jit
    def score(self, a, window: Int32, place: Int32, begin: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32):
        if cutlass.const_expr(a.by_groups):
            slot, parity = self.score_by_groups(a, window, place, low, stop, slot, parity)
        else:
            slot, parity, _ = self.score_by_warps(a, window, place, begin, low, stop, slot, parity)
        known = self.before_choosing(a, place, begin, low, stop)
        cute.arch.sync_threads()
        return slot, parity, known

    @cute.jit
    def score_by_groups(self, a, window: Int32, place: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32):
        c = self.config
        group_first = low + 4 * a.group
        rounds = (stop - group_first + (c.warps - 1)) // c.warps
        rounds = Int32(0) if stop <= group_first else rounds
        first = low + a.warp
        ring, barriers = self.ring_of(a)

        # Each lane knows one of the warp's pages, of which a table holds no more than 32. They and the queries of the
        # first page are asked for before anything waits.
        place = self.place_of(a, place, group_first if rounds > 0 else low)
        page = self.look_up(a, window, place, first + a.lane * c.warps, stop)
        own = self.own_words()
        tile_begin, tile_end, seen_by_all = self.find_own_queries(a, place, group_first, own)
        # A warp without a page takes its neighbour's: it has to multiply, too.
        this_page = cute.arch.shuffle_sync(page, 0)
        if rounds > 0:
            if first >= stop:
                this_page = self.look_up(a, window, place, group_first, stop)
            for half in cutlass.range_constexpr(2):
                self.ask_any(a, ring, barriers, Int32(half), this_page)
        self.put_queries(a, own)
        of_queries = group_products.descriptors(a.queries, c.columns)

        for i in cutlass.range(rounds, unroll=1):
            piece = first + i * c.warps
            more = piece + c.warps < stop
            arrives = i == 0 or piece < stop
            current = group_first + i * c.warps
            upto = current + 4
            upto = stop if stop < upto else upto
            while current < upto:
                if current >= tile_end:
                    place = self.place_of(a, place, current)
                    others = self.own_words()
                    tile_begin, tile_end, seen_by_all = self.find_own_queries(a, place, current, others)
                    self.meet(a)  # none multiplies with the queries before
                    self.put_queries(a, others)
                to = tile_end if tile_end < upto else upto
                s = SimpleNamespace(
                    ring=ring,
                    barriers=barriers,
                    parity=parity,
                    queries=of_queries,
                    arrives=arrives,
                    page=page,
                    round=i,
                    counts=piece >= current and piece < to,
                    asks=more and to == upto,
                    position=(piece - tile_begin) * PAGE,
                    row=piece - low,
                )
                if (to - tile_begin) * PAGE - 1 <= seen_by_all:
                    self.score_page(a, s, False)
                else:
                    self.score_page(a, s, True)
                current = to
            parity = parity ^ 1
        # A round in which the warp had no page has not moved its barriers.
        if rounds > 1 and first + (rounds - 1) * c.warps >= stop:
            parity = parity ^ 1
        return slot, parity

    @cute.jit
    def ask_any(self, a, ring: Int32, barriers: Int32, half: Int32, page: Int32):
        """`ask`; for another page if there is no such page, so that there is something to multiply."""
        page = work.clamp(page, Int32(0), a.num_pages - 1)
        self.ask(a, ring, barriers, half, page, half)

    @cute.jit
    def score_page(self, a, s, masked: cutlass.Constexpr):
        """Multiplies the warp's page and raises the table's entries of a row.

        `s`: arrives: the page comes in this round. counts: it is of the tile that the group multiplies with. asks: when
        a half of it is read, that of the warp's next page takes its place. page: each lane knows one of the warp's
        pages, lane `round` this one. position: of the page's first key. row: of the table. masked: some of the group's
        keys are not seen by all columns.
        """
        c = self.config
        best = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Float32)
        for i in cutlass.range_constexpr(2 * self.tiles):
            best[i] = -Float32.inf
        own = s.position + a.lane // 4
        for half in cutlass.range(2, unroll=1):
            if s.arrives:
                atoms.barrier_wait(s.barriers + half * 8, s.parity)
            stage = s.ring + half * c.stage_bytes
            codes = stage + keys.lane_offset(c.index_format, a.lane)
            scales = stage + (HALF * keys.row_bytes(c.index_format) + (a.lane // 4) * 8 + (a.lane % 4) * 2)
            for _part in cutlass.range(HALF // c.turn, unroll=1):
                self.score_keys(a, s, codes, scales, best, own, masked)
                codes = codes + c.turn * keys.row_bytes(c.index_format)
                scales = scales + c.turn * 8
                own = own + c.turn
            cute.arch.sync_warp()
            if s.asks:
                wanted = cute.arch.shuffle_sync(s.page, (s.round + 1) & 31)
                self.ask_any(a, s.ring, s.barriers, half, wanted)
        page = cute.arch.shuffle_sync(s.page, s.round)
        if s.counts and page >= 0 and page < a.num_pages:
            self.raise_scores(a, best, s.row)

    def score_keys(self, a, s, codes: Int32, scales: Int32, best, own: Int32, masked: bool) -> None:
        """`turn` keys of the warp. While 16 of them are multiplied the next 16 are decoded."""
        c = self.config
        sums = None
        for row in range(0, c.turn, 16):
            at, of_scales = codes + row * keys.row_bytes(c.index_format), scales + row * 8
            upper = keys.load_row(c.index_format, at, of_scales, 0, a.factors)
            lower = keys.load_row(c.index_format, at, of_scales, 8, a.factors)
            if sums is not None:
                self.raise_best(a, best, group_products.finish(sums), own + (row - 16), masked)
            sums = group_products.start("f16", c.columns, group_products.operand(upper, lower), s.queries)
        self.raise_best(a, best, group_products.finish(sums), own + (c.turn - 16), masked)

    @cute.jit
    def raise_best(self, a, best, sums, position: Int32, masked: cutlass.Constexpr):
        """best[2 n + i]: of the lane's columns. masked: a token counts only up to what the column sees."""
        for n in cutlass.range_constexpr(self.tiles):
            if cutlass.const_expr(masked):
                last = [Int32(word) for word in atoms.lds_u32x2(a.visible, 8 * n)]
            for half in cutlass.range_constexpr(2):
                for i in cutlass.range_constexpr(2):
                    at = 2 * n + i
                    raised = atoms.max_f32(best[at], sums[4 * n + 2 * half + i])
                    if cutlass.const_expr(masked):
                        raised = raised if position + 8 * half <= last[i] else best[at]
                    best[at] = raised


def trace(config: Config):
    return trace_as(IndexerGroupScanSm90(config))
