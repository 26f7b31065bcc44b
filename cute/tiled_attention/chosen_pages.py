"""Which pages the query tokens of a tile chose, each once: eight warps, one a token, turn block ids into a list.

The list is in the order in which blocks are first met, going over the first 32 ids of all tokens, then over the rest.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import select
from msa_ops.cute.tiled_attention.chosen_layout import (
    BRINGERS,
    COUNTS_IN_IDS,
    ENTRY_BYTES,
    IDS_ROW,
    LENGTH_AT,
    SEEN_AT,
    TOKENS,
    TURNS,
)
from msa_ops.cute.tiled_attention.layout import PAGE

LISTING = 1
"""Number of the barrier of the warps that make the list."""


@cute.jit
def list_pages(
    config: cutlass.Constexpr,
    shared: Int32,
    warp: Int32,
    lane: Int32,
    count: Int32,
    base: Int32,
    first: Int32,
    ids: Int64,
    ids_token_stride: Int64,
    table: Int64,
    topk: Int32,
    num_pages: Int32,
    max_blocks: Int32,
    chosen: cute.Tensor,
    pages: cute.Tensor,
):
    """Makes the list and its length, and counts what tokens see; ends behind a barrier of the eight warps.

    chosen, pages: become the blocks of the lane's ids of token `warp` and their pages, or block -1 where there is none.

    count: tokens of the tile, or 0 if they see nothing. base: what is added to a token for its position. ids: of token
    0 of all. table: of the request.
    """
    at = shared + config.ids_at
    own_row = at + warp * IDS_ROW
    row = ids + Int64(first + warp) * (4 * ids_token_stride)
    for turn in cutlass.range_constexpr(TURNS):
        place = lane + 32 * turn
        wanted = Boolean(warp < count) & Boolean(place < topk)
        chosen[turn] = memory.load_global_i32_if(row + Int64(4 * place), Int32(wanted), Int32(-1))
    position = base + first + warp
    blocks = Int32(0)
    if Boolean(warp < count) & Boolean(position >= 0):
        blocks = cutlass.min(position // PAGE + 1, max_blocks)
    seen = Int32(0)
    for turn in cutlass.range_constexpr(TURNS):
        wanted = Boolean(chosen[turn] >= 0) & Boolean(chosen[turn] < blocks)
        entry = table + Int64(chosen[turn]) * 4
        pages[turn] = memory.load_global_i32_if(entry, Int32(wanted), Int32(-1))
    for turn in cutlass.range_constexpr(TURNS):
        usable = Boolean(pages[turn] >= 0) & Boolean(pages[turn] < num_pages)
        chosen[turn] = select(usable, chosen[turn], Int32(-1))
        seen = seen + cute.arch.popc(cute.arch.vote_ballot_sync(usable))
        memory.store_shared_i32(own_row + 4 * lane + 128 * turn, chosen[turn])
    cute.arch.barrier(barrier_id=LISTING, number_of_threads=BRINGERS)

    masks = cute.make_rmem_tensor(cute.make_layout((TURNS,)), Uint32)
    masks.fill(0)
    for other in cutlass.range(count, unroll=2):
        found = cute.make_rmem_tensor(cute.make_layout((TURNS,)), Uint32)
        found.fill(0)
        for part in cutlass.range((topk + 15) // 16, unroll=1):
            words = []
            for quad in cutlass.range_constexpr(4):
                words += memory.load_shared_128(at + other * IDS_ROW + part * 64 + quad * 16)
            for word in words:
                for turn in cutlass.range_constexpr(TURNS):
                    found[turn] = select(Int32(word) == chosen[turn], Uint32(1), found[turn])
        for turn in cutlass.range_constexpr(TURNS):
            masks[turn] = masks[turn] | (found[turn] << Uint32(other))
    # The first token that chose a block stands for all.
    before = (Uint32(1) << Uint32(warp)) - Uint32(1)
    for turn in cutlass.range_constexpr(TURNS):
        stands = Boolean(chosen[turn] >= 0) & Boolean((masks[turn] & before) == Uint32(0))
        masks[turn] = select(stands, masks[turn], Uint32(0))
        votes = cute.arch.popc(cute.arch.vote_ballot_sync(stands))
        if lane == 0:
            memory.store_shared_i32(at + COUNTS_IN_IDS + turn * 32 + warp * 4, votes)
    if lane == 0:
        memory.store_shared_i32(at + COUNTS_IN_IDS + TURNS * 32 + warp * 4, seen)
    cute.arch.barrier(barrier_id=LISTING, number_of_threads=BRINGERS)

    length = Int32(0)
    for turn in cutlass.range_constexpr(TURNS):
        number = length
        of_warps = memory.load_shared_128(at + COUNTS_IN_IDS + turn * 32)
        of_warps = of_warps + memory.load_shared_128(at + COUNTS_IN_IDS + turn * 32 + 16)
        for other in cutlass.range_constexpr(TOKENS):
            number = number + select(Int32(other) < warp, Int32(of_warps[other]), Int32(0))
            length = length + Int32(of_warps[other])
        votes = cute.arch.vote_ballot_sync(masks[turn] != Uint32(0))
        if masks[turn] != Uint32(0):
            ahead = cute.arch.popc(votes & ((Int32(1) << lane) - 1))
            memory.store_shared_128(
                shared + config.list_at + (number + ahead) * ENTRY_BYTES,
                Uint32(chosen[turn]),
                masks[turn],
                Uint32(pages[turn]),
                Uint32(0),
            )
    of_warps = memory.load_shared_128(at + COUNTS_IN_IDS + TURNS * 32)
    of_warps = of_warps + memory.load_shared_128(at + COUNTS_IN_IDS + TURNS * 32 + 16)
    seen = Int32(0)
    for other in cutlass.range_constexpr(TOKENS):
        seen = seen + Int32(of_warps[other])
    if Boolean(warp == 0) & Boolean(lane == 0):
        memory.store_shared_i32(shared + LENGTH_AT, length)
        memory.store_shared_i32(shared + SEEN_AT, seen)
    cute.arch.barrier(barrier_id=LISTING, number_of_threads=BRINGERS)


def entry_of(config, shared: Int32, number: Int32) -> tuple:
    """Block, mask of tokens and page of an entry of the list."""
    block, mask, page, _ = memory.load_shared_128(shared + config.list_at + number * ENTRY_BYTES)
    return Int32(block), Int32(mask), Int32(page)
