"""The choice of blocks in plain Python, and the judgement of a choice whose scores carry rounding errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch


def forced(n: int, topk: int, init_blocks: int, local_blocks: int) -> list[int]:
    """Forced blocks of a row in the order in which they are taken, at most topk."""
    order = list(range(min(init_blocks, n)))
    order += [b for b in range(n - 1, max(n - 1 - local_blocks, -1), -1) if b not in order]
    return order[:topk]


def choose(scores: Sequence[float], n: int, topk: int, init_blocks: int, local_blocks: int) -> list[int]:
    """The ids of one row: forced, then score descending (NaN last, -0 equals +0), id ascending; padded with -1."""
    n = min(max(n, 0), len(scores))
    chosen = forced(n, topk, init_blocks, local_blocks)
    others = [b for b in range(n) if b not in chosen]

    def rank(block: int) -> tuple[bool, float, int]:
        score = scores[block]
        return (True, 0.0, block) if math.isnan(score) else (False, -score, block)

    chosen = sorted((chosen + sorted(others, key=rank))[: min(topk, n)])
    return chosen + [-1] * (topk - len(chosen))


def choose_all(
    scores: np.ndarray, counts: Sequence[int], topk: int, init_blocks: int = 0, local_blocks: int = 1
) -> torch.Tensor:
    """int32 [T, H, topk] of scores [T, H, NB] and a count for each token."""
    rows = [
        [choose(row, n, topk, init_blocks, local_blocks) for row in token]
        for token, n in zip(scores.tolist(), counts, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.int32).view(scores.shape[0], scores.shape[1], topk)


def assert_valid(
    ids: torch.Tensor,
    scores: np.ndarray,
    error: np.ndarray,
    counts: Sequence[int],
    topk: int,
    init_blocks: int = 0,
    local_blocks: int = 1,
) -> None:
    """The margin rule: ids [T, H, topk] are a right choice for some scores within `error` of `scores`.

    In each row: min(topk, n) ids, strictly ascending, in [0, n), then -1; the forced blocks are among them; and no
    block that was left out is better than a chosen one by more than the two errors together. Scores of -inf and inf
    have no error, so a block with a finite score always goes before one without.
    """
    with np.errstate(invalid="ignore"):
        low = np.where(np.isinf(scores), scores, scores - error)
        high = np.where(np.isinf(scores), scores, scores + error)
    for t, n in enumerate(counts):
        must = set(forced(n, topk, init_blocks, local_blocks))
        kept = min(topk, n)
        for h in range(scores.shape[1]):
            row, where = ids[t, h].tolist(), f"token {t} head {h}, {n} blocks"
            chosen = row[:kept]
            assert row[kept:] == [-1] * (topk - kept), f"{where}: {row} does not end in -1 from {kept} on"
            assert all(a < b for a, b in itertools.pairwise(chosen)), f"{where}: {row} is not ascending"
            assert all(0 <= block < n for block in chosen), f"{where}: {row} has ids outside"
            assert must <= set(chosen), f"{where}: {row} lacks forced blocks {must - set(chosen)}"
            free = sorted(set(chosen) - must)
            left = sorted(set(range(n)) - set(chosen))
            if free and left:
                worst, best = high[t, h, free].min(), low[t, h, left].max()
                assert worst >= best, f"{where}: {row} has a block below {worst} and leaves one above {best}"
