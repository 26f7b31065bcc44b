"""Cache pages in numpy and ml_dtypes: byte addresses spelled out token by token, formats by casts of ml_dtypes.

Nothing here uses the package. `page` is a uint8 array of one page.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

TOKENS, DIM, GROUP = 128, 128, 16
ROW = {"fp32": 512, "bf16": 256, "fp8": 128, "nvfp4": 64}
TYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp8": ml_dtypes.float8_e4m3fn}


def page_bytes(fmt: str, heads: int) -> int:
    return 2 * heads * TOKENS * (ROW[fmt] + (8 if fmt == "nvfp4" else 0))


def row_address(fmt: str, layout: str, heads: int, side: str, head: int, token: int) -> int:
    """First byte of the 128 elements of (side "k" or "v", head, token)."""
    row = ROW[fmt]
    codes, scales = TOKENS * row, (1024 if fmt == "nvfp4" else 0)
    is_v = side == "v"
    if layout == "packed":  # [heads, 128 tokens, K and V side by side]
        return (head * TOKENS + token) * 2 * row + is_v * row
    if layout == "slots":  # slot 2h is K of head h, slot 2h + 1 its V; a slot is codes, then scales
        return (2 * head + is_v) * (codes + scales) + token * row
    return is_v * heads * (codes + scales) + head * codes + token * row


def scale_base(layout: str, heads: int, side: str, head: int) -> int:
    """First of the 1,024 scale bytes of (side, head) in an NVFP4 page."""
    is_v = side == "v"
    if layout == "slots":
        return (2 * head + is_v) * 9216 + 8192
    return is_v * heads * 9216 + heads * 8192 + head * 1024


def scale_offset(order: str, token: int, group: int) -> int:
    """Where in those 1,024 bytes the scale of (token, group) stands."""
    if order == "linear":
        return token * 8 + group
    if order == "token_quads":  # a 128 x 8 array indexed by (row, column)
        row, column = token // 4 * 4 + group // 2, group % 2 * 4 + token % 4
        return row * 8 + column
    tile, row = group // 4, token  # swizzle: two tiles of 128 x 4, each 32 rows of 16 bytes
    return tile * 512 + row % 32 * 16 + row // 32 * 4 + group % 4


def read(
    page: np.ndarray, fmt: str, layout: str, heads: int, side: str, order: str = "linear", rounding: str = "exact"
) -> np.ndarray:
    """float32 [heads, 128, 128]."""
    out = np.empty((heads, TOKENS, DIM), np.float32)
    for head in range(heads):
        for token in range(TOKENS):
            start = row_address(fmt, layout, heads, side, head, token)
            data = page[start : start + ROW[fmt]]
            if fmt != "nvfp4":
                out[head, token] = data.copy().view(TYPES[fmt]).astype(np.float32)
                continue
            nibbles = np.stack([data & 15, data >> 4], -1).reshape(-1)
            values = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
            base = scale_base(layout, heads, side, head)
            where = [base + scale_offset(order, token, group) for group in range(8)]
            values *= np.repeat(page[where].view(ml_dtypes.float8_e4m3fn).astype(np.float32), GROUP)
            if rounding == "e4m3":
                values = _e4m3(values).astype(np.float32)
            out[head, token] = values
    return out


def write(
    page: np.ndarray,
    fmt: str,
    layout: str,
    heads: int,
    side: str,
    token: int,
    values: np.ndarray,
    order: str = "linear",
) -> None:
    """Stores values float32 [heads, 128] of one token."""
    for head in range(heads):
        start = row_address(fmt, layout, heads, side, head, token)
        if fmt != "nvfp4":
            stored = _e4m3(values[head]) if fmt == "fp8" else values[head].astype(TYPES[fmt])
            page[start : start + ROW[fmt]] = stored.view(np.uint8)
            continue
        base = scale_base(layout, heads, side, head)
        for group in range(8):
            part = values[head, group * GROUP : (group + 1) * GROUP]
            wanted = np.clip(np.abs(part).max() / np.float32(6), np.float32(1 / 512), np.float32(448))
            scale = np.float32(wanted).astype(ml_dtypes.float8_e4m3fn)
            page[base + scale_offset(order, token, group)] = scale.view(np.uint8)
            scaled = np.clip(part / scale.astype(np.float32), -6, 6)
            codes = scaled.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
            codes[codes == 8] = 0
            at = start + group * 8
            page[at : at + 8] = codes[0::2] | codes[1::2] << 4


def _e4m3(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn)
