"""The indexer's merge on CDNA4: the result of each (query token, head) row that the scan has not finished.

A workgroup a row. It finds the row's request by the same division of work as the scan. Of a call with few pieces it
has the keys of all blocks of the row; otherwise the candidates of the workgroups that scanned the request, unless it
was one alone. In both cases each wave chooses among a share of them, then one wave among those. Candidates come in
ascending order of block ids and leave in it. Rows that see nothing are filled with -1.
"""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.control import either, loop, when
from msa_ops.flydsl.indexer import ranking, work
from msa_ops.flydsl.indexer.gfx950_merge_configs import FAMILY, SHARE, Config

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
    token = work.quotient_by(row, a.num_heads, a.heads_reciprocal)
    head = row - token * a.num_heads
    output = fx.Int64(token) * a.out_token_stride + fx.Int64(head) * a.out_head_stride
    a.result = a.block_ids + output * fx.Int64(4)

    few = a.batch <= fx.Int32(lanes.WAVE)
    facts = either(few, lambda: row_in_lanes(a, token), lambda: row_of(a, token))
    pages, first, tokens, length, before, total = [lanes.uniform(value) for value in facts]
    pair = (token - first) * a.num_heads + head
    tile = pair >> a.columns_log2
    column = pair - (tile << a.columns_log2)
    begin = before + tile * pages

    def nothing():
        when(a.thread < a.topk, lambda: put(a, a.thread, fx.Int32(-1)))

    def candidates():
        low = work.group_of(begin, total, a.groups)
        high = work.group_of(begin + pages - fx.Int32(1), total, a.groups)
        when(low < high, lambda: choose(a, column, low, high, total))

    def keys_of_all():
        seen = length - tokens + (token - first)
        visible = (seen < fx.Int32(0)).select(fx.Int32(0), (seen >> fx.Int32(7)) + fx.Int32(1))
        choose_of_all(a, column * a.most_pieces + begin, work.smaller(visible, pages))

    def something():
        left = total <= a.most_pieces
        when(left, keys_of_all)
        when(~left, candidates)

    when(pages <= fx.Int32(0), nothing)
    when(pages > fx.Int32(0), something)


def put(a, place, block) -> None:
    memory.store(a.result + fx.Int64(place) * fx.Int64(4), block)


def row_in_lanes(a, token):
    """As `row_of`, for a batch of at most 64: each wave has a request a lane."""
    requests = work.Requests(a, a.lane, a.columns_log2)
    request = work.request_of_token(a, token, a.lane, *requests.values[2:])

    def found():
        before, *rest = work.facts(a, request, requests.values, a.columns_log2)
        return [*rest, before]

    return [*either(request < a.batch, found, lambda: [fx.Int32(0)] * 5), requests.total]


def row_of(a, token):
    """Pages, first query token, tokens and length of the token's request, the pieces of requests before it, and of all.

    No pages if no request has the token.
    """
    when(a.thread < fx.Int32(4), lambda: a.lds.store(a.thread << fx.Int32(2), fx.Int32(0), a.at["request"]))
    lanes.barrier()

    def add(i, sums):
        before, total = sums
        pieces, pages, begin, tokens, length = work.request_work(a, i + a.thread, a.columns_log2)
        inside = (begin <= token) & (token < begin + tokens)
        when(inside, lambda: a.lds.store(fx.Int32(0), [pages, begin, tokens, length], a.at["request"]))
        earlier = (begin + tokens <= token).select(pieces, fx.Int32(0))
        return [before + earlier, total + pieces]

    sums = loop(fx.Int32(0), a.batch, fx.Int32(a.config.threads), [fx.Int32(0), fx.Int32(0)], add)
    sums = [lanes.wave_sum(value) for value in sums]
    when(a.lane == fx.Int32(0), lambda: a.lds.store(a.wave << fx.Int32(3), sums, a.at["sums"]))
    lanes.barrier()
    before, total = fx.Int32(0), fx.Int32(0)
    for i in range(a.config.waves):
        part = a.lds.load(fx.Int32(0), fx.Int32, 2, a.at["sums"] + 8 * i)
        before, total = before + part[0], total + part[1]
    return [*a.lds.load(fx.Int32(0), fx.Int32, 4, a.at["request"]), before, total]


