"""The indexer's merge on CDNA4: the result of each (query token, head) row whose request several workgroups scanned.

A workgroup a row. It finds the row's request and the workgroups that scanned it by the same division of work as the
scan, and chooses among their candidates: each wave among a share of them, then one wave among those. Candidates come
in ascending order of block ids and leave in it. Rows that see nothing are filled with -1; rows that one workgroup
scanned alone have their result already.
"""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.control import either, loop, when
from msa_ops.flydsl.indexer import ranking, work
from msa_ops.flydsl.indexer.gfx950_merge_configs import FAMILY, Config

from msa_ops.build.flydsl_adapter import compiler, fx

ARGUMENTS = FAMILY.arguments


def merge(config: Config, a: SimpleNamespace) -> None:
    """The kernel; `a` holds its arguments."""
    a.config = config
    a.at = config.places
    a.lds = memory.Lds(a.at["end"])
    a.thread = fx.Int32(fx.thread_idx.x)
    a.lane = lanes.lane_of(a.thread)
    a.wave = lanes.uniform(a.thread >> fx.Int32(6))
    row = fx.Int32(fx.block_idx.x)
    token = work.quotient(row, a.num_heads)
    head = row - token * a.num_heads
    output = fx.Int64(token) * a.out_token_stride + fx.Int64(head) * a.out_head_stride
    a.result = a.block_ids + output * fx.Int64(4)

    pages, first, before, total = row_of(a, token)

    def nothing():
        when(a.thread < a.topk, lambda: put(a, a.thread, fx.Int32(-1)))

    def something():
        pair = (token - first) * a.num_heads + head
        tile = work.quotient(pair, a.columns)
        begin = before + tile * pages
        low = work.group_of(begin, total, a.groups)
        high = work.group_of(begin + pages - fx.Int32(1), total, a.groups)
        when(low < high, lambda: choose(a, pair - tile * a.columns, low, high, total))

    when(pages <= fx.Int32(0), nothing)
    when(pages > fx.Int32(0), something)


def put(a, place, block) -> None:
    memory.store(a.result + fx.Int64(place) * fx.Int64(4), block)


def row_of(a, token):
    """Pages and first query token of the token's request, the pieces of requests before it, and of all."""
    when(a.thread < fx.Int32(4), lambda: a.lds.store(a.thread << fx.Int32(2), fx.Int32(0), a.at["request"]))
    lanes.barrier()

    def add(i, sums):
        before, total = sums
        pieces, pages, begin, tokens, _ = request_work(a, i + a.thread)
        inside = (begin <= token) & (token < begin + tokens)
        when(inside, lambda: a.lds.store(fx.Int32(0), [pages, begin], a.at["request"]))
        earlier = (begin + tokens <= token).select(pieces, fx.Int32(0))
        return [before + earlier, total + pieces]

    sums = loop(fx.Int32(0), a.batch, fx.Int32(a.config.threads), [fx.Int32(0), fx.Int32(0)], add)
    sums = [lanes.wave_sum(value, a.lane) for value in sums]
    when(a.lane == fx.Int32(0), lambda: a.lds.store(a.wave << fx.Int32(3), sums, a.at["sums"]))
    lanes.barrier()
    before, total = fx.Int32(0), fx.Int32(0)
    for i in range(a.config.waves):
        part = a.lds.load(fx.Int32(0), fx.Int32, 2, a.at["sums"] + 8 * i)
        before, total = before + part[0], total + part[1]
    found = [*a.lds.load(fx.Int32(0), fx.Int32, 2, a.at["request"]), before, total]
    return [lanes.uniform(value) for value in found]


def request_work(a, request):
    """As work.request_work, for a number of columns that is an argument."""
    _, pages, begin, tokens, length = work.request_work(a, request, 1)
    pairs = tokens * a.num_heads
    tiles = work.quotient(work.larger(pairs, fx.Int32(0)) + a.columns - fx.Int32(1), a.columns)
    return pages * tiles, pages, begin, tokens, length


