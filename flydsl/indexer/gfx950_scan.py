"""The indexer's scan on CDNA4: scores of all blocks, and of each workgroup's run of pages the best ones.

A workgroup takes its run request by request. Each wave takes every eighth page; of a page it holds all keys in
registers, and asks for each part of the next page as soon as it has used the same part of this one. Keys become E4M3
by the table of keys.py and are the first operand of the matrix product, so that the maximum over a page's keys is
taken in the lane's registers but for two steps at the end. Then each wave chooses, column by column, the best blocks
of what the request has in this run. If that is the whole request, they are the result; otherwise they go to the
workspace as candidates for the merge.

Workspace: for workgroup i of G two lists a column: list 0 of the request that begins before the run, list 1 of the
one that ends behind it; each topk entries of (block id, key), ascending, with key 0 behind the last.
"""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.control import either, loop, repeat, when
from msa_ops.flydsl.common.intrinsics import anew, maxnum_fast
from msa_ops.flydsl.indexer import keys, ranking, work
from msa_ops.flydsl.indexer.choosing import choose, pair_of
from msa_ops.flydsl.indexer.gfx950_scan_configs import ARGUMENTS, CARRIED, Config

from msa_ops.build.flydsl_adapter import compiler, fx, rocdl

TILES = 8
"""Of 16 keys each in a page."""

NOTHING = float("-inf")

LENGTHS = ("seq_lens", "cu_seqlens", "num_tokens", "batch", "q_len", "num_heads", "max_blocks")
"""Arguments that say what work there is."""


class Late:
    """Arguments that are read from LDS where they are used: all of them at once do not fit into scalar registers."""

    def __init__(self, lds, offset: int, values: dict) -> None:
        self._lds, self._offset, self._values = lds, offset, values

    def keep(self) -> None:
        """To be read behind a barrier."""
        for i, value in enumerate(self._values.values()):
            self._lds.store(fx.Int32(0), fx.Int64(value), self._offset + 8 * i)

    def __getattr__(self, name: str):
        at = self._offset + 8 * list(self._values).index(name)
        if isinstance(self._values[name], fx.Int64):
            low, high = self._lds.load(fx.Int32(0), fx.Uint32, 2, at)
            low, high = lanes.uniform(low), lanes.uniform(high)
            return fx.Int64(fx.Uint64(low) | (fx.Uint64(high) << fx.Uint64(32)))
        return lanes.uniform(self._lds.load(fx.Int32(0), fx.Int32, 1, at))

    def now(self, *names: str) -> SimpleNamespace:
        return SimpleNamespace(**{name: getattr(self, name) for name in names})


def scan(config: Config, arguments: dict) -> None:
    """The kernel."""
    a = SimpleNamespace(config=config, at=config.places)
    a.lds = memory.Lds(a.at["end"])
    a.late = Late(a.lds, a.at["arguments"], arguments)
    a.thread = fx.Int32(fx.thread_idx.x)
    a.lane = lanes.lane_of(a.thread)
    a.wave = lanes.uniform(a.thread >> fx.Int32(6))
    a.group = fx.Int32(fx.block_idx.x)
    when(a.thread == fx.Int32(0), a.late.keep)
    keys.fill_table(a.lds, a.at["table"], a.thread, config.threads)
    lanes.barrier()

    lengths = a.late.now(*LENGTHS)
    request = work.request_work(lengths, a.thread, config.columns)
    before, pieces = prefix(a, request[0])
    threads = fx.Int32(config.threads)
    total = pieces + either(lengths.batch > threads, lambda: later_work(a, lengths), lambda: fx.Int32(0))
    groups = a.late.groups
    begin = work.run_begin(a.group, total, groups)
    end = work.run_begin(a.group + fx.Int32(1), total, groups)

    def window(state):
        """As many requests as there are threads: one each."""
        first_request, base, before, pieces, request = state
        mine = base + before
        for name, value in zip(("begin", "pages", "first", "tokens", "length"), [mine, *request[1:]], strict=True):
            a.lds.store(a.thread << fx.Int32(2), value, a.at[name])
        stop = work.smaller(end, base + pieces)

        def segment(low):
            # The thread whose request has the piece says so.
            inside = (mine <= low) & (low < mine + request[0])
            when(inside, lambda: a.lds.store(fx.Int32(0), a.thread, a.at["place"]))
            lanes.barrier()
            return run_segment(a, first_request, begin, end, low, stop)

        repeat(lambda low: low < stop, work.larger(begin, base), segment)
        lanes.barrier()
        first_request = first_request + threads

        def following():
            request = work.request_work(a.late.now(*LENGTHS), first_request + a.thread, config.columns)
            return [*prefix(a, request[0]), request]

        more = (first_request < a.late.batch) & (base + pieces < end)
        nothing = [fx.Int32(0), fx.Int32(0), [fx.Int32(0)] * 5]
        return [first_request, base + pieces, *either(more, following, lambda: nothing)]

    start = [fx.Int32(0), fx.Int32(0), before, pieces, request]
    repeat(lambda s: (s[0] < a.late.batch) & (s[1] < end), start, window)


