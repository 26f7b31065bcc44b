"""The indexer's scan on Hopper for more than 8 columns of NVFP4 keys: as in sm90_scan, with products of warpgroups.

Four warps form a group and take four pages side by side, a page each. Each warp decodes 16 keys of its page into
registers; together they are the first operand of a product with the group's queries, which lie in shared memory. The
warps of a group go in step with the same queries: where a request's tile ends among their pages, all of them multiply
once more with the next one's, and each takes what is of its page's own tile. A warp without a page multiplies what its
ring holds.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import bulk_copy
from msa_ops.cute.indexer import atoms, group_products, keys, queries, work
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

    def registers(self, a) -> None:
        """The words of the warp's own queries on their way to shared memory."""
        a.operand = cute.make_rmem_tensor(cute.make_layout((16,)), Uint32)

    @cute.jit
    def find_own_queries(self, a, place: Int32, piece: Int32):
        """As `find_queries`, and asks for those that the warp brings to shared memory: 8 columns.

        The last position that each of the lane's columns sees goes to shared memory: few pages need it.
        """
        c = self.config
        begin, tokens, position = self.query_rows(a, place)
        pages = Int32(atoms.lds_u32(a.w_pages + place * 4))
        request_begin = Int32(atoms.lds_u32(a.w_begin + place * 4))
        tile = self.tile_of(piece - request_begin, pages)
        columns = tokens * a.num_heads - tile * c.columns
        group, t = a.lane // 4, a.lane % 4
        if a.part < self.tiles:
            column = 8 * a.part + group
            row = Int64(0)
            if column < columns:
                pair = tile * c.columns + column
                token = work.divide(pair, a.heads_magic)
                head = pair - token * a.num_heads
                row = a.index_q + Int64(begin + token) * a.q_token_stride + Int64(head) * a.q_head_stride
            queries.load_words(c.index_format, row, a.q_dtype, t, a.operand, 0)
        for n in cutlass.range_constexpr(self.tiles):
            for i in cutlass.range_constexpr(2):
                column = 8 * n + 2 * t + i
                seen = position + work.divide(tile * c.columns + column, a.heads_magic)
                atoms.sts_u32(a.visible + (8 * n + 4 * i), seen if column < columns else Int32(-1))
        tile_begin = request_begin + tile * pages
        return tile_begin, tile_begin + pages, position + work.divide(tile * c.columns, a.heads_magic)

    @cute.jit
    def put_queries(self, a):
        """Converts the warp's queries and brings them to shared memory; then the group has all of them."""
        c = self.config
        if a.part < self.tiles:
            queries.convert(c.index_format, a.q_dtype, a.operand, 0)
            at = a.queries + a.part * (2 * group_products.BLOCK) + a.lane * 4
            for step in cutlass.range_constexpr(group_products.STEPS):
                for half in cutlass.range_constexpr(2):
                    to = at + group_products.offset(c.columns, step, 0, half)
                    atoms.sts_u32(to, a.operand[2 * step + half])
            bulk_copy.order_before_copies()
        self.meet(a)

    @cute.jit
    def meet(self, a):
        """All warps of the group."""
        cute.arch.barrier(barrier_id=1 + a.group, number_of_threads=128)

    @cute.jit
    def score(self, a, window: Int32, place: Int32, begin: Int32, low: Int32, stop: Int32, slot: Int32, parity: Int32):
        c = self.config
        group_first = low + 4 * a.group
        rounds = (stop - group_first + (c.warps - 1)) // c.warps
        rounds = Int32(0) if stop <= group_first else rounds
        first = low + a.warp
        ring = a.ring + a.warp * (2 * c.stage_bytes)
        barriers = a.barriers + a.warp * (2 * 8)

        # Each lane knows one of the warp's pages, of which a table holds no more than 32. They and the queries of the
        # first page are asked for before anything waits.
        first_place = place
        place = self.place_of(a, first_place, group_first if rounds > 0 else low)
        page = self.look_up(a, window, place, first + a.lane * c.warps, stop)
        tile_begin, tile_end, seen_by_all = self.find_own_queries(a, place, group_first)
        # A warp without a page takes its neighbour's: it has to multiply, too.
        this_page = cute.arch.shuffle_sync(page, 0)
        if rounds > 0:
            if first >= stop:
                this_page = self.look_up(a, window, place, group_first, stop)
            for half in cutlass.range_constexpr(2):
                self.ask_any(a, ring, barriers, Int32(half), this_page)
        self.put_queries(a)
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
                    tile_begin, tile_end, seen_by_all = self.find_own_queries(a, place, current)
                    self.meet(a)  # none multiplies with the queries before
                    self.put_queries(a)
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
        known = self.before_choosing(a, first_place, begin, low, stop)
        # A round in which the warp had no page has not moved its barriers.
        if rounds > 1 and first + (rounds - 1) * c.warps >= stop:
            parity = parity ^ 1
        cute.arch.sync_threads()
        return slot, parity, known

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
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(alignment):
        return make_ptr(Uint8, 16, gmem, assumed_align=alignment)

    return IndexerGroupScanSm90(config), (
        *(pointer(alignment) for alignment in (16, 16, 4, 4, 4, 4, 8)),
        *[Int64(0)] * 8,
        *[Int32(0)] * 12,
        make_fake_stream(),
    )
