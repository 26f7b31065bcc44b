"""Which query tokens a tile holds, and which blocks they chose.

Tiles are numbered request by request; a tile's tokens are consecutive and of one request. Behind them come tiles of
the tokens that belong to none.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import asm
from msa_ops.cute.tiled_attention.layout import COUNTS_AT, HEADER_AT, LIST_AT, PRODUCERS

FIRST, COUNT, REQUEST, BASE, ITEMS = (HEADER_AT + 4 * i for i in range(5))
"""First token; tokens; request or -1; what is to be added to a token for its position; blocks to go through."""


@cute.jit
def _clamped(starts: Int64, place: Int32, tokens: Int32) -> Int32:
    found = memory.load_global_i32(starts + Int64(place) * 4)
    return cutlass.min(cutlass.max(found, Int32(0)), tokens)


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
            base = memory.load_global_i32(seq_lens + Int64(request) * 4) - (request + 1) * each
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
                base = memory.load_global_i32(seq_lens + Int64(request) * 4) - last
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


def _add_bits(address: Int32, bits: Uint32) -> None:
    asm("red.shared.or.b32 [$0], $1;", [], [address, bits])


@cute.jit
def list_blocks(
    shared: Int32,
    thread: Int32,
    scratch: Int32,
    first: Int32,
    count: Int32,
    base: Int32,
    ids: Int64,
    token_stride: Int64,
    topk: Int32,
    max_blocks: Int32,
):
    """The first 128 threads list the blocks that tokens of the tile chose: block + 2^24 x (a bit for each token).

    ids: address of the ids of token 0 and the head. scratch: a byte for each block, in shared memory.
    """
    last = base + first + count - 1
    blocks = Int32(0)
    if last >= 0:
        blocks = cutlass.min(last // 128 + 1, max_blocks)
    words = (blocks + 3) // 4
    for word in cutlass.range(thread, words, PRODUCERS, unroll=1):
        memory.store_shared_i32(scratch + 4 * word, Int32(0))
    cute.arch.barrier(barrier_id=1, number_of_threads=PRODUCERS)
    for entry in cutlass.range(thread, count * topk, PRODUCERS, unroll=1):
        token = entry // topk
        place = entry % topk
        chosen = memory.load_global_i32(ids + (Int64(first + token) * token_stride + Int64(place)) * 4)
        position = base + first + token
        if Boolean(chosen >= 0) & Boolean(chosen < max_blocks):
            if Boolean(position >= 0) & Boolean(chosen * 128 <= position):
                _add_bits(scratch + chosen // 4 * 4, Uint32(1) << Uint32(chosen % 4 * 8 + token))
    cute.arch.barrier(barrier_id=1, number_of_threads=PRODUCERS)
    each = (words + PRODUCERS - 1) // PRODUCERS
    begin = cutlass.min(thread * each, words)
    end = cutlass.min(begin + each, words)
    found = Int32(0)
    for word in cutlass.range(begin, end, unroll=1):
        bits = memory.load_shared_32(scratch + 4 * word)
        for i in cutlass.range_constexpr(4):
            if (bits & Uint32(0xFF << (8 * i))) != Uint32(0):
                found = found + 1
    lane = thread % 32
    through = found
    for offset in cutlass.range_constexpr(5):
        below = cute.arch.shuffle_sync_up(through, offset=1 << offset, mask_and_clamp=0)
        if lane >= 1 << offset:
            through = through + below
    if lane == 31:
        memory.store_shared_i32(shared + COUNTS_AT + thread // 32 * 4, through)
    cute.arch.barrier(barrier_id=1, number_of_threads=PRODUCERS)
    place = through - found
    total = Int32(0)
    for warp in cutlass.range_constexpr(PRODUCERS // 32):
        of_warp = Int32(memory.load_shared_32(shared + COUNTS_AT + 4 * warp))
        if warp < thread // 32:
            place = place + of_warp
        total = total + of_warp
    for word in cutlass.range(begin, end, unroll=1):
        bits = memory.load_shared_32(scratch + 4 * word)
        for i in cutlass.range_constexpr(4):
            mask = (bits >> Uint32(8 * i)) & Uint32(0xFF)
            if mask != Uint32(0):
                memory.store_shared_i32(shared + LIST_AT + 4 * place, (word * 4 + i) | (Int32(mask) << 24))
                place = place + 1
    if thread == 0:
        memory.store_shared_i32(shared + ITEMS, total)