def choose(a, column, low, high, total) -> None:
    """The row's result from the lists of workgroups low to high. column: of the row's tile."""
    c = a.config
    each = work.smaller(a.topk, work.quotient(total, a.groups) + fx.Int32(1))  # entries of a list at most
    number = (high - low + fx.Int32(1)) * each
    share = work.quotient(number + fx.Int32(c.waves - 1), fx.Int32(c.waves))

    def candidate(i):
        within = fx.Int32(64 * i) + a.lane
        at = a.wave * share + within

        def read():
            which = work.quotient(at, each)
            # The first workgroup has the list of a request that ends behind its run, the others that of one that
            # began before theirs.
            side = (which == fx.Int32(0)).select(fx.Int32(1), fx.Int32(0))
            entry = ((low + which) * fx.Int32(2) + side) * a.columns + column
            entry = entry * a.topk + (at - which * each)
            block, key = memory.load(a.workspace + fx.Int64(entry) * fx.Int64(8), fx.Uint32, 2)
            return [key, fx.Int32(block)]

        return either((within < share) & (at < number), read, lambda: [fx.Uint32(0), fx.Int32(0)])

    def list_chosen(place, key, block):
        at = (a.wave * a.topk + place) << fx.Int32(3)
        a.lds.store(at, [key, fx.Uint32(block)], a.at["chosen"])

    written = rank(a, [candidate(i) for i in range(c.chunks)], list_chosen)
    rest = written + a.lane
    when(rest < a.topk, lambda: list_chosen(rest, fx.Uint32(0), fx.Int32(0)))
    lanes.barrier()

    def finish():
        found = []
        for i in range(c.chunks):
            at = fx.Int32(64 * i) + a.lane

            def read(at=at):
                key, block = a.lds.load(at << fx.Int32(3), fx.Uint32, 2, a.at["chosen"])
                return [key, fx.Int32(block)]

            exists = at < fx.Int32(c.waves) * a.topk
            found.append(either(exists, read, lambda: [fx.Uint32(0), fx.Int32(0)]))
        written = rank(a, found, lambda place, key, block: put(a, place, block))
        rest = written + a.lane
        when(rest < a.topk, lambda: put(a, rest, fx.Int32(-1)))

    when(a.wave == fx.Int32(0), finish)


def rank(a, candidates, receive):
    """Hands the best of the wave's [key, block] to `receive` with their places, in order; how many there are."""
    keys = [key for key, _ in candidates]
    low, ties, total = ranking.threshold(keys, a.topk)
    written = fx.Int32(0)
    for key, block in candidates:
        place, ties, written = ranking.place(key, low, ties, written)
        when(place >= fx.Int32(0), lambda place=place, key=key, block=block: receive(place, key, block))
    return total


def trace(config: Config):
    """The launcher and what to trace it with."""

    @compiler.kernel(known_block_size=[config.threads, 1, 1])
    def indexer_merge(
        seq_lens: fx.Int64,
        cu_seqlens: fx.Int64,
        block_ids: fx.Int64,
        workspace: fx.Int64,
        out_token_stride: fx.Int64,
        out_head_stride: fx.Int64,
        num_tokens: fx.Int32,
        batch: fx.Int32,
        q_len: fx.Int32,
        num_heads: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        columns: fx.Int32,
        groups: fx.Int32,
    ):
        given = locals()
        merge(config, SimpleNamespace(**{name: given[name] for name in ARGUMENTS}))

    @compiler.jit
    def launcher(
        seq_lens: fx.Int64,
        cu_seqlens: fx.Int64,
        block_ids: fx.Int64,
        workspace: fx.Int64,
        out_token_stride: fx.Int64,
        out_head_stride: fx.Int64,
        num_tokens: fx.Int32,
        batch: fx.Int32,
        q_len: fx.Int32,
        num_heads: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        columns: fx.Int32,
        groups: fx.Int32,
        stream: fx.Stream,
    ):
        indexer_merge(
            seq_lens,
            cu_seqlens,
            block_ids,
            workspace,
            out_token_stride,
            out_head_stride,
            num_tokens,
            batch,
            q_len,
            num_heads,
            max_blocks,
            topk,
            columns,
            groups,
        ).launch(grid=(1, 1, 1), block=(config.threads, 1, 1), smem=0, stream=stream)

    return launcher, (*[fx.Int64(0)] * 6, *[fx.Int32(0)] * 8, fx.Stream(None))
