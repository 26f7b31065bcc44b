"""The order in which blocks are chosen, as 32-bit keys, and the search for the K-th largest of many keys in a warp.

A larger key is chosen first; among equal keys the lower block id. 0: there is no such block. Scores keep the order
of fp32; the patterns above +inf's, which only NaN would use, say that a block is forced: init blocks above local
ones. Whoever lists keys lists them in ascending order of their blocks, so ids never have to be compared or sorted.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Uint32
from msa_ops.cute.indexer import atoms

MAX_TOPK = 64
LOWEST = 0x007FFFFF
"""Key of -inf."""

HIGHEST_SCORE = 0xFF800000
"""Key of +inf."""

TOP = 0xFFFFFFFE
"""The highest key; one more can still be asked for."""


@cute.jit
def key_of_score(score: Float32) -> Uint32:
    """-0 equals +0. The score is no NaN."""
    bits = atoms.bits_of(atoms.positive_zero(score))
    negative = Uint32(0) - (bits >> Uint32(31))
    return bits ^ (negative | Uint32(0x80000000))


@cute.jit
def key_of_block(key: Uint32, block: Int32, num_blocks: Int32, init_blocks: Int32, local_blocks: Int32) -> Uint32:
    """The key of a block < num_blocks with a score's key, or 0 if no score was recorded.

    num_blocks: how many the token sees. Of more than 64 forced blocks of a kind the later ones are never chosen, so
    they may share a key.
    """
    newer = num_blocks - 1 - block
    found = Uint32(LOWEST) if key < Uint32(LOWEST) else key
    if newer < local_blocks:
        found = Uint32(TOP - MAX_TOPK) - Uint32(newer if newer < MAX_TOPK else Int32(MAX_TOPK))
    if block < init_blocks:
        found = Uint32(TOP) - Uint32(block if block < MAX_TOPK - 1 else Int32(MAX_TOPK - 1))
    return found


@cute.jit
def warp_sum(value: Int32) -> Int32:
    return cute.arch.warp_redux_sync(value, "add")


@cute.jit
def lanes_below(lane: Int32) -> Int32:
    """Mask of the lanes before this one."""
    return Int32((Uint32(1) << Uint32(lane)) - Uint32(1))


@cute.jit
def see(key: Uint32, lowest: Uint32, highest: Uint32):
    """Extremes of the scores' keys seen so far, with one more key. `lowest` is one less, so that no key 0 counts."""
    score = Uint32(0) if key > Uint32(HIGHEST_SCORE) else key
    return atoms.min_u32(lowest, score - Uint32(1)), atoms.max_u32(highest, score)


@cute.jit
def bounds(exist: Int32, forced: Int32, lowest: Uint32, highest: Uint32, wanted: Int32):
    """Keys low and high with count(>= low) >= wanted > count(> high), or both 1 if no more than `wanted` exist.

    exist, forced: of the warp. lowest, highest: of the lane, as `see` gives them.
    """
    low = cute.arch.warp_redux_sync(lowest, "umin") + Uint32(1)
    high = cute.arch.warp_redux_sync(highest, "umax")
    low = Uint32(TOP - 2 * MAX_TOPK) if forced >= wanted else low
    high = Uint32(TOP) if forced >= wanted else high
    low = Uint32(1) if exist <= wanted else low
    return low, low if exist <= wanted else high


@cute.jit
def between(low: Uint32, high: Uint32):
    """Three keys that divide those from low + 1 to high into four parts."""
    half = low + ((high - low) >> Uint32(1)) + Uint32(1)
    return low + ((high - low) >> Uint32(2)) + Uint32(1), half, half + ((high - half + Uint32(1)) >> Uint32(1))


@cute.jit
def narrow(low: Uint32, high: Uint32, parts, counts, wanted: Int32):
    """Keeps the part that the wanted key is in, by the counts of keys >= each of three.

    If one of them is as many as wanted, the search is over.
    """
    for i in cutlass.range_constexpr(3):
        low = parts[i] if counts[i] >= wanted else low
        high = parts[2 - i] - Uint32(1) if counts[2 - i] < wanted else high
    for i in cutlass.range_constexpr(3):
        low = parts[i] if counts[i] == wanted else low
        high = parts[i] if counts[i] == wanted else high
    return low, high


FIELD = 10
"""Bits of a count when three travel in one word."""


@cute.jit
def threshold(keys, chunks: cutlass.Constexpr, wanted: Int32):
    """Of a warp's keys (`chunks` a lane), the `wanted`-th largest; and how many equal to it are chosen, the first ones.

    1 if no more than `wanted` exist.
    """
    lowest, highest = Uint32(TOP), Uint32(0)
    for i in cutlass.range_constexpr(chunks):
        lowest, highest = see(keys[i], lowest, highest)
    exist, forced = counts_from(keys, chunks, (Uint32(1), Uint32(HIGHEST_SCORE + 1)))
    low, high = bounds(exist, forced, lowest, highest, wanted)
    while low < high:
        parts = between(low, high)
        low, high = narrow(low, high, parts, counts_from(keys, chunks, parts), wanted)
    (above,) = counts_from(keys, chunks, (low + Uint32(1),))
    return low, wanted - above


@cute.jit
def larger(others: Int32, key: Uint32) -> Int32:
    """How many of 32 keys at a shared address, a multiple of 16, are larger than a lane's key."""
    count, least = Int32(0), key + Uint32(1)
    for four in cutlass.range_constexpr(8):
        for other in atoms.lds_u32x4(others, 16 * four):
            count = atoms.add_if_at_least(count, Int32(1), other, least)
    return count


@cute.jit
def least_of_best(others: Int32, key: Uint32, wanted: Int32) -> Uint32:
    """The `wanted`-th largest of 32 keys at a shared address, of which each lane has one. wanted <= 32."""
    return cute.arch.warp_redux_sync(key if larger(others, key) < wanted else Uint32(TOP), "umin")


def counts_from(keys, chunks: int, least):
    """How many of a warp's keys are >= each of `least`."""
    words = -(-len(least) // (1 if 32 * chunks >= 1 << FIELD else 3))  # counts of all keys that fit in a word
    each = -(-len(least) // words)
    sums = [Int32(0) for _ in range(words)]
    for i in range(chunks):
        for j in range(len(least)):
            one = Int32(1 << (FIELD * (j % each)))
            sums[j // each] = atoms.add_if_at_least(sums[j // each], one, keys[i], least[j])
    sums = [warp_sum(value) for value in sums]
    if each == 1:
        return tuple(sums)
    mask = (1 << FIELD) - 1
    return tuple((sums[j // each] >> (FIELD * (j % each))) & mask for j in range(len(least)))


@cute.jit
def ranks(key: Uint32, low: Uint32, ties: Int32, lane: Int32):
    """Of 32 keys, one a lane: the lane's place among the chosen, or -1; how many are chosen; how many equal `low`."""
    before = lanes_below(lane)
    equal = cute.arch.vote_ballot_sync(key == low)
    tied = key == low and cute.arch.popc(equal & before) < ties
    chosen = cute.arch.vote_ballot_sync(key > low or tied)
    place = cute.arch.popc(chosen & before) if key > low or tied else Int32(-1)
    return place, cute.arch.popc(chosen), cute.arch.popc(equal)
