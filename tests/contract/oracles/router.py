"""Routing by hand: numpy in fp64, one Python sort a row."""

from __future__ import annotations

import numpy as np


def scores(logits: np.ndarray, scoring: str) -> np.ndarray:
    """fp32 [T, E] of logits [T, E]."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = logits.astype(np.float64)
        if scoring == "sigmoid":
            return (1.0 / (1.0 + np.exp(-x))).astype(np.float32)
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


def choice(logits: np.ndarray, bias: np.ndarray | None, scoring: str) -> np.ndarray:
    """What experts are ranked by, fp32 [T, E]."""
    found = scores(logits, scoring)
    return found if bias is None else found + bias.astype(np.float32)


def choose(values: np.ndarray, top_k: int) -> np.ndarray:
    """Ids [T, k] of the largest values of each row, equal ones by id, NaN last."""

    def ranked(row: np.ndarray) -> list[int]:
        return sorted(range(len(row)), key=lambda e: (bool(np.isnan(row[e])), 0.0 if np.isnan(row[e]) else -row[e], e))

    return np.array([ranked(row)[:top_k] for row in values], dtype=np.int64).reshape(len(values), top_k)


def weights(found: np.ndarray, ids: np.ndarray, renormalize: bool, scaling: float) -> np.ndarray:
    """fp64 [T, k] of scores [T, E] and ids [T, k]."""
    result = np.zeros(ids.shape)
    for token, row in enumerate(ids):
        chosen = [float(found[token, expert]) for expert in row]
        total = sum(chosen)
        divide = renormalize and 0 < total < np.inf
        result[token] = [scaling * (value / total if divide else value) for value in chosen]
    return result
