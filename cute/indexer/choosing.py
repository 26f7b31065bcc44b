"""The second half of the scan: of the scored blocks of a thread block's run, the best of each column."""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from msa_ops.cute.indexer import atoms, ranking, work

CHUNKS = 8
"""Chunks of 32 keys that a warp holds in registers."""


class Choosing:
    """Methods of a scan (scan.IndexerScan); `a` is what it knows everywhere.

    `s` is what is known of a column of one request in the table: the shared address of its first entry and how many
    there are (`table`, `entries`), the block of the first one, how many blocks the token sees (`visible`), whether
    the entries are all of the request's blocks (`direct`: then the result is written, else a list), whether the list
    holds blocks of a table before (`carries`), and the addresses of result and list (`output`, `list`).
    """

    @cute.jit
    def facts(self, a, place: Int32, piece: Int32, begin: Int32, stop: Int32):
        """What is known of the tile of `piece`, the first of its pieces in the table: the piece behind its last one
        there, its columns, number and first piece, and whether all of it is in this block's run.
        """
        c = self.config
        t = self.tile_at(a, place, piece)
        upto = stop if stop < t.end else t.end
        columns = Int32(c.columns) if t.columns > c.columns else t.columns
        direct = Int32(1) if t.begin >= begin and upto == t.end else Int32(0)
        return upto, columns, t.number, t.begin, direct

    @cute.jit
    def column_facts(self, a, place: Int32, tile: Int32, tile_begin: Int32, begin: Int32, column: Int32):
        """Of a column: how many blocks its token sees, and the addresses of its result and of its list."""
        query_begin, _, position = self.query_rows(a, place)
        pair = tile * self.config.columns + column
        token = work.divide(pair, a.heads_magic)
        head = pair - token * a.num_heads
        output = Int64(query_begin + token) * a.out_token_stride + Int64(head) * a.out_head_stride
        side = Int32(1) if tile_begin >= begin else Int32(0)
        visible = self.visible_blocks(a, position + token)
        return visible, a.block_ids + output * 4, self.list_address(a, side, column)

    @cute.jit
    def before_choosing(self, a, place: Int32, begin: Int32, low: Int32, stop: Int32):
        """`facts` of the first tile in the table and `column_facts` of the warp's column of it.

        They take as long as the choice itself, so a warp may look for them while it waits for pages.
        """
        upto, columns, tile, tile_begin, direct = self.facts(a, place, low, begin, stop)
        visible, output, list_at = self.column_facts(a, place, tile, tile_begin, begin, a.warp)
        return upto, columns, tile, tile_begin, direct, visible, output, list_at

    @cute.jit
    def choose(self, a, place: Int32, known, begin: Int32, end: Int32, low: Int32, stop: Int32) -> Int32:
        """Chooses, for each column of each request's tile in the table, the best of its blocks; a warp a column.

        known: of `before_choosing`. Gives the place of the request of `stop`, if it is in the window.
        """
        c = self.config
        upto, columns, tile, tile_begin, direct, visible, output, list_at = known
        # If the run takes several tables, a list that one request has carried here may be taken by the next one. Then
        # one warp has all of a column, in order; else the columns of all requests go round.
        alone = low == begin and stop == end
        piece, turn = low, Int32(0)
        column = a.warp
        while piece < stop:
            while column < columns:
                s = SimpleNamespace(
                    table=self.entry(a, column, piece - low),
                    entries=upto - piece,
                    block=piece - tile_begin,
                    visible=visible,
                    direct=direct != 0,
                    carries=piece > (begin if begin > tile_begin else tile_begin),
                    output=output,
                    list=list_at,
                )
                self.choose_column(a, s)
                column = column + c.warps
                if column < columns:
                    visible, output, list_at = self.column_facts(a, place, tile, tile_begin, begin, column)
            turn = (turn + columns) % c.warps if alone else Int32(0)
            cute.arch.sync_warp()
            piece = upto
            if piece < Int32(atoms.lds_u32(a.w_begin + 4 * a.width)):
                place = self.place_of(a, place, piece)
            if piece < stop:
                upto, columns, tile, tile_begin, direct = self.facts(a, place, piece, begin, stop)
                column = a.warp - turn
                column = column + c.warps if column < 0 else column
                visible, output, list_at = self.column_facts(a, place, tile, tile_begin, begin, column)
        return place

    def list_address(self, a, side: Int32, column: Int32) -> Int64:
        return a.workspace + Int64(((a.block * 2 + side) * self.config.columns + column) * a.topk) * 8

    @cute.jit
    def visible_blocks(self, a, position: Int32) -> Int32:
        blocks = Int32(0) if position < 0 else (position >> 7) + 1
        return a.max_blocks if blocks > a.max_blocks else blocks

    @cute.jit
    def choose_column(self, a, s):
        """The best of one column's entries (and of its list so far), to the result or to its list."""
        exist = s.visible - s.block
        exist = s.entries if exist > s.entries else exist
        exist = Int32(0) if exist < 0 else exist
        written = Int32(0)
        if exist <= a.topk and not s.carries:
            at = a.lane
            while at < exist:
                self.put(s, at, s.block + at, self.key_at(a, s, at))
                at = at + 32
            written = exist
        elif exist <= CHUNKS * 32 and not s.carries:
            written = self.choose_of_few(a, s, exist)
        else:
            written = self.choose_of_many(a, s, exist)
        at = written + a.lane
        while at < a.topk:
            self.put(s, at, Int32(-1), Uint32(0))
            at = at + 32

    @cute.jit
    def choose_of_spare(self, a, s, block: Int32, key: Uint32) -> Int32:
        """topk of 32 keys, one a lane, which are in the spare words, too; 0 where there is no block. At least topk
        exist. Gives how many were written, topk.
        """
        best = ranking.larger(a.spare, key) < a.topk
        chosen = cute.arch.vote_ballot_sync(best)
        if cute.arch.popc(chosen) > a.topk:  # equal ones: the first of them
            low = cute.arch.warp_redux_sync(key if best else Uint32(ranking.TOP), "umin")
            above = cute.arch.popc(cute.arch.vote_ballot_sync(key > low))
            self.keep(a, s, block, key, low, Int32(0), a.topk - above)
        else:
            if best:
                self.put(s, cute.arch.popc(chosen & ranking.lanes_below(a.lane)), block, key)
        return a.topk

    @cute.jit
    def key_at(self, a, s, at: Int32) -> Uint32:
        score = atoms.lds_u32(s.table + at * 4)
        return ranking.key_of_block(score, s.block + at, s.visible, a.init_blocks, a.local_blocks)

    @cute.jit
    def put(self, s, at: Int32, block: Int32, key: Uint32):
        """An entry of the result or of the list."""
        if s.direct:
            atoms.stg_u32(s.output + Int64(at) * 4, block)
        else:
            atoms.stg_u32x2(s.list + Int64(at) * 8, Uint32(block), key)

    @cute.jit
    def keep(self, a, s, block: Int32, key: Uint32, low: Uint32, written: Int32, ties: Int32):
        """Writes those of a warp's 32 keys that are chosen behind the `written` ones; both counts go on."""
        place, chosen, equal = ranking.ranks(key, low, ties, a.lane)
        if place >= 0:
            self.put(s, written + place, block, key)
        return written + chosen, ties - equal

    @cute.jit
    def key_if(self, a, s, at: Int32, exist: Int32) -> Uint32:
        """`key_at`, and 0 from `exist` on."""
        score = atoms.lds_u32_if(at < exist, s.table + at * 4)
        key = ranking.key_of_block(score, s.block + at, s.visible, a.init_blocks, a.local_blocks)
        return key if at < exist else Uint32(0)

    @cute.jit
    def choose_of_few(self, a, s, exist: Int32) -> Int32:
        """topk of more entries than that, up to as many as a warp holds in registers. Gives how many were written."""
        written, left = Int32(0), exist
        cute.arch.sync_warp()  # all have read the spare words of a column before
        if exist > 32:
            left, written = self.cut_down(a, s, exist)
        else:
            atoms.sts_u32(a.spare + a.lane * 4, self.key_if(a, s, a.lane, exist))
        cute.arch.sync_warp()
        if left <= 32:
            key, block = atoms.lds_u32(a.spare + a.lane * 4), s.block + a.lane
            if exist > 32:
                block = Int32(atoms.lds_u32_if(a.lane < left, s.table + a.lane * 4))
            written = self.choose_of_spare(a, s, block, key)
        return written

    @cute.jit
    def cut_down(self, a, s, exist: Int32):
        """Leaves those of more than 32 entries that may be chosen: their keys in the spare words, 0 behind the last,
        and their blocks in the first of the column's places in the table. Gives how many are left and how many were
        written: if more than 32 are left, the choice is made here.

        No entry below the topk-th largest of the lanes' largest keys is chosen; mostly few more than topk are left.
        """
        keys = cute.make_rmem_tensor(cute.make_layout((CHUNKS,)), Uint32)
        largest = Uint32(0)
        for u in cutlass.range_constexpr(CHUNKS):
            keys[u] = self.key_if(a, s, u * 32 + a.lane, exist)
            largest = atoms.max_u32(largest, keys[u])
        least = Uint32(1)
        if a.topk <= 32:
            atoms.sts_u32(a.spare + a.lane * 4, largest)
            cute.arch.sync_warp()
            least = atoms.max_u32(ranking.least_of_best(a.spare, largest, a.topk), Uint32(1))
        left = Int32(0)
        places = cute.make_rmem_tensor(cute.make_layout((CHUNKS,)), Int32)
        for u in cutlass.range_constexpr(CHUNKS):
            kept = cute.arch.vote_ballot_sync(keys[u] >= least)
            places[u] = left + cute.arch.popc(kept & ranking.lanes_below(a.lane))
            places[u] = places[u] if keys[u] >= least else Int32(64)
            left = left + cute.arch.popc(kept)
        written = Int32(0)
        if left <= 32:
            cute.arch.sync_warp()  # all have read the table and the spare words
            if a.lane >= left:
                atoms.sts_u32(a.spare + a.lane * 4, Uint32(0))
            for u in cutlass.range_constexpr(CHUNKS):
                if places[u] < 32:
                    atoms.sts_u32(a.spare + places[u] * 4, keys[u])
                    atoms.sts_u32(s.table + places[u] * 4, s.block + u * 32 + a.lane)
        else:
            low, ties = ranking.threshold(keys, CHUNKS, a.topk)
            for u in cutlass.range_constexpr(CHUNKS):
                written, ties = self.keep(a, s, s.block + u * 32 + a.lane, keys[u], low, written, ties)
        return left, written

    @cute.jit
    def choose_of_many(self, a, s, exist: Int32) -> Int32:
        """As many entries as there are, behind those of the list if it carries some. Gives how many were written."""
        carried = a.topk if s.carries else Int32(0)
        lowest, highest = Uint32(ranking.TOP), Uint32(0)
        at = a.lane
        while at < exist:
            lowest, highest = ranking.see(self.key_at(a, s, at), lowest, highest)
            at = at + 32
        at = a.lane
        while at < carried:
            _, key = atoms.ldg_u32x2(s.list + Int64(at) * 8)
            lowest, highest = ranking.see(key, lowest, highest)
            at = at + 32
        seen = self.count_of_many(a, s, exist, carried, Uint32(1))
        forced = self.count_of_many(a, s, exist, carried, Uint32(ranking.HIGHEST_SCORE + 1))
        low, high = ranking.bounds(seen, forced, lowest, highest, a.topk)
        while low < high:
            parts = ranking.between(low, high)
            counts = tuple(self.count_of_many(a, s, exist, carried, part) for part in parts)
            low, high = ranking.narrow(low, high, parts, counts, a.topk)
        ties = a.topk - self.count_of_many(a, s, exist, carried, low + Uint32(1))

        written, chunk = Int32(0), Int32(0)
        while chunk < carried:
            block, key = Uint32(0), Uint32(0)
            if chunk + a.lane < carried:
                block, key = atoms.ldg_u32x2(s.list + Int64(chunk + a.lane) * 8)
            cute.arch.sync_warp()  # the list is rewritten in place, never ahead of what was read
            written, ties = self.keep(a, s, Int32(block), key, low, written, ties)
            chunk = chunk + 32
        chunk = Int32(0)
        while chunk < exist and written < a.topk:
            at = chunk + a.lane
            key = self.key_at(a, s, at) if at < exist else Uint32(0)
            written, ties = self.keep(a, s, s.block + at, key, low, written, ties)
            chunk = chunk + 32
        return written

    @cute.jit
    def count_of_many(self, a, s, exist: Int32, carried: Int32, least: Uint32) -> Int32:
        """How many keys are >= least, which is not 0."""
        count = Int32(0)
        at = a.lane
        while at < exist:
            count = count + (Int32(1) if self.key_at(a, s, at) >= least else Int32(0))
            at = at + 32
        at = a.lane
        while at < carried:
            _, key = atoms.ldg_u32x2(s.list + Int64(at) * 8)
            count = count + (Int32(1) if key >= least else Int32(0))
            at = at + 32
        return ranking.warp_sum(count)
