"""The order in which blocks are chosen, as 32-bit keys, and the search for the K-th largest of many keys in a warp.

A larger key is chosen first; among equal keys the lower block id. 0: there is no such block. Scores keep the order
of fp32; the patterns above +inf's, which only NaN would use, say that a block is forced: init blocks above local
ones. Whoever lists keys lists them in ascending order of their blocks, so ids never have to be compared or sorted.
"""

import cutlass.cute as cute
from cutlass import Float32, Int32, Uint32
from msa_ops.cute.indexer import atoms

MAX_TOPK = 64
LOWEST = 0x007FFFFF
"""Key of -inf."""

HIGHEST_SCORE = 0xFF800000
"""Key of +inf."""

TOP = 0xFFFFFFFF


@cute.jit
def key_of_score(score: Float32) -> Uint32:
    """-0 equals +0. The score is no NaN."""
    bits = atoms.bits_of(atoms.positive_zero(score))
    negative = Uint32(0) - (bits >> Uint32(31))
    return bits ^ (negative | Uint32(0x80000000))


@cute.jit
def key_of_block(key: Uint32, block: Int32, num_blocks: Int32, init_blocks: Int32, local_blocks: Int32) -> Uint32:
    """The key of a block with a score's key (or 0 if no score was recorded) for a token that sees `num_blocks`.

    Of more than 64 forced blocks of a kind the later ones are never chosen, so they may share a key.
    """
    newer = num_blocks - 1 - block
    found = Uint32(LOWEST) if key < Uint32(LOWEST) else key
    if newer < local_blocks:
        found = Uint32(TOP - MAX_TOPK) - Uint32(newer if newer < MAX_TOPK else Int32(MAX_TOPK))
    if block < init_blocks:
        found = Uint32(TOP) - Uint32(block if block < MAX_TOPK - 1 else Int32(MAX_TOPK - 1))
    return found if newer >= 0 else Uint32(0)


@cute.jit
def warp_sum(value: Int32) -> Int32:
    return cute.arch.warp_redux_sync(value, "add")


@cute.jit
def warp_max(value: Uint32) -> Uint32:
    return cute.arch.warp_redux_sync(value, "umax")


@cute.jit
def search_step(low: Uint32, high: Uint32, middle: Uint32, count: Int32, wanted: Int32):
    """Bisection: `count` keys are >= middle. Keeps count(>= low) >= wanted > count(> high)."""
    if count >= wanted:
        low = middle
    else:
        high = middle - Uint32(1)
    if count == wanted:
        high = middle
    return low, high


@cute.jit
def lanes_below(lane: Int32) -> Int32:
    """Mask of the lanes before this one."""
    return Int32((Uint32(1) << Uint32(lane)) - Uint32(1))
