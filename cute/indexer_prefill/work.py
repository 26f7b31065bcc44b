"""How the work of long queries is divided among thread blocks, from the lengths on the device alone.

A request's query tokens are cut into tiles of `tile_tokens` tokens, all heads of each. A piece of work is one page for
one tile; a tile needs the pages that its last token sees, or none if those are `enough` or fewer: then all of them are
chosen. Pieces are numbered request by request, tile by tile, page by page; block i of G takes a run of consecutive
pieces, as long as any other's to within one. The kernel that scores and the one that merges compute the same numbers
from the same lengths, each warp for itself.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from msa_ops.cute.common import streaming


@cute.jit
def clamp(value: Int32, low: Int32, high: Int32) -> Int32:
    value = low if value < low else value
    return high if value > high else value


@cute.jit
def load_request(a, request: Int32):
    """First query token, query tokens, and the position of that first one; no tokens behind the last request."""
    begin, tokens, position = Int32(0), Int32(0), Int32(0)
    if request < a.batch:
        length = streaming.load_i32(a.seq_lens + Int64(request) * 4)
        first = a.q_len * request
        last = first + a.q_len
        if a.cu_seqlens != Int64(0):
            first = streaming.load_i32(a.cu_seqlens + Int64(request) * 4)
            last = streaming.load_i32(a.cu_seqlens + Int64(request) * 4 + 4)
        begin = clamp(first, Int32(0), a.num_tokens)
        tokens = clamp(last, Int32(0), a.num_tokens) - begin
        tokens = Int32(0) if tokens < 0 else tokens
        position = length - (last - begin)
    return begin, tokens, position


@cute.jit
def num_tiles(a, tokens: Int32) -> Int32:
    return (tokens + (a.tile_tokens - 1)) // a.tile_tokens


@cute.jit
def visible_blocks(a, position: Int32) -> Int32:
    blocks = Int32(0) if position < 0 else (position >> 7) + 1
    return a.max_blocks if blocks > a.max_blocks else blocks


@cute.jit
def tile_pages(a, tokens: Int32, position: Int32, tile: Int32) -> Int32:
    """Pages that a tile needs."""
    last = (tile + 1) * a.tile_tokens
    last = tokens if last > tokens else last
    pages = visible_blocks(a, position + last - 1)
    return Int32(0) if pages <= a.enough else pages


@cute.jit
def first_tile(a, position: Int32) -> Int32:
    """The first tile of a request that needs pages, if any does."""
    before = a.enough * 128 - position
    return Int32(0) if before < 0 else before // a.tile_tokens


@cute.jit
def sum_of_floors(count: Int32, step: Int32, start: Int32) -> Int32:
    """Sum of (start + i step) // 128 over i from 0 to count - 1, with step > 0 and start >= 0.

    Euclid's algorithm on the lattice points below a line.
    """
    total = Int32(0)
    divisor = Int32(128)
    while count > 0:
        if step >= divisor:
            total = total + ((count * (count - 1)) >> 1) * (step // divisor)
            step = step % divisor
        if start >= divisor:
            total = total + count * (start // divisor)
            start = start % divisor
        most = step * count + start
        count = most // divisor
        start = most % divisor
        former = divisor
        divisor = step
        step = former
        count = Int32(0) if divisor == 0 else count
        divisor = Int32(1) if divisor == 0 else divisor
    return total


@cute.jit
def pieces_before(a, tokens: Int32, position: Int32, tile: Int32) -> Int32:
    """Pieces of a request's tiles before `tile`, which may be their number."""
    total = Int32(0)
    if tile > 0 and tokens > 0:
        full = tile
        if tile * a.tile_tokens > tokens:  # the last tile has fewer tokens
            full = tile - 1
            total = tile_pages(a, tokens, position, full)
        # Tiles before `first` need nothing, those from `wide` on as many pages as the table has.
        first = first_tile(a, position)
        wide = first
        needed = (a.max_blocks - 1) * 128 + 1 - position
        if needed > 0:
            wide = (needed + (a.tile_tokens - 1)) // a.tile_tokens - 1
            wide = first if wide < first else wide
        first = full if first > full or a.max_blocks <= a.enough else first
        wide = full if wide > full or wide < first else wide
        if wide > first:
            last_of_first = position + (first + 1) * a.tile_tokens - 1
            total = total + (wide - first) + sum_of_floors(wide - first, a.tile_tokens, last_of_first)
        total = total + (full - wide) * a.max_blocks
    return total


