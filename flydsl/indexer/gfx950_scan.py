"""The indexer's scan on CDNA4: scores of all blocks, and of each workgroup's run of pages the best ones.

A workgroup takes its run request by request, and scores each request's pages (scoring.py). Where the call has few
enough pieces, the keys of all of them go to the workspace, and the merge chooses. Otherwise each wave chooses, column
by column, the best blocks of what the request has in this run. If that is the whole request, they are the result; if
not, they go to the workspace as candidates for the merge.

Workspace: keys of all pieces, `most_pieces` a column; or for workgroup i of G two lists a column: list 0 of the
request that begins before the run, list 1 of the one that ends behind it; each topk entries of (block id, key),
ascending, with key 0 behind the last.
"""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.arguments import Arguments
from msa_ops.flydsl.common.control import either, loop, repeat, when
from msa_ops.flydsl.common.intrinsics import anew, undefined
from msa_ops.flydsl.indexer import keys, work
from msa_ops.flydsl.indexer.choosing import choose
from msa_ops.flydsl.indexer.gfx950_scan_configs import ARGUMENTS, Config
from msa_ops.flydsl.indexer.scoring import load_queries, score, stage_queries

from msa_ops.build.flydsl_adapter import compiler, fx

LENGTHS = ("seq_lens", "cu_seqlens", "num_tokens", "batch", "q_len", "num_heads", "max_blocks")
"""Arguments that say what work there is."""


def scan(config: Config, arguments: dict) -> None:
    """The kernel."""
    a = SimpleNamespace(config=config, at=config.places, given=Arguments(arguments))
    a.lds = memory.Lds(a.at["end"])
    a.thread = fx.Int32(fx.thread_idx.x)
    a.lane = lanes.lane_of(a.thread)
    a.wave = lanes.uniform(a.thread >> fx.Int32(6))
    a.group = fx.Int32(fx.block_idx.x)
    keys.fill_table(a.lds, a.at["table"], a.thread, config.threads)

    lengths = a.given.now(*LENGTHS)
    threads = fx.Int32(config.threads)

    # Few requests: each wave has one a lane, and nothing has to be exchanged.
    def is_few():
        return a.given.batch <= fx.Int32(lanes.WAVE)

    def by_lane():
        requests = work.Requests(lengths, a.lane, config.columns_log2)
        total = requests.total
        return [undefined(fx.Int32), total, total, [undefined(fx.Int32), *requests.values]]

    def by_thread():
        request = work.request_work(lengths, a.thread, config.columns_log2)
        before, pieces = prefix(a, request[0])
        later = either(lengths.batch > threads, lambda: later_work(a, lengths), lambda: fx.Int32(0))
        return [before, pieces, pieces + later, request]

    before, pieces, total, request = either(is_few(), by_lane, by_thread)
    division = a.given.now("groups", "groups_reciprocal", "most_pieces")
    begin = work.run_begin(a.group, total, division.groups, division.groups_reciprocal)
    end = work.run_begin(a.group + fx.Int32(1), total, division.groups, division.groups_reciprocal)
    left = total <= division.most_pieces

    def window(state):
        """As many requests as there are threads, one each; or, if they are few, all of them (work.Requests)."""
        first_request, base, before, pieces, request = state
        stop = work.smaller(end, base + pieces)
        names = ("begin", "pages", "first", "tokens", "length")

        def tell():
            at = anew(a.thread) << fx.Int32(2)
            for name, value in zip(names, [base + before, *request[1:]], strict=True):
                a.lds.store(at, value, a.at[name])

        when(~is_few(), tell)

        def segment(low):
            def from_lanes():
                place = work.request_with(low, request[1])
                return [place, *work.facts(a.given.now(*LENGTHS), place, request[1:], config.columns_log2)]

            def from_lds():
                # The thread whose request has the piece says so.
                mine = base + anew(before)
                inside = (mine <= low) & (low < mine + request[0])
                when(inside, lambda: a.lds.store(fx.Int32(0), a.thread, a.at["place"]))
                lanes.barrier()
                place = lanes.uniform(a.lds.load(fx.Int32(0), fx.Int32, 1, a.at["place"]))
                at = place << fx.Int32(2)
                return [place, *(lanes.uniform(a.lds.load(at, fx.Int32, 1, a.at[name])) for name in names)]

            place, *found = either(is_few(), from_lanes, from_lds)
            return run_segment(a, first_request + place, found, [begin, end], low, stop, left)

        repeat(lambda low: low < stop, work.larger(begin, base), segment)
        when(~is_few(), lanes.barrier)
        first_request = first_request + threads

        def following():
            request = work.request_work(a.given.now(*LENGTHS), first_request + a.thread, config.columns_log2)
            return [*prefix(a, request[0]), request]

        more = (first_request < a.given.batch) & (base + pieces < end)
        nothing = [fx.Int32(0), fx.Int32(0), [fx.Int32(0)] * 5]
        return [first_request, base + pieces, *either(more, following, lambda: nothing)]

    start = [fx.Int32(0), fx.Int32(0), before, pieces, request]
    repeat(lambda s: (s[0] < a.given.batch) & (s[1] < end), start, window)


