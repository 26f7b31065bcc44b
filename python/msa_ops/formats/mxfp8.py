"""MXFP8: E4M3 elements in groups of 32 that share one E8M0 scale.

Source: OCP Microscaling Formats Specification v1.0, sections 5.1 and 6.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from msa_ops.formats import e4m3, e8m0

GROUP = 32
ELEMENT = e8m0.Element(e4m3.MAX, e4m3.MAX_EXPONENT, e4m3.MANTISSA_BITS)


def quantize(x: Tensor, *, scale_rounding: str = "floor") -> tuple[Tensor, Tensor]:
    """Elements [..., n] float8_e4m3fn and E8M0 scale bytes [..., n / 32] uint8 of x [..., n].

    `scale_rounding`: see `e8m0.SCALE_ROUNDINGS`. Elements are rounded to nearest even and saturate at 448; they
    keep the sign of zero. An all-zero group has scale byte 0. A group with an infinity has a scale so large that
    448 reads as infinity. A group with a NaN has scale 0xFF and elements 0, and reads as NaN.
    """
    groups = x.float().unflatten(-1, (x.shape[-1] // GROUP, GROUP))
    scales = e8m0.group_scales(groups.abs().amax(-1), ELEMENT, scale_rounding)
    return e4m3.to_bytes(e8m0.normalize(groups, scales).flatten(-2)).view(torch.float8_e4m3fn), scales


def dequantize(values: Tensor, scales: Tensor) -> Tensor:
    """fp32 values [..., n] of elements [..., n] (float8_e4m3fn or uint8) and linear scale bytes [..., n / 32].

    Exact up to fp32's range: products of 2^128 and more are infinite. A NaN scale gives NaN.
    """
    groups = e4m3.from_bytes(values).unflatten(-1, (values.shape[-1] // GROUP, GROUP))
    return (groups * e8m0.from_bytes(scales).unsqueeze(-1)).flatten(-2)
