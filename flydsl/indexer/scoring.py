"""Scores of pages on CDNA4: the part of the scan that reads index keys.

Each wave takes every eighth page; it holds all keys of one or two in registers, and asks for each part of the page
that comes into their place as soon as it has used the same part of this one. Keys become E4M3 by the table of keys.py
and are the first operand of the matrix product, so that the maximum over a page's keys is taken in the lane's registers
but for two steps at the end.
"""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.control import either, loop, when
from msa_ops.flydsl.common.intrinsics import anew, maximum_anew, maxnum_fast, opaque, where
from msa_ops.flydsl.indexer import keys, ranking, work
from msa_ops.flydsl.indexer.gfx950_scan_configs import CARRIED, QUERY_ROW

from msa_ops.build.flydsl_adapter import fx, rocdl

TILES = 8
"""Of 16 keys each in a page."""

NOTHING = float("-inf")

MOST_BYTES = 2**31 - 1
"""Of a workspace: its bounds are kept by the numbers of pieces and columns."""


def pair_of(a, s, column):
    """(query token of the request, head) of a column of the tile."""
    heads = a.given.now("num_heads", "heads_reciprocal")
    pair = s.tile * fx.Int32(a.config.columns) + column
    token = work.quotient_by(pair, heads.num_heads, heads.heads_reciprocal)
    return token, pair - token * heads.num_heads


def stage_queries(a, s) -> None:
    """The queries of the tile's columns, to be read behind a barrier; columns behind the last are zero."""
    parts = 8  # of 16 bytes of a query
    given = a.given.now("index_q", "q_token_stride", "q_head_stride")
    lane = anew(a.thread)

    def stage():
        column, part = lane >> fx.Int32(3), lane & fx.Int32(parts - 1)
        token, head = pair_of(a, s, column)
        address = (
            given.index_q
            + fx.Int64(s.first + token) * given.q_token_stride
            + fx.Int64(head) * given.q_head_stride
            + fx.Int64(part << fx.Int32(4))
        )
        words = either(
            column < s.columns,
            lambda: keys.query_words(memory.load(address, fx.Uint32, 4)),
            lambda: [fx.Uint32(0)] * 4,
        )
        a.lds.store(column * fx.Int32(QUERY_ROW) + (part << fx.Int32(4)), words, a.at["queries"])

    if a.config.columns * parts > a.config.threads:
        raise ValueError(f"{a.config.columns} columns; accepted: {a.config.threads // parts} at most")
    when(lane < fx.Int32(a.config.columns * parts), stage)


