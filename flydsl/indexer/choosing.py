"""The second half of the scan on CDNA4: of the scored blocks of a workgroup's run, the best of each column."""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.control import either, loop, when
from msa_ops.flydsl.common.intrinsics import anew
from msa_ops.flydsl.indexer import ranking, work
from msa_ops.flydsl.indexer.gfx950_scan_configs import CARRIED
from msa_ops.flydsl.indexer.scoring import pair_of

from msa_ops.build.flydsl_adapter import fx


def choose(a, s, page_begin, page_end, carried, last) -> None:
    """Chooses for each column of the tile among the chunk's blocks and those carried along; a wave a column.

    The table's row of a column holds the keys of the chunk behind those carried along. carried: whether this is not
    the request's first chunk here. last: whether it is the last one.
    """
    c = a.config
    given = a.given.now("topk", "init_blocks", "local_blocks", "max_blocks")
    topk, init_blocks, local_blocks, max_blocks = vars(given).values()

    def column_of(column, _):
        lane = anew(a.lane)
        token, head = pair_of(a, s, column)
        seen = s.position + token
        visible = (seen < fx.Int32(0)).select(fx.Int32(0), (seen >> fx.Int32(7)) + fx.Int32(1))
        visible = work.smaller(visible, max_blocks)
        fresh = work.clamp(visible - page_begin, fx.Int32(0), page_end - page_begin)
        # Those before this chunk that the column saw, as many as were kept; of a first chunk none.
        before = work.clamp(work.smaller(visible, page_begin) - s.page_begin, fx.Int32(0), topk)
        kept = (carried > fx.Int32(0)).select(before, fx.Int32(0))
        row = column * fx.Int32(4 * c.row) + ((fx.Int32(CARRIED) - kept) << fx.Int32(2))
        number = kept + fresh
        r = SimpleNamespace(
            lane=lane,
            row=row,
            kept=kept,
            number=number,
            visible=visible,
            first_block=page_begin - kept,
            names=column * fx.Int32(4 * CARRIED),
            least=column << fx.Int32(2),
            put=lambda place, block, key, written: put(
                a, s, column, token, head, topk, last, place, block, key, written
            ),
        )
        below = -1
        for chunks in sorted({1, 4, c.chunks}):
            fits = (number > fx.Int32(below)) & (number <= fx.Int32(64 * chunks))
            when(fits, lambda chunks=chunks: pick(a, r, chunks, topk, init_blocks, local_blocks, last))
            below = 64 * chunks
        return fx.Int32(0)

    loop(a.wave, s.columns, fx.Int32(c.waves), fx.Int32(0), column_of)


def pick(a, r, chunks: int, topk, init_blocks, local_blocks, last) -> None:
    """The topk best of a column's `r.number` keys, at most 64 a chunk, handed to `r.put`."""
    found, ids = [], []
    for i in range(chunks):
        at = fx.Int32(64 * i) + r.lane
        block = r.first_block + at

        def read(at=at, block=block, i=i):
            key = a.lds.load(r.row + (at << fx.Int32(2)), fx.Uint32, 1, a.at["keys"])
            if i:
                return [key, block]
            old = at < r.kept

            def taken_along():
                return a.lds.load(r.names + (at << fx.Int32(2)), fx.Int32, 1, a.at["carried"])

            return [key, either(old, taken_along, lambda: block)]

        def forced(key, at=at, block=block, i=i):
            at, block = anew(at), anew(block)  # or LLVM computes it wherever it may be wanted
            final = ranking.key_of_block(key, block, r.visible, init_blocks, local_blocks)
            fresh = at < r.number
            if not i:
                fresh = fresh & (at >= r.kept)
            return fresh.select(final, key)

        key, name = either(at < r.number, read, lambda: [fx.Uint32(0), fx.Int32(0)])
        # Few of the 64 hold a block that is chosen whatever its score is.
        begin = r.first_block + fx.Int32(64 * i)
        special = (begin < init_blocks) | (begin + fx.Int32(64) > r.visible - local_blocks)
        found.append(either(special, lambda key=key, forced=forced: forced(key), lambda key=key: key))
        ids.append(name)
    full = r.kept >= topk
    least = either(
        full,
        lambda: fx.Uint32(lanes.uniform(a.lds.load(r.least, fx.Uint32, 1, a.at["least"]))),
        lambda: fx.Uint32(0),
    )
    low, ties, total = ranking.threshold(found, topk, least)
    written = fx.Int32(0)
    for block, key in zip(ids, found, strict=True):

        def take(block=block, key=key, ties=ties, written=written):
            place, *after = ranking.place(key, low, ties, written)
            when(place >= fx.Int32(0), lambda: r.put(place, block, key, total))
            return after

        some = lanes.vote(key >= low) != fx.Uint64(0)
        ties, written = either(some, take, lambda ties=ties, written=written: [ties, written])
    when(~last, lambda: a.lds.store(r.least, low, a.at["least"]))
    rest = total + r.lane
    when(last & (rest < topk), lambda: r.put(rest, fx.Int32(-1), fx.Uint32(0), total))


def put(a, s, column, token, head, topk, last, place, block, key, written) -> None:
    """One chosen block: into the result or the list of candidates, or, if chunks follow, into the column's row."""
    c = a.config
    at = fx.Int64(place)

    def to_result():
        output = fx.Int64(s.first + token) * a.given.out_token_stride + fx.Int64(head) * a.given.out_head_stride
        memory.store(a.given.block_ids + (output + at) * fx.Int64(4), block)

    def to_list():
        entry = ((a.group * fx.Int32(2) + s.side) * fx.Int32(c.columns) + column) * topk
        memory.store(a.given.workspace + (fx.Int64(entry) + at) * fx.Int64(8), [fx.Uint32(block), key])

    def to_memory():
        when(s.direct, to_result)
        when(~s.direct, to_list)

    def to_row():
        row = column * fx.Int32(4 * c.row) + ((fx.Int32(CARRIED) - written + place) << fx.Int32(2))
        a.lds.store(row, key, a.at["keys"])
        a.lds.store(column * fx.Int32(4 * CARRIED) + (place << fx.Int32(2)), block, a.at["carried"])

    when(last, to_memory)
    when(~last, to_row)
