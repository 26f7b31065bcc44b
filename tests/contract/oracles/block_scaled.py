"""NVFP4, MXFP8 and MXFP4 in numpy and ml_dtypes, written from the documents and without the library's code.

Decisions are taken by distances to the neighbouring values, exponents by `frexp` in fp64; the library compares
with midpoints and looks at bits.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

E2M1 = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
E4M3 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
E8M0 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)

# Largest value, its exponent, bits of mantissa.
ELEMENTS = {"mxfp8": (448.0, 8, 3), "mxfp4": (6.0, 2, 1)}


def nearest(values: NDArray, grid: NDArray) -> NDArray:
    """Index of the grid value (magnitudes from 0 up) nearest to each non-negative value, ties to the even one."""
    values = np.minimum(values.astype(np.float64), grid[-1])
    high = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    down, up = values - grid[high - 1], grid[high] - values
    return np.where((down < up) | ((down == up) & (high % 2 == 1)), high - 1, high)


def e2m1_codes(values: NDArray) -> NDArray:
    """Codes 0 to 15, never 8; NaN gives 0."""
    magnitude = nearest(np.nan_to_num(np.abs(values), nan=0.0, posinf=6.0), E2M1[:8])
    return np.where((values < 0) & (magnitude > 0), magnitude + 8, magnitude).astype(np.uint8)


def e4m3_bytes(values: NDArray) -> NDArray:
    """Nearest even, saturating, NaN gives 0x7F, the sign of zero stays."""
    magnitude = nearest(np.nan_to_num(np.abs(values), nan=0.0, posinf=448.0), E4M3[:127])
    return np.where(np.isnan(values), 127, magnitude + 128 * np.signbit(values)).astype(np.uint8)


def pack(codes: NDArray) -> NDArray:
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack(data: NDArray) -> NDArray:
    codes = np.empty((*data.shape[:-1], data.shape[-1] * 2), np.uint8)
    codes[..., 0::2], codes[..., 1::2] = data % 16, data // 16
    return codes


def nvfp4_quantize(
    x: NDArray, global_scale: float | None = None, scale_floor: float = 2.0**-9, division: str = "divide"
) -> tuple[NDArray, NDArray]:
    """Packed codes and linear scale bytes of fp32 x [..., n]; every step is rounded to fp32."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // 16, 16)
    with np.errstate(all="ignore"):
        g = np.float32(1.0 if global_scale is None else global_scale)
        amax = np.where(np.isnan(groups), np.float32(0), np.abs(groups)).max(-1)
        wanted = np.float32(1) * amax / np.float32(6) / g
        scales = e4m3_bytes(np.clip(wanted, np.float32(scale_floor), np.float32(448)))
        step = (E4M3[scales].astype(np.float32) * g)[..., None]
        values = groups / step if division == "divide" else groups * (np.float32(1) / step)
        values = np.where(step > 0, values, np.float32(0))
    return pack(e2m1_codes(values).reshape(x.shape)), scales


def nvfp4_dequantize(codes: NDArray, scales: NDArray, rounding: str = "exact") -> NDArray:
    """fp64 values; no product needs more than its 53 bits."""
    values = E2M1[unpack(codes)].reshape(*scales.shape, 16) * E4M3[scales][..., None]
    if rounding == "e4m3":
        values = E4M3[e4m3_bytes(values)]
    return values.reshape(*codes.shape[:-1], codes.shape[-1] * 2)


def e8m0_scales(amax: NDArray, element: str, rule: str) -> NDArray:
    """E8M0 bytes for fp32 magnitudes, by the definition of each rule."""
    largest, largest_exponent, mantissa_bits = ELEMENTS[element]
    with np.errstate(all="ignore"):
        value = amax.astype(np.float64)
        if rule == "rceil":
            value = (amax.astype(np.float32) / np.float32(largest)).astype(np.float64)
        infinite = np.isinf(value)
        fraction, exponent = np.frexp(np.where(infinite, 2.0**128, value))  # fraction in [1/2, 1)
    floor = exponent - 1
    if rule == "even":
        rounded = np.rint(fraction * 2.0 ** (mantissa_bits + 1))
        floor = floor + (rounded == 2 ** (mantissa_bits + 1))
    if rule in ("ceil", "rceil"):
        floor = floor + (fraction > 0.5)
    if rule != "rceil":
        floor = floor - largest_exponent
    scales = np.where(value == 0, 0, np.clip(floor, -127, 127) + 127)
    return np.where(np.isnan(value), 255, scales).astype(np.uint8)


def mx_quantize(x: NDArray, element: str, rule: str = "floor") -> tuple[NDArray, NDArray]:
    """Element bytes (mxfp8) or packed codes (mxfp4), and linear scale bytes, of fp32 x [..., n]."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    amax = np.abs(groups).max(-1)  # NaN if one is
    scales = e8m0_scales(amax, element, rule)
    with np.errstate(invalid="ignore"):
        values = groups.astype(np.float64) / E8M0[scales][..., None]
    values = np.where(scales[..., None] == 255, 0.0, values)
    if element == "mxfp8":
        return e4m3_bytes(values).reshape(x.shape), scales
    return pack(e2m1_codes(values).reshape(x.shape)), scales


def mx_dequantize(data: NDArray, scales: NDArray, element: str) -> NDArray:
    """fp64 values, not yet limited to fp32's range."""
    values = E4M3[data] if element == "mxfp8" else E2M1[unpack(data)]
    return (values.reshape(*scales.shape, 32) * E8M0[scales][..., None]).reshape(values.shape)


def offsets(rows: int, columns: int, layout: str) -> NDArray:
    """Byte of each (row, column), [rows, columns], one by one from the manuals' formulas."""
    result = np.zeros((rows, columns), np.int64)
    wide = -(-columns // 4)
    for row in range(rows):
        for column in range(columns):
            if layout == "linear":
                place = row * columns + column
            elif layout == "token_quads":
                place = row // 4 * 4 * columns + column * 4 + row % 4
            else:
                inside = row % 128
                place = (row // 128 * wide + column // 4) * 512 + inside % 32 * 16 + inside // 32 * 4 + column % 4
            result[row, column] = place
    return result


def stored(scales: NDArray, layout: str, padding: int = 0) -> NDArray:
    """A matrix of linear scales in `layout`, flat."""
    rows, columns = scales.shape
    size = rows * columns if layout != "swizzle_128x4" else -(-rows // 128) * 128 * (-(-columns // 4) * 4)
    result = np.full(size, padding, np.uint8)
    result[offsets(rows, columns, layout)] = scales
    return result
