"""Weights of experts in the formats that checkpoints come in: what is accepted, and one expert's values in fp32."""

from __future__ import annotations

import torch
from torch import Tensor

from msa_ops.formats import mxfp4, mxfp8, nvfp4
from msa_ops.ops import checks

FORMATS = ("none", "nvfp4", "mxfp8", "mxfp4")
GROUP = {"none": 1, "nvfp4": 16, "mxfp8": 32, "mxfp4": 32}
"""Consecutive columns (of the dimension that is summed over) that share a scale."""

_PACKED = ("nvfp4", "mxfp4")  # two codes a byte
_WEIGHT_DTYPES = {
    "none": checks.FLOATS,
    "nvfp4": (torch.uint8,),
    "mxfp8": (torch.float8_e4m3fn,),
    "mxfp4": (torch.uint8,),
}
WEIGHT_DTYPES = tuple(dict.fromkeys(dtype for dtypes in _WEIGHT_DTYPES.values() for dtype in dtypes))
_SCALE_DTYPES = {"nvfp4": (torch.uint8, torch.float8_e4m3fn), "mxfp8": (torch.uint8,), "mxfp4": (torch.uint8,)}


def columns(weight: Tensor, weight_format: str) -> int:
    """Length of a row in values."""
    return weight.shape[-1] * (2 if weight_format in _PACKED else 1)


def check(
    name: str,
    weight: Tensor,
    scale: Tensor | None,
    global_scale: Tensor | None,
    weight_format: str,
    shape: tuple[int, int, int],
    global_shapes: tuple[tuple[int, ...], ...],
) -> None:
    """The weight has `shape` (experts, rows, columns) in values, and the scales that its format wants, no others."""
    experts, rows, width = shape
    packed = width // 2 if weight_format in _PACKED else width
    checks.tensor(name, weight, (experts, rows, packed), *_WEIGHT_DTYPES[weight_format])
    checks.contiguous_rows(name, weight)
    if weight_format == "none":
        if scale is not None:
            raise ValueError(f"{name}_scale: given; accepted: None with weight_format none")
    else:
        if scale is None:
            raise ValueError(f"{name}_scale: None; accepted: the scales of weight_format {weight_format}")
        groups = width // GROUP[weight_format]
        checks.tensor(f"{name}_scale", scale, (experts, rows, groups), *_SCALE_DTYPES[weight_format])
        checks.contiguous_rows(f"{name}_scale", scale)
    if global_scale is None:
        return
    if weight_format != "nvfp4":
        raise ValueError(f"{name}_global_scale: given; accepted: None with weight_format {weight_format}")
    if global_scale.dtype != torch.float32 or tuple(global_scale.shape) not in global_shapes:
        accepted = " or ".join(str(list(each)) for each in global_shapes)
        raise ValueError(
            f"{name}_global_scale: {global_scale.dtype}{list(global_scale.shape)}; accepted: float32 {accepted}"
        )


def dequantize(
    weight: Tensor, scale: Tensor | None, global_scale: Tensor | None, weight_format: str, expert: int
) -> Tensor:
    """fp32 [rows, columns] of one expert. A global scale of shape [experts, 2] holds one for each half of the rows."""
    if scale is None:
        return weight[expert].float()
    if weight_format == "mxfp8":
        return mxfp8.dequantize(weight[expert], scale[expert])
    if weight_format == "mxfp4":
        return mxfp4.dequantize(weight[expert], scale[expert])
    values = nvfp4.dequantize(weight[expert], scale[expert])
    if global_scale is None:
        return values
    factors = global_scale[expert].reshape(-1, 1, 1)
    return (values.unflatten(0, (factors.shape[0], -1)) * factors).flatten(0, 1)


def bytes_of_expert(weight: Tensor, scale: Tensor | None, global_scale: Tensor | None) -> int:
    """Bytes that one expert's values and scales take."""
    given = [part for part in (weight, scale, global_scale) if part is not None]
    return sum(part[0].numel() * part.element_size() for part in given)
