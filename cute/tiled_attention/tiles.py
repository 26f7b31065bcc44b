"""Which query tokens a tile holds.

Tiles are numbered request by request; a tile's tokens are consecutive and of one request. Behind them come tiles of
the tokens that belong to none.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from msa_ops.cute.common import memory
from msa_ops.cute.tiled_attention.layout import HEADER_AT

FIRST, COUNT, REQUEST, BASE = (HEADER_AT + 4 * i for i in range(4))
"""First token; tokens; request or -1; what is to be added to a token for its position."""


@cute.jit
def _clamped(starts: Int64, place: Int32, tokens: Int32) -> Int32:
    found = memory.load_global_i32(starts + Int64(place) * 4)
    return cutlass.min(cutlass.max(found, Int32(0)), tokens)


def _length(seq_lens: Int64, request: Int32) -> Int32:
    """Of a request; less than nothing is nothing, before anything is subtracted from it."""
    return cutlass.max(memory.load_global_i32(seq_lens + Int64(request) * 4), Int32(0))


@cute.jit
def find_tile(
    shared: Int32,
    lane: Int32,
    tile: Int32,
    size: cutlass.Constexpr,
    starts: Int64,
    seq_lens: Int64,
    tokens: Int32,
    batch: Int32,
):
    """One warp writes the header of a tile of up to `size` tokens; a number too high gives one without tokens."""
    left = tile
    request = Int32(-1)
    first = Int32(0)
    count = Int32(0)
    base = Int32(0)
    padding = Int32(0)  # where the tokens behind those of the last request begin
    if starts == Int64(0):
        each = tokens // cutlass.max(batch, 1)
        if batch == 0:
            each = Int32(0)
        tiles = cutlass.max((each + size - 1) // size, 1)
        padding = batch * each
        if Boolean(each > 0) & Boolean(tile < batch * tiles):
            request = tile // tiles
            first = request * each + tile % tiles * size
            count = cutlass.min((request + 1) * each - first, size)
            base = _length(seq_lens, request) - (request + 1) * each
        elif each > 0:
            left = tile - batch * tiles
    else:
        begin = Int32(0)
        while begin < batch:
            place = begin + lane
            start = Int32(0)
            end = Int32(0)
            if place < batch:
                start = _clamped(starts, place, tokens)
                end = _clamped(starts, place + 1, tokens)
            tiles = (cutlass.max(end - start, 0) + size - 1) // size
            through = tiles
            for offset in cutlass.range_constexpr(5):
                below = cute.arch.shuffle_sync_up(through, offset=1 << offset, mask_and_clamp=0)
                if lane >= 1 << offset:
                    through = through + below
            behind = cute.arch.popc(cute.arch.vote_ballot_sync(through <= left))
            if behind < 32:
                request = begin + behind
                before = cute.arch.shuffle_sync(through - tiles, behind)
                start = cute.arch.shuffle_sync(start, behind)
                end = cute.arch.shuffle_sync(end, behind)
                first = start + (left - before) * size
                count = cutlass.min(end - first, size)
                last = memory.load_global_i32(starts + Int64(request + 1) * 4)
                base = _length(seq_lens, request) - last
                begin = batch
            else:
                left = left - cute.arch.shuffle_sync(through, 31)
                begin = begin + 32
        padding = _clamped(starts, batch, tokens)
    if request < 0:
        tiles = (tokens - padding + size - 1) // size
        if left < tiles:
            first = padding + left * size
            count = cutlass.min(tokens - first, size)
        elif starts != Int64(0):
            ahead = _clamped(starts, Int32(0), tokens)
            first = (left - tiles) * size
            count = cutlass.max(cutlass.min(ahead - first, size), 0)
    if lane == 0:
        memory.store_shared_i32(shared + FIRST, first)
        memory.store_shared_i32(shared + COUNT, count)
        memory.store_shared_i32(shared + REQUEST, request)
        memory.store_shared_i32(shared + BASE, base)