def later_work(a, lengths):
    """Pieces of all requests but the first window's."""

    def add(i, total):
        return total + work.request_work(lengths, i + a.thread, a.config.columns)[0]

    threads = fx.Int32(a.config.threads)
    return prefix(a, loop(threads, lengths.batch, threads, fx.Int32(0), add))[1]


def prefix(a, value):
    """Sum over the threads before this one, and over all, the same in every thread. Holds two barriers."""
    lane = anew(a.lane)
    inclusive = lanes.wave_prefix(value, lane)
    last = lane == fx.Int32(lanes.WAVE - 1)
    when(last, lambda: a.lds.store(a.wave << fx.Int32(2), inclusive, a.at["sums"]))
    lanes.barrier()
    # Lane i stands for wave i.
    within = lane < fx.Int32(a.config.waves)
    own = a.lds.load(within.select(lane, fx.Int32(0)) << fx.Int32(2), fx.Int32, 1, a.at["sums"])
    upto = lanes.wave_prefix(own, lane, a.config.waves)
    lanes.barrier()
    before = lanes.read_lane(upto - own, a.wave)
    return before + inclusive - value, lanes.read_lane(upto, fx.Int32(a.config.waves - 1))


def run_segment(a, first_request, begin, end, low, stop):
    """Scores and chooses what one tile of one request has from piece `low` on; the piece behind it."""
    c = a.config
    place = lanes.uniform(a.lds.load(fx.Int32(0), fx.Int32, 1, a.at["place"]))
    piece, pages, first, tokens, length = (
        lanes.uniform(a.lds.load(place << fx.Int32(2), fx.Int32, 1, a.at[name]))
        for name in ("begin", "pages", "first", "tokens", "length")
    )
    tile = work.quotient(low - piece, pages)
    tile_begin = piece + tile * pages
    tile_end = tile_begin + pages
    upto = work.smaller(stop, tile_end)
    num_heads = a.late.num_heads
    s = SimpleNamespace(
        num_heads=num_heads,
        page_begin=low - tile_begin,
        first=first,
        tile=tile,
        # Position of the request's first query token, and the columns from the tile's first on.
        position=length - tokens,
        columns=work.smaller(tokens * num_heads - tile * fx.Int32(c.columns), fx.Int32(c.columns)),
        table=a.late.block_table + fx.Int64(first_request + place) * a.late.table_stride * fx.Int64(4),
        direct=(tile_begin >= begin) & (tile_end <= end),
        side=(tile_begin >= begin).select(fx.Int32(1), fx.Int32(0)),
    )
    queries, last_visible = load_queries(a, s)
    seen_by_all = s.position + work.quotient(tile * fx.Int32(c.columns), num_heads)
    page_end = upto - tile_begin

    def chunk(state):
        page, carried = state
        chunk_end = work.smaller(page + fx.Int32(c.pages), page_end)
        score(a, s, queries, last_visible, seen_by_all, page, chunk_end)
        lanes.barrier()
        choose(a, s, page, chunk_end, carried, chunk_end >= page_end)
        lanes.barrier()
        return [chunk_end, fx.Int32(1)]

    repeat(lambda state: state[0] < page_end, [s.page_begin, fx.Int32(0)], chunk)
    return upto


