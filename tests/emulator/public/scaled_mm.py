"""`torch._scaled_mm` for NVFP4 and MXFP8 on the CPU, where torch has it for FP8 with one scale alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from msa_ops.formats import nvfp4, scale_layout
from msa_ops.formats.scale_layout import ScaleLayout

MXFP8_GROUP = 32
_of_torch = torch._scaled_mm


def values(data: Tensor, scales: Tensor) -> Tensor:
    """fp32 [rows, k] of codes [rows, k / 2] of NVFP4, or numbers [rows, k] of MXFP8; scales in tiles of 128 x 4."""
    is_fp4 = data.dtype == torch.float4_e2m1fn_x2
    rows, columns = data.shape[0], data.shape[1] * 2 // nvfp4.GROUP if is_fp4 else data.shape[1] // MXFP8_GROUP
    linear = scale_layout.to_linear(scales.flatten().view(torch.uint8), ScaleLayout.SWIZZLE_128X4, rows, columns)
    if is_fp4:
        return nvfp4.dequantize(data.view(torch.uint8), linear)
    return data.float() * torch.exp2(linear.float() - 127).repeat_interleave(MXFP8_GROUP, 1)


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
) -> Tensor:
    """a [m, k], b [k, n] column-major (two codes a byte in NVFP4) and a scale a block: their product in `out_dtype`."""
    if a.dtype != torch.float4_e2m1fn_x2 and scale_a.dtype != torch.float8_e8m0fnu:
        return _of_torch(a, b, scale_a, scale_b, bias, *args, **kwargs)
    product = values(a, scale_a) @ values(b.mT, scale_b).mT
    return (product if bias is None else product + bias).to(kwargs.get("out_dtype", torch.bfloat16))