@cute.jit
def pieces_of(a, tokens: Int32, position: Int32) -> Int32:
    return pieces_before(a, tokens, position, num_tiles(a, tokens))


@cute.jit
def all_pieces(a) -> Int32:
    """Of the whole batch; a warp together."""
    total, window = Int32(0), Int32(0)
    while window < a.batch:
        _, tokens, position = load_request(a, window + a.lane)
        total = total + cute.arch.warp_redux_sync(pieces_of(a, tokens, position), "add")
        window = window + 32
    return total


@cute.jit
def run_begin(block: Int32, total: Int32, blocks: Int32) -> Int32:
    """First piece of a block's run; that of `blocks` is the total."""
    each = total // blocks
    longer = total - each * blocks
    return block * each + (block if block < longer else longer)


@cute.jit
def block_of(piece: Int32, total: Int32, blocks: Int32) -> Int32:
    """The block in whose run a piece is."""
    each = total // blocks
    longer = total - each * blocks
    border = longer * (each + 1)
    block = piece // (each + 1)
    if piece >= border:
        block = longer + (piece - border) // (Int32(1) if each < 1 else each)
    return block


@cute.jit
def prefix(value: Int32, lane: Int32):
    """Sum over the lanes before this one, and over all."""
    inclusive = value
    for step in cutlass.range_constexpr(5):
        below = cute.arch.shuffle_sync_up(inclusive, 1 << step, mask_and_clamp=0)
        inclusive = inclusive + (below if lane >= (1 << step) else Int32(0))
    return inclusive - value, cute.arch.shuffle_sync(inclusive, 31)


@cute.jit
def request_of_piece(a, piece: Int32):
    """The request that a piece below the total belongs to, and its first piece; a warp together."""
    request, request_begin = Int32(0), Int32(0)
    base, window = Int32(0), Int32(0)
    while window < a.batch:
        _, tokens, position = load_request(a, window + a.lane)
        pieces = pieces_of(a, tokens, position)
        before, sum_of_window = prefix(pieces, a.lane)
        mine = base + before
        inside = cute.arch.vote_ballot_sync(mine <= piece and piece < mine + pieces)
        if inside != 0:
            place = cute.arch.popc(inside - 1)
            request = window + place
            request_begin = cute.arch.shuffle_sync(mine, place)
        window = a.batch if inside != 0 else window + 32
        base = base + sum_of_window
    return request, request_begin


@cute.jit
def tile_of_piece(a, tokens: Int32, position: Int32, within: Int32) -> Int32:
    """Tile of a request's piece `within`."""
    low, high = Int32(0), num_tiles(a, tokens) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        below = pieces_before(a, tokens, position, middle) <= within
        low = middle if below else low
        high = high if below else middle - 1
    return low


@cute.jit
def first_segment(a, piece: Int32):
    """Of a run that begins with `piece`: the request, its tokens, their place and position, the tile, the block."""
    request, request_begin = request_of_piece(a, piece)
    begin, tokens, position = load_request(a, request)
    tile = tile_of_piece(a, tokens, position, piece - request_begin)
    block = piece - request_begin - pieces_before(a, tokens, position, tile)
    return request, begin, tokens, position, tile, block


@cute.jit
def next_segment(a, request: Int32, begin: Int32, tokens: Int32, position: Int32, tile: Int32):
    """The next tile that needs pages, of this request or a later one."""
    tile = tile + 1
    pages = Int32(0)
    if tile < num_tiles(a, tokens):
        pages = tile_pages(a, tokens, position, tile)
    while pages == 0 and request < a.batch:
        request = request + 1
        begin, tokens, position = load_request(a, request)
        tile = first_tile(a, position)
        if tile < num_tiles(a, tokens):
            pages = tile_pages(a, tokens, position, tile)
    return request, begin, tokens, position, tile