def load_queries(a, s):
    """For each 16 columns the lane's eight words of its column's query, and the last position that it sees.

    Columns behind the last are zero and see nothing.
    """
    queries, last_visible = [], []
    lane = anew(a.lane)
    index_q, token_stride, head_stride = a.late.index_q, a.late.q_token_stride, a.late.q_head_stride
    for n in range(a.config.columns // 16):
        column = fx.Int32(16 * n) + (lane & fx.Int32(15))
        token, head = pair_of(a, s, column)
        address = index_q + fx.Int64(s.first + token) * token_stride + fx.Int64(head) * head_stride
        address = address + fx.Int64((lane >> fx.Int32(4)) << fx.Int32(5))

        def read(address=address):
            words = memory.load(address, fx.Uint32, 4)
            return keys.query_words(words + memory.load(address + fx.Int64(16), fx.Uint32, 4))

        queries.append(either(column < s.columns, read, lambda: [fx.Uint32(0)] * 8))
        last_visible.append((column < s.columns).select(s.position + token, fx.Int32(-1)))
    return queries, last_visible


def score(a, s, queries, last_visible, seen_by_all, page_begin, page_end) -> None:
    """Keys of the scores of a chunk's pages, into the table."""
    index_cache, page_stride, num_pages = a.late.index_cache, a.late.page_stride, a.late.num_pages
    step = fx.Int32(a.config.waves)
    first = page_begin + a.wave
    count = work.quotient(work.larger(page_end - first, fx.Int32(0)) + step - fx.Int32(1), step)
    row = (a.lane & fx.Int32(15)) << fx.Int32(6)
    code_offset = row + ((a.lane >> fx.Int32(4)) << fx.Int32(4))
    scale_offset = (row >> fx.Int32(3)) + ((a.lane >> fx.Int32(4)) << fx.Int32(1))

    def whole_page(base):
        load = keys.PageLoader(base, code_offset, scale_offset)
        found = []
        for tile in range(TILES):
            found.append(load.part(tile))
            rocdl.sched_barrier(0)
        return found

    def run(batch, _):
        """Up to 64 pages, whose ids the lanes hold."""
        here = work.smaller(count - batch, fx.Int32(lanes.WAVE))
        block = first + (batch + a.lane) * step
        inside = a.lane < here
        ids = either(inside, lambda: work.load_i32(s.table, block), lambda: fx.Int32(-1))
        ids = ((ids >= fx.Int32(0)) & (ids < num_pages)).select(ids, fx.Int32(-1))

        def block_at(i):
            return first + (batch + i) * step

        def page_at(i):
            return lanes.read_lane(ids, i)

        def base_of(page):
            # Keys of the first page stand in for those of a page that does not exist; the result is not used.
            return lanes.uniform64(index_cache + fx.Int64(work.larger(page, fx.Int32(0))) * page_stride)

        def finish(i, page, best):
            write_scores(a, best, page >= fx.Int32(0), block_at(i) - page_begin)

        # Pages that all columns see whole, but for the last one: no masks, and the next page is on its way.
        full = (seen_by_all + fx.Int32(1)) >> fx.Int32(7)  # blocks that all see whole
        early = work.quotient(work.larger(full - block_at(fx.Int32(0)), fx.Int32(0)) + step - fx.Int32(1), step)
        early = work.smaller(early, here - fx.Int32(1))

        def stream(i, state):
            page, parts = state
            following = page_at(i + fx.Int32(1))
            loader = keys.PageLoader(base_of(following), code_offset, scale_offset)
            best, parts = score_page(a, queries, parts, None, loader.part)
            finish(i, page, best)
            return [following, parts]

        def stream_two(i, state):
            """Two pages, whose maxima are made together: those of the second in the upper lanes."""
            pages, parts, best = [state[0], page_at(i + fx.Int32(1)), page_at(i + fx.Int32(2))], state[1], []
            offsets = None
            for following in pages[1:]:
                loader = keys.PageLoader(base_of(following), *(offsets or (code_offset, scale_offset)), not offsets)
                offsets = loader.code_offset, loader.scale_offset
                found, parts = score_page(a, queries, parts, None, loader.part)
                best += found
            write_two_scores(a, best, pages[:2], block_at(i) - page_begin)
            return [pages[2], parts]

        page = page_at(fx.Int32(0))
        state = [page, whole_page(base_of(page))]
        if len(queries) == 1:
            early = early & fx.Int32(-2)
            state = loop(fx.Int32(0), early, fx.Int32(2), state, stream_two)

            def last_whole():
                """The run's last page, if all see it."""
                page, parts = state
                finish(early, page, score_page(a, queries, parts, None, None)[0])

            whole = (early + fx.Int32(1) == here) & (block_at(early) < full)
            when(whole, last_whole)
            early = whole.select(here, early)
        else:
            state = loop(fx.Int32(0), early, fx.Int32(1), state, stream)

        def careful(i, state):
            page, parts = state
            limits = [limit - (block_at(i) << fx.Int32(7)) for limit in last_visible]
            best, _ = score_page(a, queries, parts, limits, None)
            finish(i, page, best)

            def following():
                page = page_at(i + fx.Int32(1))
                return [page, whole_page(base_of(page))]

            return either(i + fx.Int32(1) < here, following, lambda: state)

        loop(early, here, fx.Int32(1), state, careful)
        return fx.Int32(0)

    loop(fx.Int32(0), count, fx.Int32(lanes.WAVE), fx.Int32(0), run)


def score_page(a, queries, parts, limits, following):
    """For each 16 columns the maximum over the lane's keys of the page; and the parts of the next page.

    limits: for each 16 columns the last key of the page that the lane's column sees, or None if all are seen.
    """
    best = [fx.Float32(NOTHING)] * len(queries)
    found, sums = [], []
    rows = keys.load_rows(a.lds, a.at["table"], parts[0][1])
    quarter = (a.lane >> fx.Int32(4)) << fx.Int32(2)

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
            start = [fx.Float32(0.0)] * 4
            if limits is not None:
                # -inf plus anything is -inf or, of garbage, NaN: neither counts.
                seen = limits[n] - quarter - fx.Int32(16 * tile)
                start = [(fx.Int32(i) <= seen).select(fx.Float32(0.0), fx.Float32(NOTHING)) for i in range(4)]
            products.append(keys.multiply(operand, query, start))
        raise_best()
        sums, rows = products, ahead
        rocdl.sched_barrier(0)
    raise_best()
    return best, found


def write_scores(a, best, exists, row) -> None:
    """Maximum over the four lanes that hold other keys of the same column, then its key into the table."""
    quarter = a.lane >> fx.Int32(4)
    column = a.lane & fx.Int32(15)
    found = fx.Uint32(0)
    for n, value in enumerate(best):
        value = maxnum_fast(*lanes.across_32(value))
        value = maxnum_fast(*lanes.across_16(value))
        # NaN if every key gives NaN; anew, since the compiler takes it for a number.
        value = anew(value)
        value = (exists & (value == value)).select(value, fx.Float32(NOTHING))
        key = ranking.key_of_score(value)
        found = key if n == 0 else (quarter == fx.Int32(n)).select(key, found)
    # Quarter n of the lanes writes the columns from 16 n on.
    at = ((quarter << fx.Int32(4)) + column) * fx.Int32(a.config.row) + fx.Int32(CARRIED) + row
    when(
        quarter < fx.Int32(len(best)),
        lambda: a.lds.store(at << fx.Int32(2), found, a.at["keys"]),
    )


def write_two_scores(a, best, pages, row) -> None:
    """The same for 16 columns of two pages of this wave, one after the other."""
    quarter = a.lane >> fx.Int32(4)
    upper = quarter > fx.Int32(1)
    value = maxnum_fast(*lanes.two_across_32(*best))
    value = anew(maxnum_fast(*lanes.across_16(value)))
    exists = upper.select(pages[1], pages[0]) >= fx.Int32(0)
    value = (exists & (value == value)).select(value, fx.Float32(NOTHING))
    # Neighbouring quarters write the same.
    of_lane = (a.lane & fx.Int32(15)) * fx.Int32(a.config.row) + upper.select(fx.Int32(a.config.waves), fx.Int32(0))
    at = of_lane + fx.Int32(CARRIED) + row
    a.lds.store(at << fx.Int32(2), ranking.key_of_score(value), a.at["keys"])


def trace(config: Config):
    """The launcher and what to trace it with."""

    @compiler.kernel(known_block_size=[config.threads, 1, 1])
    def indexer_scan(
        index_q: fx.Int64,
        index_cache: fx.Int64,
        block_table: fx.Int64,
        seq_lens: fx.Int64,
        cu_seqlens: fx.Int64,
        block_ids: fx.Int64,
        workspace: fx.Int64,
        q_token_stride: fx.Int64,
        q_head_stride: fx.Int64,
        page_stride: fx.Int64,
        table_stride: fx.Int64,
        out_token_stride: fx.Int64,
        out_head_stride: fx.Int64,
        num_pages: fx.Int32,
        num_tokens: fx.Int32,
        batch: fx.Int32,
        q_len: fx.Int32,
        num_heads: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        init_blocks: fx.Int32,
        local_blocks: fx.Int32,
        groups: fx.Int32,
    ):
        given = locals()
        scan(config, {name: given[name] for name in ARGUMENTS})

    @compiler.jit
    def launcher(
        index_q: fx.Int64,
        index_cache: fx.Int64,
        block_table: fx.Int64,
        seq_lens: fx.Int64,
        cu_seqlens: fx.Int64,
        block_ids: fx.Int64,
        workspace: fx.Int64,
        q_token_stride: fx.Int64,
        q_head_stride: fx.Int64,
        page_stride: fx.Int64,
        table_stride: fx.Int64,
        out_token_stride: fx.Int64,
        out_head_stride: fx.Int64,
        num_pages: fx.Int32,
        num_tokens: fx.Int32,
        batch: fx.Int32,
        q_len: fx.Int32,
        num_heads: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        init_blocks: fx.Int32,
        local_blocks: fx.Int32,
        groups: fx.Int32,
        stream: fx.Stream,
    ):
        indexer_scan(
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
            q_len,
            num_heads,
            max_blocks,
            topk,
            init_blocks,
            local_blocks,
            groups,
        ).launch(grid=(1, 1, 1), block=(config.threads, 1, 1), smem=0, stream=stream)

    return launcher, (*[fx.Int64(0)] * 13, *[fx.Int32(0)] * 10, fx.Stream(None))
