"""What the quantize and dequantize ops share: shapes and checks of scale tensors in every layout, and test inputs.

Scales of x [..., n] with groups of g: linear layout [..., n / g]. The other layouts treat x as a matrix of
rows = product of the leading dimensions and columns = n / g scales, and store it as [padded rows, padded columns]
bytes (`formats.scale_layout.padded_shape`), in the layout's order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from msa_ops.formats import scale_layout
from msa_ops.formats.scale_layout import ScaleLayout
from msa_ops.ops import checks

QUANTIZE_VARIANTS = ("plain", "large", "tiny", "zero_groups", "specials", "ties", "strided", "empty")
DEQUANTIZE_VARIANTS = ("plain", "every_byte", "zero_scales", "typed", "strided", "empty")

MX_LAYOUTS = ("linear", "swizzle_128x4")


def matrix_shape(shape: Sequence[int], group: int) -> tuple[int, int]:
    """Rows and columns of the scales of a tensor of this shape."""
    return math.prod(shape[:-1]), shape[-1] // group


def scale_shape(shape: Sequence[int], group: int, layout: str) -> tuple[int, ...]:
    """Shape of the scales of a tensor of this shape; used by fakes, checks and references alike."""
    if layout == ScaleLayout.LINEAR:
        return (*shape[:-1], shape[-1] // group)
    return scale_layout.padded_shape(ScaleLayout(layout), *matrix_shape(shape, group))


def check_values(name: str, x: Tensor, group: int, *dtypes: torch.dtype, packing: int = 1) -> None:
    """x is [..., n / packing] of one of `dtypes` with n a multiple of `group` and rows of stride 1."""
    if x.dim() == 0:
        raise ValueError(f"{name}: a scalar; accepted: at least one dimension")
    checks.tensor(name, x, (None,) * x.dim(), *dtypes)
    if x.shape[-1] * packing % group:
        raise ValueError(f"{name}: last dimension {x.shape[-1]}; accepted: multiples of {group // packing}")
    checks.contiguous_rows(name, x)


def check_scales(scales: Tensor, shape: Sequence[int], group: int, layout: str, dtype: torch.dtype) -> None:
    """`scales` belong to values of this shape: uint8 or `dtype`; linear [..., n / group], else exactly the bytes of
    the layout in any contiguous shape.
    """
    wanted = scale_shape(shape, group, layout)
    if layout == ScaleLayout.LINEAR:
        checks.tensor("scales", scales, wanted, torch.uint8, dtype)
        checks.contiguous_rows("scales", scales)
        return
    checks.tensor("scales", scales, (None,) * scales.dim(), torch.uint8, dtype)
    if scales.numel() != math.prod(wanted) or not scales.is_contiguous():
        raise ValueError(
            f"scales: shape {list(scales.shape)}, strides {scales.stride()}; accepted: contiguous, "
            f"{math.prod(wanted)} bytes ({' x '.join(map(str, wanted))}) in {layout}"
        )


def store_scales(scales: Tensor, layout: str) -> Tensor:
    """Linear scales [..., n / g] in the order and shape of `layout`."""
    if layout == ScaleLayout.LINEAR:
        return scales
    matrix = scales.reshape(math.prod(scales.shape[:-1]), scales.shape[-1])
    padded = scale_layout.padded_shape(ScaleLayout(layout), *matrix.shape)
    return scale_layout.from_linear(matrix, ScaleLayout(layout)).view(padded)


def load_scales(scales: Tensor, shape: Sequence[int], group: int, layout: str) -> Tensor:
    """uint8 linear scales [..., n / g] of values of this shape, from stored ones."""
    data = scales.view(torch.uint8)
    if layout == ScaleLayout.LINEAR:
        return data
    rows, columns = matrix_shape(shape, group)
    return scale_layout.to_linear(data.flatten(), ScaleLayout(layout), rows, columns).view(*shape[:-1], columns)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def generate_values(seed: int, *, device: str, rows: int, columns: int, dtype: str, group: int, variant: str) -> Tensor:
    """Seeded x [rows, columns] for a quantize op.

    Variants: magnitudes that saturate or underflow the scale, groups of zeros (of both signs), NaN and infinities,
    values on E2M1 and E4M3 decision points, rows with a larger stride, no rows.
    """
    checks.choice("variant", variant, QUANTIZE_VARIANTS)
    checks.multiple("columns", columns, group)
    generator = torch.Generator().manual_seed(seed)
    rows = 0 if variant == "empty" else rows
    if variant == "ties":
        # Multiples of 1/4 under a largest value 6 x 2^k, which gives a scale that is a power of two in each format.
        x = torch.randint(-24, 25, (rows, columns // group, group), generator=generator) / 4
        x[..., 0] = 6
        x = (x * torch.exp2(torch.randint(-4, 5, (rows, columns // group, 1), generator=generator))).flatten(1)
    else:
        x = torch.randn(rows, columns * (2 if variant == "strided" else 1), generator=generator)
        x *= {"large": 1e5, "tiny": 1e-6}.get(variant, 1.0)
    if variant == "zero_groups":
        x.unflatten(1, (-1, group))[:, ::2] *= 0.0
    if variant == "specials" and rows:
        groups = x.unflatten(1, (-1, group))
        groups[::3, 0, 1] = torch.nan
        groups[1::3, 0, 2] = torch.inf
        groups[2::3, 0, 3] = -torch.inf
        groups[-1, 0] = torch.nan
    return x.to(device, checks.dtype_named(dtype))[:, :columns]


def generate_stored(
    seed: int,
    *,
    device: str,
    rows: int,
    columns: int,
    group: int,
    packing: int,
    scale_range: tuple[int, int],
    scale_dtype: torch.dtype,
    layout: str,
    variant: str,
) -> tuple[Tensor, Tensor]:
    """Seeded bytes [rows, columns / packing] and scales for a dequantize op, both uint8.

    `scale_range`: first and last scale byte of the plain variant, which has no NaN. Other variants: all bytes on both
    sides, scales 0, tensors of torch's float8 dtypes, rows with a larger stride, no rows.
    """
    checks.choice("variant", variant, DEQUANTIZE_VARIANTS)
    checks.multiple("columns", columns, group)
    generator = torch.Generator().manual_seed(seed)
    rows = 0 if variant == "empty" else rows
    width = columns // packing
    data = torch.randint(0, 256, (rows, width * (2 if variant == "strided" else 1)), generator=generator)
    if packing == 1 and variant != "every_byte":
        data -= (data & 0x7F == 0x7F).long()  # NaN
    low, high = {"every_byte": (0, 255), "zero_scales": (0, 0)}.get(variant, scale_range)
    shape = scale_shape((rows, columns), group, layout)
    scales = torch.randint(low, high + 1, shape, generator=generator).to(device, torch.uint8)
    if variant == "typed":
        scales = scales.view(scale_dtype)
    return data.to(device, torch.uint8)[:, :width], scales
