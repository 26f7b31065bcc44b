"""How the work of a ragged batch is divided among thread blocks, from the lengths on the device alone.

A piece of work is one page for one tile of a request's (query token, head) columns. Pieces are numbered request by
request, tile by tile, page by page; block i of G takes a run of consecutive pieces, as long as any other's to within
one. The scan and the merge compute the same numbers from the same lengths.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from msa_ops.cute.indexer import atoms

PAGE = 128


@cute.jit
def clamp(value: Int32, low: Int32, high: Int32) -> Int32:
    value = low if value < low else value
    return high if value > high else value


@cute.jit
def load_i32(base: Int64, position: Int32, early: cutlass.Constexpr = False) -> Int32:
    """early: before the kernel waited for the one before, so that what is read may be about to change."""
    address = base + Int64(position) * 4
    return Int32(atoms.ldg_relaxed_u32(address) if cutlass.const_expr(early) else atoms.ldg_constant_u32(address))


@cute.jit
def divide(value: Int32, magic: Int64) -> Int32:
    """value // d for value >= 0 and the number that `msa_ops.nvidia.indexer.magic_divisor(d)` gives."""
    return value if magic == 0 else atoms.divide_by_magic(value, magic)


@cute.jit
def query_range(request: Int32, cu_seqlens: Int64, each: Int32, early: cutlass.Constexpr = False):
    """First and one past the last query token of a request; as the lengths say, not limited to the batch."""
    first = each * request
    last = first + each
    if cu_seqlens != Int64(0):
        first = load_i32(cu_seqlens, request, early)
        last = load_i32(cu_seqlens, request + 1, early)
    return first, last


@cute.jit
def num_pages(seq_len: Int32, max_blocks: Int32) -> Int32:
    pages = (seq_len >> 7) + (Int32(1) if (seq_len & 127) > 0 else Int32(0))
    pages = Int32(0) if seq_len < 0 else pages
    return max_blocks if pages > max_blocks else pages


@cute.jit
def num_tiles(first: Int32, last: Int32, num_tokens: Int32, num_heads: Int32, tile_shift: Int32) -> Int32:
    """Tiles of 2^tile_shift columns."""
    columns = (clamp(last, Int32(0), num_tokens) - clamp(first, Int32(0), num_tokens)) * num_heads
    tiles = (columns + ((Int32(1) << tile_shift) - 1)) >> tile_shift
    return Int32(0) if columns <= 0 else tiles


@cute.jit
def run_begin(block: Int32, total: Int32, blocks: Int32, blocks_magic: Int64) -> Int32:
    """First piece of a block's run; that of `blocks` is the total."""
    each = divide(total, blocks_magic)
    longer = total - each * blocks
    return block * each + (block if block < longer else longer)


@cute.jit
def block_of(piece: Int32, total: Int32, blocks: Int32, blocks_magic: Int64) -> Int32:
    """The block in whose run a piece is."""
    each = divide(total, blocks_magic)
    longer = total - each * blocks
    border = longer * (each + 1)
    block = piece // (each + 1)
    if piece >= border:
        block = longer + (piece - border) // (Int32(1) if each < 1 else each)
    return block


@cute.jit
def warp_prefix(value: Int32, lane: Int32) -> Int32:
    """Sum over the lanes up to this one."""
    for step in cutlass.range_constexpr(5):
        below = cute.arch.shuffle_sync_up(value, 1 << step, mask_and_clamp=0)
        value = value + (below if lane >= (1 << step) else Int32(0))
    return value


@cute.jit
def block_prefix(value: Int32, sums: Int32, thread: Int32, warps: cutlass.Constexpr):
    """Sum over the threads before this one, and over all.

    sums: shared memory of one word a warp, which is free again after the next barrier.
    """
    lane, warp = thread % 32, thread // 32
    inclusive = warp_prefix(value, lane)
    if lane == 31:
        atoms.sts_u32(sums + warp * 4, inclusive)
    cute.arch.sync_threads()
    before, total = Int32(0), Int32(0)
    for four in cutlass.range_constexpr((warps + 3) // 4):
        parts = atoms.lds_u32x4(sums, four * 16)
        for i in cutlass.range_constexpr(min(4, warps - 4 * four)):
            before = before + (Int32(parts[i]) if 4 * four + i < warp else Int32(0))
            total = total + Int32(parts[i])
    return before + inclusive - value, total
