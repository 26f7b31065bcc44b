"""Orders in which the scale bytes of a page or a matrix are stored, with exact converters.

linear: row by row. token_quads: within four consecutive tokens group-major, as V scales come for SM10x attention:
byte (token // 4) * 4 * groups + group * 4 + token % 4. swizzle_128x4: tiles of 128 rows by 4 columns of 512 bytes,
as block-scaled matrix instructions read them: within a tile, byte (row % 32) * 16 + (row // 32) * 4 + column; tiles
come row by row (cuBLAS manual, "1D block scaling factors layout").
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor


class ScaleLayout(StrEnum):
    LINEAR = "linear"
    TOKEN_QUADS = "token_quads"
    SWIZZLE_128X4 = "swizzle_128x4"

    @classmethod
    def _missing_(cls, value: object) -> ScaleLayout:
        raise ValueError(f"scale_layout: {value!r}; accepted: {', '.join(cls)}")


def padded_shape(layout: ScaleLayout, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of the buffer that holds rows x columns scales; only the swizzle pads.

    The one size function: fakes, checks, allocations and converters all use it. Raises ValueError for rows that the
    layout cannot hold.
    """
    layout = ScaleLayout(layout)
    if layout is ScaleLayout.SWIZZLE_128X4:
        return (rows + 127) // 128 * 128, (columns + 3) // 4 * 4
    if layout is ScaleLayout.TOKEN_QUADS and rows % 4:
        raise ValueError(f"scale_layout: token_quads with {rows} rows; accepted: a multiple of 4")
    return rows, columns


def offsets(layout: ScaleLayout, rows: int, columns: int) -> Tensor:
    """Byte offset of the scale of (row, column), int64 [rows, columns] on the CPU."""
    layout = ScaleLayout(layout)
    padded_columns = padded_shape(layout, rows, columns)[1]
    row = torch.arange(rows).unsqueeze(1)
    column = torch.arange(columns).unsqueeze(0)
    if layout is ScaleLayout.LINEAR:
        return row * columns + column
    if layout is ScaleLayout.TOKEN_QUADS:
        return row // 4 * 4 * columns + column * 4 + row % 4
    tile = row // 128 * (padded_columns // 4) + column // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4


def from_linear(scales: Tensor, layout: ScaleLayout) -> Tensor:
    """[..., rows, columns] in linear order -> flat bytes [..., n] in `layout`; padding is 0.

    Takes and gives any one-byte dtype. Each leading index is a matrix of its own.
    """
    rows, columns = scales.shape[-2:]
    data = scales.view(torch.uint8)
    padded_rows, padded_columns = padded_shape(layout, rows, columns)
    result = data.new_zeros((*data.shape[:-2], padded_rows * padded_columns))
    result[..., offsets(layout, rows, columns).to(data.device)] = data
    return result.view(scales.dtype)


def to_linear(data: Tensor, layout: ScaleLayout, rows: int, columns: int) -> Tensor:
    """Flat bytes [..., n] in `layout` -> [..., rows, columns] in linear order.

    Takes and gives any one-byte dtype. Raises ValueError unless n is what `padded_shape` gives.
    """
    padded_rows, padded_columns = padded_shape(layout, rows, columns)
    size = padded_rows * padded_columns
    if data.shape[-1] != size:
        raise ValueError(f"scales: {data.shape[-1]} bytes; accepted: {size} for {rows} x {columns} in {layout}")
    order = offsets(layout, rows, columns).to(data.device)
    return data.view(torch.uint8)[..., order].view(data.dtype)
