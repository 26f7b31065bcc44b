"""Orders in which the scale bytes of a page or a matrix are stored, with exact converters.

linear: row by row. token_quads: within four consecutive tokens group-major, as V scales come for SM10x attention:
byte (token // 4) * 4 * groups + group * 4 + token % 4. swizzle_128x4: tiles of 128 rows by 4 columns of 512 bytes,
as block-scaled matrix instructions read them: within a tile, byte (row % 32) * 16 + (row // 32) * 4 + column.
"""

from __future__ import annotations

import functools
from enum import StrEnum

import torch
from torch import Tensor


class ScaleLayout(StrEnum):
    LINEAR = "linear"
    TOKEN_QUADS = "token_quads"
    SWIZZLE_128X4 = "swizzle_128x4"


def padded_shape(layout: ScaleLayout, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of the buffer that holds rows x columns scales; only the swizzle pads."""
    if layout == ScaleLayout.SWIZZLE_128X4:
        return -(-rows // 128) * 128, -(-columns // 4) * 4
    return rows, columns


@functools.cache
def offsets(layout: ScaleLayout, rows: int, columns: int) -> Tensor:
    """Byte offset of the scale of (row, column), int64 [rows, columns]."""
    row = torch.arange(rows).unsqueeze(1)
    column = torch.arange(columns).unsqueeze(0)
    if layout == ScaleLayout.LINEAR:
        return row * columns + column
    if layout == ScaleLayout.TOKEN_QUADS:
        if rows % 4:
            raise ValueError(f"scale_layout: token_quads needs a multiple of 4 tokens; got {rows}")
        return row // 4 * 4 * columns + column * 4 + row % 4
    tiles = padded_shape(layout, rows, columns)[1] // 4
    tile = row // 128 * tiles + column // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4


def from_linear(scales: Tensor, layout: ScaleLayout) -> Tensor:
    """[..., rows, columns] in linear order -> flat bytes [..., n] in `layout`; padding is 0."""
    rows, columns = scales.shape[-2:]
    size = torch.Size(padded_shape(layout, rows, columns)).numel()
    result = scales.new_zeros((*scales.shape[:-2], size))
    result[..., offsets(layout, rows, columns).to(scales.device)] = scales
    return result


def to_linear(data: Tensor, layout: ScaleLayout, rows: int, columns: int) -> Tensor:
    """Flat bytes [..., n] in `layout` -> [..., rows, columns] in linear order."""
    size = torch.Size(padded_shape(layout, rows, columns)).numel()
    if data.shape[-1] != size:
        raise ValueError(f"scales: {data.shape[-1]} bytes; accepted: {size} for {rows} x {columns} in {layout}")
    return data[..., offsets(layout, rows, columns).to(data.device)]