def choose_of_all(a, begin, number) -> None:
    """The row's result from the keys of its `number` first blocks, at `begin` in the workspace."""
    c = a.config
    waves = work.clamp(
        (number + fx.Int32(SHARE - 1)) >> fx.Int32(SHARE.bit_length() - 1), fx.Int32(1), fx.Int32(c.waves)
    )
    # A multiple of 64, so that what a wave reads is aligned.
    share = work.quotient(number + waves * fx.Int32(64) - fx.Int32(1), waves) & fx.Int32(-64)
    share = (waves == fx.Int32(1)).select(number, share)
    share = lanes.uniform(share)
    low = work.smaller(a.wave * share, number)
    here = work.smaller(share, number - low)
    alone = waves == fx.Int32(1)
    base = a.workspace + fx.Int64(begin + low) * fx.Int64(4)

    def receive(place, key, block):
        when(alone, lambda: put(a, place, block))
        when(~alone, lambda: list_chosen(a, place, key, block))

    def pick(chunks):
        found = []
        for i in range(chunks):
            at = fx.Int32(64 * i) + a.lane
            key = either(
                at < here,
                lambda at=at: memory.load(base + fx.Int64(fx.Uint64(fx.Uint32(at) << fx.Uint32(2))), fx.Uint32),
                lambda: fx.Uint32(0),
            )
            block = low + at
            begins = low + fx.Int32(64 * i)

            def forced(key=key, block=block, at=at):
                final = ranking.key_of_block(key, block, number, a.init_blocks, a.local_blocks)
                return (at < here).select(final, key)

            special = (begins < a.init_blocks) | (begins + fx.Int32(64) > number - a.local_blocks)
            found.append([either(special, forced, lambda key=key: key), block])
        written = rank(a, found, receive)
        rest = written + a.lane
        when(rest < a.topk, lambda: receive(rest, fx.Uint32(0), fx.Int32(-1)))

    def share_of_wave():
        below = 0
        for chunks in sorted({1, 4, c.key_chunks}):
            fits = (share > fx.Int32(below)) & (share <= fx.Int32(64 * chunks))
            when(fits | ((share == fx.Int32(0)) & fx.Boolean(below == 0)), lambda chunks=chunks: pick(chunks))
            below = 64 * chunks

    when(a.wave < waves, share_of_wave)

    def together():
        lanes.barrier()
        when(a.wave == fx.Int32(0), lambda: finish(a, waves))

    when(~alone, together)


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
            entry = (((low + which) * fx.Int32(2) + side) << a.columns_log2) + column
            entry = entry * a.topk + (at - which * each)
            block, key = memory.load(a.workspace + fx.Int64(entry) * fx.Int64(8), fx.Uint32, 2)
            return [key, fx.Int32(block)]

        return either((within < share) & (at < number), read, lambda: [fx.Uint32(0), fx.Int32(0)])

    def receive(place, key, block):
        list_chosen(a, place, key, block)

    written = rank(a, [candidate(i) for i in range(c.chunks)], receive)
    rest = written + a.lane
    when(rest < a.topk, lambda: receive(rest, fx.Uint32(0), fx.Int32(0)))
    lanes.barrier()
    when(a.wave == fx.Int32(0), lambda: finish(a, fx.Int32(c.waves)))


def list_chosen(a, place, key, block) -> None:
    """What a wave has chosen, for `finish`."""
    at = (a.wave * a.topk + place) << fx.Int32(3)
    a.lds.store(at, [key, fx.Uint32(block)], a.at["chosen"])


def finish(a, waves) -> None:
    """The result from the lists of so many waves."""
    most = a.config.waves * a.config.topk // 64
    found = []
    for i in range(most):
        at = fx.Int32(64 * i) + a.lane

        def read(at=at):
            key, block = a.lds.load(at << fx.Int32(3), fx.Uint32, 2, a.at["chosen"])
            return [key, fx.Int32(block)]

        found.append(either(at < waves * a.topk, read, lambda: [fx.Uint32(0), fx.Int32(0)]))
    written = rank(a, found, lambda place, key, block: put(a, place, block))
    rest = written + a.lane
    when(rest < a.topk, lambda: put(a, rest, fx.Int32(-1)))


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
        heads_reciprocal: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        init_blocks: fx.Int32,
        local_blocks: fx.Int32,
        columns_log2: fx.Int32,
        groups: fx.Int32,
        groups_reciprocal: fx.Int32,
        most_pieces: fx.Int32,
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
        heads_reciprocal: fx.Int32,
        max_blocks: fx.Int32,
        topk: fx.Int32,
        init_blocks: fx.Int32,
        local_blocks: fx.Int32,
        columns_log2: fx.Int32,
        groups: fx.Int32,
        groups_reciprocal: fx.Int32,
        most_pieces: fx.Int32,
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
            heads_reciprocal,
            max_blocks,
            topk,
            init_blocks,
            local_blocks,
            columns_log2,
            groups,
            groups_reciprocal,
            most_pieces,
        ).launch(grid=(1, 1, 1), block=(config.threads, 1, 1), smem=0, stream=stream)

    return launcher, (*[fx.Int64(0)] * 6, *[fx.Int32(0)] * 13, fx.Stream(None))
