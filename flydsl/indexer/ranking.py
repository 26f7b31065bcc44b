"""The order in which blocks are chosen, as 32-bit keys, and the choice of the K largest of many keys by one wave.

A larger key is chosen first; among equal keys the lower block id. 0: there is no such block. Scores keep the order
of fp32; the patterns above +inf's, which only NaN would use, say that a block is forced: init blocks above local
ones. Whoever lists keys lists them in ascending order of their blocks, so ids never have to be compared or sorted.
"""

from __future__ import annotations

from msa_ops.flydsl.common import lanes
from msa_ops.flydsl.common.control import either, repeat
from msa_ops.flydsl.common.intrinsics import as_bits

from msa_ops.build.flydsl_adapter import fx

MAX_TOPK = 64
LOWEST = 0x007FFFFF
"""Key of -inf."""

TOP = 0xFFFFFFFE
"""The highest key."""


def key_of_score(score):
    """-0 equals +0. The score is no NaN."""
    bits = as_bits(score + fx.Float32(0.0))
    negative = fx.Uint32(fx.Int32(bits) >> fx.Int32(31))
    return bits ^ (negative | fx.Uint32(0x80000000))


def key_of_block(key, block, num_blocks, init_blocks, local_blocks):
    """The key of a block < num_blocks with a score's key.

    num_blocks: how many the token sees. Of more than 64 forced blocks of a kind the later ones are never chosen, so
    they may share a key.
    """
    newer = num_blocks - fx.Int32(1) - block
    most = fx.Int32(MAX_TOPK)
    local = fx.Uint32(TOP - MAX_TOPK) - fx.Uint32((newer < most).select(newer, most))
    key = (newer < local_blocks).select(local, key)
    init = fx.Uint32(TOP) - fx.Uint32((block < most - fx.Int32(1)).select(block, most - fx.Int32(1)))
    return (block < init_blocks).select(init, key)


def count_from(keys, least):
    """How many of the wave's keys (a list a lane) are >= least."""
    total = fx.Int32(0)
    for key in keys:
        total = total + lanes.count(lanes.vote(key >= least))
    return total


def threshold(keys, wanted, least=None):
    """The `wanted`-th largest of a wave's keys; how many equal to it are chosen, the first ones; how many in all.

    1 and all of them if no more than `wanted` keys exist. Bit by bit from the top, until as many as wanted are left.
    least: a key that as many as wanted are known to reach, or None.
    """

    def undecided(state):
        _, bit, found = state
        return (bit > fx.Uint32(0)) & (found != wanted)

    def next_bit(state):
        low, bit, found = state
        candidate = low | bit
        if least is None:
            count = count_from(keys, candidate)
        else:
            count = either(candidate <= least, lambda: wanted + fx.Int32(1), lambda: count_from(keys, candidate))
        enough = count >= wanted
        return [enough.select(candidate, low), bit >> fx.Uint32(1), enough.select(count, found)]

    exist = count_from(keys, fx.Uint32(1))
    few = exist <= wanted
    start = [few.select(fx.Uint32(1), fx.Uint32(0)), few.select(fx.Uint32(0), fx.Uint32(0x80000000)), exist]
    low, _, _ = repeat(undecided, start, next_bit)
    return low, wanted - count_from(keys, low + fx.Uint32(1)), few.select(exist, wanted)


def place(key, low, ties, written):
    """The lane's place among the chosen, or -1; ties that are left, and how many are chosen with these keys."""
    equal = lanes.vote(key == low)
    tied = (key == low) & (lanes.below(equal) < ties)
    taken = (key > low) | tied
    chosen = lanes.vote(taken)
    found = taken.select(written + lanes.below(chosen), fx.Int32(-1))
    return found, ties - lanes.count(equal), written + lanes.count(chosen)