def later_work(a, lengths):
    """Pieces of all requests but the first window's."""

    def add(i, total):
        return total + work.request_work(lengths, i + a.thread, a.config.columns_log2)[0]

    threads = fx.Int32(a.config.threads)
    return prefix(a, loop(threads, lengths.batch, threads, fx.Int32(0), add))[1]


def prefix(a, value):
    """Sum over the threads before this one, and over all, the same in every thread. Holds two barriers."""
    # Anew, or LLVM keeps masks and addresses through the loop over requests.
    thread = anew(a.thread)
    lane, wave = lanes.lane_of(thread), thread >> fx.Int32(6)
    inclusive = lanes.wave_prefix(value)
    last = lane == fx.Int32(lanes.WAVE - 1)
    when(last, lambda: a.lds.store(wave << fx.Int32(2), inclusive, a.at["sums"]))
    lanes.barrier()
    # Lane i stands for wave i.
    within = lane < fx.Int32(a.config.waves)
    own = a.lds.load(within.select(lane, fx.Int32(0)) << fx.Int32(2), fx.Int32, 1, a.at["sums"])
    upto = lanes.wave_prefix(own)
    lanes.barrier()
    before = lanes.read_lane(upto - own, a.wave)
    return before + inclusive - value, lanes.read_lane(upto, fx.Int32(a.config.waves - 1))


def run_segment(a, request, facts, run, low, stop, left):
    """Scores and chooses what one tile of one request has from piece `low` on; the piece behind it.

    facts: the request's first piece, pages, first query token, tokens and length. run: first piece of the workgroup's
    run, and the one behind it. left: whether the choice is left to the merge.
    """
    c = a.config
    piece, pages, first, tokens, length = facts
    begin, end = run
    given = a.given.now("num_heads", "heads_reciprocal", "workspace", "most_pieces")
    columns = fx.Int32(c.columns)
    pairs = tokens * given.num_heads
    tile = either(pairs > columns, lambda: work.quotient(low - piece, pages), lambda: fx.Int32(0))
    tile = lanes.uniform(tile)
    tile_begin = piece + tile * pages
    tile_end = tile_begin + pages
    upto = work.smaller(stop, tile_end)
    position = length - tokens
    s = SimpleNamespace(
        request=request,
        page_begin=low - tile_begin,
        first=first,
        tile=tile,
        # Position of the request's first query token, and the columns from the tile's first on.
        position=position,
        columns=work.smaller(pairs - tile * columns, columns),
        seen_by_all=position + work.quotient_by(tile * columns, given.num_heads, given.heads_reciprocal),
        direct=(tile_begin >= begin) & (tile_end <= end),
        side=(tile_begin >= begin).select(fx.Int32(1), fx.Int32(0)),
        left=left,
        keys_of_pieces=given.workspace + fx.Int64(tile_begin) * fx.Int64(4),
        most_pieces=given.most_pieces,
    )
    stage_queries(a, s)
    lanes.barrier()
    queries = load_queries(a)
    page_end = upto - tile_begin

    def chunk(state):
        page, carried = state
        chunk_end = left.select(page_end, work.smaller(page + fx.Int32(c.pages), page_end))
        score(a, s, queries, page, chunk_end)

        def make_choice():
            lanes.barrier()
            choose(a, s, page, chunk_end, carried, chunk_end >= page_end)
            lanes.barrier()

        when(~left, make_choice)
        return [chunk_end, fx.Int32(1)]

    repeat(lambda state: state[0] < page_end, [s.page_begin, fx.Int32(0)], chunk)
    # The next queries come to the same place.
    when(left & (upto < end), lanes.barrier)
    return upto


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
        heads_reciprocal: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        init_blocks: fx.Int32,
        local_blocks: fx.Int32,
        groups: fx.Int32,
        groups_reciprocal: fx.Int32,
        most_pieces: fx.Int32,
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
        heads_reciprocal: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        init_blocks: fx.Int32,
        local_blocks: fx.Int32,
        groups: fx.Int32,
        groups_reciprocal: fx.Int32,
        most_pieces: fx.Int32,
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
            heads_reciprocal,
            max_blocks,
            topk,
            init_blocks,
            local_blocks,
            groups,
            groups_reciprocal,
            most_pieces,
        ).launch(grid=(1, 1, 1), block=(config.threads, 1, 1), smem=0, stream=stream)

    return launcher, (*[fx.Int64(0)] * 13, *[fx.Int32(0)] * 13, fx.Stream(None))
