"""Attention over a paged cache by brute force in numpy: bytes are decoded with ml_dtypes, sums run in float64.

Nothing here imports msa_ops. Every offset is spelled out from the description of the formats:
  planes   K of all heads | K scales of all heads | V of all heads | V scales of all heads
  slots    for each head K | K scales | V | V scales
  packed   for each head and token K row | V row
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BLOCK = 128
DIM = 128
ROW_BYTES = {"fp32": 512, "bf16": 256, "fp8": 128, "nvfp4": 64}
SCALES = 8  # scale bytes of one head and token in nvfp4


def scale_offset(layout: str, token: int, group: int) -> int:
    """Where the scale of 16 dims of a token stands among the 1,024 of one page and head."""
    if layout == "linear":
        return token * 8 + group
    if layout == "token_quads":
        quad, within = divmod(token, 4)
        return quad * 32 + group * 4 + within
    assert layout == "swizzle_128x4"
    tile, column = divmod(group, 4)
    return tile * 512 + (token % 32) * 16 + (token // 32) * 4 + column


def row_offset(member: str, head: int, token: int, fmt: str, layout: str, heads: int) -> int:
    """Byte of the page at which the elements of a token's K or V row begin."""
    row = ROW_BYTES[fmt]
    plane = BLOCK * row
    scales = BLOCK * SCALES if fmt == "nvfp4" else 0
    is_v = member == "v"
    if layout == "planes":
        return is_v * heads * (plane + scales) + head * plane + token * row
    if layout == "slots":
        return (2 * head + is_v) * (plane + scales) + token * row
    assert layout == "packed"
    return (head * BLOCK + token) * 2 * row + is_v * row


def scales_offset(member: str, head: int, layout: str, heads: int) -> int:
    """Byte of the page at which the 1,024 K or V scales of a head begin (nvfp4)."""
    plane, scales = BLOCK * 64, BLOCK * SCALES
    is_v = member == "v"
    if layout == "planes":
        return is_v * heads * (plane + scales) + heads * plane + head * scales
    return (2 * head + is_v) * (plane + scales) + plane


@dataclass
class Cache:
    """`pages`: uint8 [num_pages, page bytes]. `rounding`: "exact", or "e4m3" for nvfp4 values rounded to E4M3."""

    pages: np.ndarray
    heads: int
    fmt: str
    layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    k_scale: float = 1.0
    v_scale: float = 1.0
    rounding: str = "exact"

    def row(self, member: str, page: int, head: int, token: int) -> np.ndarray:
        """float64 [128]: K or V of one token and head, multiplied by its global scale."""
        data = self.pages[page]
        start = row_offset(member, head, token, self.fmt, self.layout, self.heads)
        raw = np.ascontiguousarray(data[start : start + ROW_BYTES[self.fmt]])
        if self.fmt == "nvfp4":
            codes = np.stack((raw & 15, raw >> 4), axis=-1).reshape(DIM)
            values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
            layout = self.k_scale_layout if member == "k" else self.v_scale_layout
            first = scales_offset(member, head, self.layout, self.heads)
            at = [first + scale_offset(layout, token, group) for group in range(8)]
            values *= data[at].view(ml_dtypes.float8_e4m3fn).astype(np.float64).repeat(16)
            if self.rounding == "e4m3":
                values = np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        else:
            kind = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp8": ml_dtypes.float8_e4m3fn}[self.fmt]
            values = raw.view(kind).astype(np.float64)
        return values * (self.k_scale if member == "k" else self.v_scale)


def softmax_rows(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, softmax_scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """q [g, 128], keys and values [n, 128] -> out [g, 128] and the natural log of the sum of exponentials [g]."""
    if len(keys) == 0:
        return np.zeros_like(q), np.full(len(q), -np.inf)
    scores = q @ keys.T * softmax_scale
    top = scores.max(1, keepdims=True)
    weight = np.exp(scores - top)
    total = weight.sum(1, keepdims=True)
    return weight @ values / total, (np.log(total) + top)[:, 0]


def attention(
    q: np.ndarray,
    cache: Cache,
    block_table: np.ndarray,
    seq_lens: Iterable[int],
    cu_seqlens_q: Iterable[int] | None,
    block_ids: np.ndarray | None = None,
    softmax_scale: float = DIM**-0.5,
) -> tuple[np.ndarray, np.ndarray]:
    """float64 out [T, Hq, 128] and lse [T, Hq]. `block_ids`: [T, Hkv, K], or None for all blocks."""
    tokens, query_heads, _ = q.shape
    lengths = [int(n) for n in seq_lens]
    if cu_seqlens_q is None:
        each = tokens // len(lengths)
        starts = [each * b for b in range(len(lengths) + 1)]
    else:
        starts = [int(n) for n in cu_seqlens_q]
    group = query_heads // cache.heads
    out = np.zeros(q.shape, np.float64)
    lse = np.full((tokens, query_heads), -np.inf)
    memory: dict[tuple[str, int, int, int], np.ndarray] = {}

    def row(*where: Any) -> np.ndarray:
        if where not in memory:
            memory[where] = cache.row(*where)
        return memory[where]

    for b, length in enumerate(lengths):
        for t in range(starts[b], starts[b + 1]):
            position = length - (starts[b + 1] - t)
            for head in range(cache.heads):
                wanted = range(block_table.shape[1]) if block_ids is None else {int(i) for i in block_ids[t, head]}
                seen = []
                for block in sorted(wanted):
                    if block < 0 or block > position // BLOCK or block >= block_table.shape[1] or position < 0:
                        continue
                    page = int(block_table[b, block])
                    if not 0 <= page < len(cache.pages):
                        continue
                    seen += [(page, token) for token in range(BLOCK) if block * BLOCK + token <= position]
                keys = np.array([row("k", page, head, token) for page, token in seen]).reshape(-1, DIM)
                values = np.array([row("v", page, head, token) for page, token in seen]).reshape(-1, DIM)
                rows = slice(head * group, (head + 1) * group)
                out[t, rows], lse[t, rows] = softmax_rows(q[t, rows].astype(np.float64), keys, values, softmax_scale)
    return out, lse
