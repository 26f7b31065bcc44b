"""Running softmax of a warp's 16 rows, whose scores lie in registers as sums of a warpgroup's product."""

from collections.abc import Sequence

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Uint32
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import warpgroup_mma as mma
from msa_ops.cute.common.asm import select
from msa_ops.cute.common.warpgroup_mma import SUMS

INFINITY = float("inf")
CHAINS = 2
"""Of maxima of a row."""
HEADROOM = 8.0
"""Weights may grow to 2^8 before the running maximum follows; so it seldom has to."""


@cute.jit
def hide(scores: cute.Tensor, lane: Int32, visible: Int32):
    """Scores of tokens from `visible` on become minus infinity."""
    # As a loop, whose second turn does nothing: a branch would become instructions that all pages execute.
    for turn in cutlass.range(select(visible < 128, Int32(2), Int32(0)), unroll=1):
        limit = visible + turn * 128 - lane % 4 * 2
        for i in cutlass.range_constexpr(SUMS):
            scores[i] = select(Int32(8 * (i // 4) + i % 2) < limit, scores[i], Float32(-INFINITY))


@cute.jit
def weigh(
    config: cutlass.Constexpr,
    scores: cute.Tensor,
    factors: list,
    top: cute.Tensor,
    weight: cute.Tensor,
    shrink: cute.Tensor,
    words: cute.Tensor,
):
    """Turns scores into weights, `words` for a product; brings running maximum and total weight up to date.

    shrink: by what sums that are relative to the old maximum are to be multiplied, see `follow`. NaN among the scores
    is ignored in the maximum and comes back through the weights.
    """
    most = _largest(scores)
    most = [most[i] * factors[i] for i in range(2)]
    grown = [Boolean(most[i] > top[i] + Float32(HEADROOM)) for i in range(2)]
    if cute.arch.vote_any_sync(grown[0] | grown[1]):
        for i in cutlass.range_constexpr(2):
            of_row = most[i]
            for offset in cutlass.range_constexpr(1, 3):
                of_row = half.max_f32(of_row, cute.arch.shuffle_sync_bfly(of_row, offset=offset))
            # Rows decide for themselves, so that none depends on its neighbours.
            new = select(of_row > top[i] + Float32(HEADROOM), of_row, top[i])
            less = select(top[i] == new, Float32(1.0), half.exp2(top[i] - new))
            shrink[i] = select(top[i] == Float32(-INFINITY), Float32(0.0), less)
            top[i] = new
            weight[i] = weight[i] * shrink[i]
    _to_words(config, scores, factors, top, weight, words)


@cute.jit
def follow(shrink: cute.Tensor, sums: cute.Tensor):
    """Makes sums relative to the maximum that `weigh` left, which moves seldom; shrink becomes 1 again."""
    if cute.arch.vote_any_sync(Boolean(shrink[0] != Float32(1.0)) | Boolean(shrink[1] != Float32(1.0))):
        for i in cutlass.range_constexpr(2):
            for j in cutlass.range_constexpr(SUMS // 4):
                sums[4 * j + 2 * i] = sums[4 * j + 2 * i] * shrink[i]
                sums[4 * j + 2 * i + 1] = sums[4 * j + 2 * i + 1] * shrink[i]
            shrink[i] = Float32(1.0)


@cute.jit
def weigh_once(
    config: cutlass.Constexpr,
    scores: cute.Tensor,
    factors: list,
    top: cute.Tensor,
    weight: cute.Tensor,
    words: cute.Tensor,
):
    """The same for rows whose scores are all here: maximum and total weight are new."""
    most = _largest(scores)
    for i in cutlass.range_constexpr(2):
        for offset in cutlass.range_constexpr(1, 3):
            most[i] = half.max_f32(most[i], cute.arch.shuffle_sync_bfly(most[i], offset=offset))
        top[i] = most[i] * factors[i]
        weight[i] = Float32(0.0)
    _to_words(config, scores, factors, top, weight, words)


def _largest(scores: cute.Tensor) -> list:
    """Of a lane's part of each of its two rows, in several chains, as a maximum takes as long as several can start."""
    chains = [scores[i] for i in range(2 * 2 * CHAINS)]
    for i in range(len(chains), SUMS):
        place = i % len(chains)
        chains[place] = half.max_f32(chains[place], scores[i])
    of_rows = []
    for row in range(2):
        mine = [value for i, value in enumerate(chains) if i // 2 % 2 == row]
        while len(mine) > 1:
            mine = [half.max_f32(*mine[i : i + 2]) for i in range(0, len(mine), 2)]
        of_rows += mine
    return of_rows


def _to_words(config, scores, factors, top, weight, words) -> None:
    """Weights relative to 2^top as words, and added up."""
    shift = [select(top[i] == Float32(-INFINITY), Float32(0.0), -top[i]) for i in range(2)]
    totals = [None] * 4
    for j in range(SUMS // 2):
        i = j % 2
        low = half.exp2(half.fma_f32(scores[2 * j], factors[i], shift[i]))
        high = half.exp2(half.fma_f32(scores[2 * j + 1], factors[i], shift[i]))
        for k, value in ((i, low), (i + 2, high)):
            totals[k] = value if totals[k] is None else totals[k] + value
        words[j] = half.pack_bf16x2(low, high) if config.mma == "bf16" else half.pack_f16x2(low, high)
    for i in range(2):
        weight[i] = weight[i] + (totals[i] + totals[i + 2])


def finish(sums: Sequence[Float32], words: Sequence[Uint32], next_words: cute.Tensor) -> tuple:
    """Waits for a product of weights, `words`, when the next ones are there: these are computed while it runs."""
    known = [*words, *[next_words[i] for i in range(SUMS // 2)]]
    return mma.finish([*sums, *[half.float_of_bits(Int32(word)) for word in known]])[: len(sums)]
