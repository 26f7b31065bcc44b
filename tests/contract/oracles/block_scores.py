"""Block scores of a ragged batch by brute force in numpy fp64, with the error that fp32 sums may have.

Nothing of the library's formats, pages or ops is used; a page is taken apart by its published byte layout.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

BLOCK = 128
ROW_BYTES = {"fp32": 512, "bf16": 256, "fp8": 128, "nvfp4": 64}

ULPS = 2.0**-17
"""128 roundings of 2^-24: the relative error of a sum of 128 products in fp32, in any order, against sum |q k|."""


def keys_of_page(data: np.ndarray, index_format: str, rounding: str) -> np.ndarray:
    """fp64 [128, 128] (token, dim) of the bytes of one index page."""
    rows = data[: BLOCK * ROW_BYTES[index_format]].reshape(BLOCK, -1)
    if index_format == "fp32":
        return rows.view(np.float32).astype(np.float64)
    if index_format == "bf16":
        return rows.view(ml_dtypes.bfloat16).astype(np.float64)
    if index_format == "fp8":
        return rows.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    codes = np.stack((rows & 15, rows >> 4), axis=-1).reshape(BLOCK, 128)
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    scales = data[BLOCK * 64 : BLOCK * 72].reshape(BLOCK, 8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    values = values * np.repeat(scales, 16, axis=1)
    if rounding == "e4m3":
        values = np.clip(values, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return values


def starts(args: Any) -> list[int]:
    if args.cu_seqlens_q is not None:
        return args.cu_seqlens_q.tolist()
    batch = len(args.seq_lens)
    return [len(args.index_q) // batch * b for b in range(batch + 1)]


def positions(args: Any) -> list[tuple[int, int]]:
    """(request, position) of every query token, request by request; (-1, -1) for padding and what sees nothing."""
    found = [(-1, -1)] * len(args.index_q)
    begin = starts(args)
    for request, seq_len in enumerate(args.seq_lens.tolist()):
        q_len = begin[request + 1] - begin[request]
        for i in range(q_len):
            position = seq_len - q_len + i
            found[begin[request] + i] = (request, position) if position >= 0 else (-1, -1)
    return found


def counts(args: Any) -> list[int]:
    """Number of blocks that each query token may choose from."""
    return [min(position // BLOCK + 1, args.block_table.shape[1]) for _, position in positions(args)]


def block_scores(args: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores fp64 [T, H, max_blocks] and the error that each may have; without score_scale and index_k_scale."""
    query = args.index_q.float().numpy().astype(np.float64)
    cache, table = args.index_cache.numpy(), args.block_table.numpy()
    tokens, heads, width = len(query), query.shape[1], table.shape[1]
    scores = np.full((tokens, heads, width), -np.inf)
    error = np.zeros((tokens, heads, width))
    pages: dict[int, np.ndarray] = {}
    with np.errstate(invalid="ignore", over="ignore"):
        for t, (request, position) in enumerate(positions(args)):
            for block in range(min(position // BLOCK + 1, width)):
                page = int(table[request, block])
                if not 0 <= page < len(cache):
                    continue
                if page not in pages:
                    pages[page] = keys_of_page(cache[page], args.index_format, args.rounding)
                keys = pages[page][: position - block * BLOCK + 1]
                dots = query[t] @ keys.T
                reach = np.abs(query[t]) @ np.abs(keys).T
                usable = ~np.isnan(dots)
                scores[t, :, block] = np.where(usable, dots, -np.inf).max(-1)
                error[t, :, block] = np.where(usable & np.isfinite(reach), reach, 0).max(-1) * ULPS
    return scores, error


def assert_scores(result: torch.Tensor, scores: np.ndarray, error: np.ndarray, scale: float = 1.0) -> None:
    """The result is within the error, after `scale`; infinities agree and nothing is NaN."""
    found = result.numpy().astype(np.float64)
    expected = scores * scale
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite])
    away = np.abs(found[~infinite] - expected[~infinite])
    bound = error[~infinite] * scale + np.abs(expected[~infinite]) * 2.0**-22
    assert (away <= bound).all(), f"off by up to {np.max(away / np.maximum(bound, 1e-30)):.2f} times the bound"