def load_queries(a):
    """For each 16 columns the lane's eight words of its column's query."""
    at = (a.lane & fx.Int32(15)) * fx.Int32(QUERY_ROW) + ((a.lane >> fx.Int32(4)) << fx.Int32(5))
    found = []
    for n in range(a.config.columns // 16):
        place = a.at["queries"] + 16 * n * QUERY_ROW
        found.append([word for half in (0, 16) for word in a.lds.load(at, fx.Uint32, 4, place + half)])
    return found


def last_visible(a, s):
    """For each 16 columns the last position that the lane's column sees; -1 for columns behind the last."""
    found = []
    lane = anew(a.lane)
    for n in range(a.config.columns // 16):
        column = fx.Int32(16 * n) + (lane & fx.Int32(15))
        token, _ = pair_of(a, s, column)
        found.append((column < s.columns).select(s.position + token, fx.Int32(-1)))
    return found


def score(a, s, queries, page_begin, page_end) -> None:
    """Keys of the scores of pages, into the table of LDS or, if nothing is chosen here, to the merge."""
    given = a.given.now("index_cache", "page_stride")
    s = SimpleNamespace(**vars(s), chunk_begin=page_begin)
    step = fx.Int32(a.config.waves)
    first = page_begin + a.wave
    count = work.quotient(work.larger(page_end - first, fx.Int32(0)) + step - fx.Int32(1), step)
    offsets = keys.PageOffsets(a.lane)
    ahead = a.config.ahead
    most = lanes.WAVE

    def run(batch, _):
        """Up to `most` pages, whose ids the lanes hold: -1 for pages that do not exist."""
        here = work.smaller(count - batch, fx.Int32(most))
        late = a.given.now("block_table", "table_stride", "num_pages")
        row = late.block_table + fx.Int64(s.request) * late.table_stride * fx.Int64(4)
        row = row + fx.Int64(first + batch * step) * fx.Int64(4)
        # No branch: lanes behind the last page get 0, and nobody asks them.
        table = memory.Buffer(row, ((here - fx.Int32(1)) * step + fx.Int32(1)) << fx.Int32(2))
        ids = table.load(a.lane * (step << fx.Int32(2)), fx.Int32)

        def block_at(i):
            return first + (batch + i) * step

        # Pages that all columns see whole, `ahead` at a time: no masks, and the next ones are on their way.
        full = (s.seen_by_all + fx.Int32(1)) >> fx.Int32(7)
        early = work.quotient(work.larger(full - block_at(fx.Int32(0)), fx.Int32(0)) + step - fx.Int32(1), step)
        early = work.smaller(early, here) & fx.Int32(-ahead)

        def page_at(i, end):
            """Page i of those before the end; -1 if there is none."""
            page = lanes.read_lane(ids, i)
            exists = (i < end) & (fx.Uint32(page) < fx.Uint32(late.num_pages))
            return exists.select(page, fx.Int32(-1))

        def loaders_of(pages, of_lane):
            bases = [given.index_cache + fx.Int64(work.larger(page, fx.Int32(0))) * given.page_stride for page in pages]
            return [
                keys.PageLoader(base, page >= fx.Int32(0), of_lane) for base, page in zip(bases, pages, strict=True)
            ]

        def whole(pages, of_lane):
            found = []
            for loader in loaders_of(pages, of_lane):
                parts = []
                for tile in range(TILES):
                    parts.append(loader.part(tile))
                    rocdl.sched_barrier(0)
                found.append(parts)
            return found

        def stream(i, state):
            pages, parts, of_lane = state
            of_lane = [opaque(offset) for offset in of_lane]
            following = [page_at(i + fx.Int32(ahead + at), early) for at in range(ahead)]
            best, coming = [], []
            for loader, part in zip(loaders_of(following, of_lane), parts, strict=True):
                found, part = score_page(a, queries, part, None, loader.part)
                best.append(found)
                coming.append(part)
            if len(queries) == 1 and ahead == 2:
                write_two_scores(a, s, best[0] + best[1], pages, block_at(i))
            else:
                for at, (found, page) in enumerate(zip(best, pages, strict=True)):
                    write_scores(a, s, found, page, block_at(i + fx.Int32(at)))
            return [following, coming, of_lane]

        def careful(i, _):
            """Up to `ahead` pages, one after the other, that not all columns see whole."""
            pages = [page_at(i + fx.Int32(at), here) for at in range(ahead)]
            parts = whole(pages, [anew(offset) for offset in offsets.values])
            visible = last_visible(a, s)

            def one(at):
                block = block_at(i + fx.Int32(at))
                limits = [limit - (block << fx.Int32(7)) for limit in visible]
                write_scores(a, s, score_page(a, queries, parts[at], limits, None)[0], pages[at], block)

            for at in range(ahead):
                when(i + fx.Int32(at) < here, lambda at=at: one(at))
            return fx.Int32(0)

        # The others come first, while the first of these are on their way.
        pages = [page_at(fx.Int32(i), early) for i in range(ahead)]
        of_lane = [opaque(offset) for offset in offsets.values]
        state = [pages, whole(pages, of_lane), of_lane]
        loop(early, here, fx.Int32(ahead), fx.Int32(0), careful)
        loop(fx.Int32(0), early, fx.Int32(ahead), state, stream)
        return fx.Int32(0)

    loop(fx.Int32(0), count, fx.Int32(most), fx.Int32(0), run)


def score_page(a, queries, parts, limits, following):
    """For each 16 columns the maximum over the lane's keys of the page; and the parts of the page to come.

    limits: for each 16 columns the last key of the page that the lane's column sees, or None if all are seen.
    """
    best = [fx.Float32(NOTHING)] * len(queries)
    found, sums = [], []
    rows = keys.load_rows(a.lds, a.at["table"], parts[0][1])
    if limits is not None:
        quarter = anew(a.lane) >> fx.Int32(4)
        limits = [limit - (quarter << fx.Int32(2)) for limit in limits]

    def raise_best():
        for n, four in enumerate(sums):
            best[n] = maxnum_fast(maxnum_fast(best[n], four[0]), four[1])
            best[n] = maxnum_fast(maxnum_fast(best[n], four[2]), four[3])

    for tile in range(TILES):
        ahead = keys.load_rows(a.lds, a.at["table"], parts[tile + 1][1]) if tile + 1 < TILES else None
        operand = keys.decode(rows, parts[tile][0])
        if following is not None:
            found.append(following(tile))
        products = []
        for n, query in enumerate(queries):
            four = keys.multiply(operand, query)
            if limits is not None:
                # Not by the addend: an inline instruction may take its register for other things too early, as LLVM
                # does not see what that instruction writes.
                seen = limits[n] - fx.Int32(16 * tile)
                four = [(fx.Int32(i) <= seen).select(value, fx.Float32(NOTHING)) for i, value in enumerate(four)]
            products.append(four)
        raise_best()
        sums, rows = products, ahead
        rocdl.sched_barrier(0)
    raise_best()
    return best, found


def write_scores(a, s, best, page, block) -> None:
    """Maximum over the four lanes that hold other keys of the same column, then its key."""
    quarter = a.lane >> fx.Int32(4)
    found = fx.Uint32(0)
    for n, value in enumerate(best):
        value = maxnum_fast(*lanes.across_32(value))
        value = maxnum_fast(*lanes.across_16(value))
        # NaN if every key gives NaN; anew, since the compiler takes it for a number.
        value = anew(value)
        value = ((page >= fx.Int32(0)) & (value == value)).select(value, fx.Float32(NOTHING))
        key = ranking.key_of_score(value)
        found = key if n == 0 else (quarter == fx.Int32(n)).select(key, found)
    # Quarter n of the lanes writes the columns from 16 n on.
    write_keys(a, s, anew(a.lane), fx.Int32(0), block, found, quarter < fx.Int32(len(best)))


def write_two_scores(a, s, best, pages, block) -> None:
    """The same for 16 columns of two pages of this wave, one after the other."""
    value = maxnum_fast(*lanes.two_across_32(*best))
    value = maximum_anew(*lanes.across_16(value))
    lower, upper = fx.Uint64(0xFFFFFFFF), fx.Uint64(0xFFFFFFFF << 32)
    exist = [(page >= fx.Int32(0)).select(half, fx.Uint64(0)) for page, half in zip(pages, (lower, upper), strict=True)]
    value = (where(exist[0] | exist[1]) & (value == value)).select(value, fx.Float32(NOTHING))
    later = (a.lane > fx.Int32(31)).select(fx.Int32(a.config.waves), fx.Int32(0))
    one_of_two = (a.lane & fx.Int32(16)) == fx.Int32(0)
    write_keys(a, s, a.lane & fx.Int32(15), later, block, ranking.key_of_score(value), one_of_two)


def write_keys(a, s, column, later, block, key, condition) -> None:
    """A lane's key for a column of block + `later`; `block` is the same in all lanes."""

    def to_table():
        at = anew(column) * fx.Int32(a.config.row) + anew(later) + fx.Int32(CARRIED) + (block - s.chunk_begin)
        a.lds.store(at << fx.Int32(2), key, a.at["keys"])

    def to_merge():
        rows = memory.Buffer(s.keys_of_pieces + fx.Int64(block) * fx.Int64(4), fx.Int32(MOST_BYTES))
        rows.store((column * s.most_pieces + later) << fx.Int32(2), key)

    when(s.left, lambda: when(condition, to_merge))
    when(~s.left, lambda: when(condition, to_table))
