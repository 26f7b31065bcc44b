"""MXFP4: E2M1 codes in groups of 32 that share one E8M0 scale.

Source: OCP Microscaling Formats Specification v1.0, sections 5.1 and 6.3.
"""

from __future__ import annotations

from torch import Tensor

from msa_ops.formats import e2m1, e8m0

GROUP = 32
ELEMENT = e8m0.Element(e2m1.MAX, e2m1.MAX_EXPONENT, e2m1.MANTISSA_BITS)


def quantize(x: Tensor, *, scale_rounding: str = "floor") -> tuple[Tensor, Tensor]:
    """Packed codes [..., n / 2] uint8 and E8M0 scale bytes [..., n / 32] uint8 of x [..., n].

    `scale_rounding`: see `e8m0.SCALE_ROUNDINGS`. Codes are rounded to nearest even, saturate at 6 and are never -0.
    An all-zero group has scale byte 0. A group with an infinity has a scale so large that 6 reads as infinity.
    A group with a NaN has scale 0xFF and codes 0, and reads as NaN.
    """
    groups = x.float().unflatten(-1, (x.shape[-1] // GROUP, GROUP))
    scales = e8m0.group_scales(groups.abs().amax(-1), ELEMENT, scale_rounding)
    return e2m1.pack(e2m1.encode(e8m0.normalize(groups, scales)).flatten(-2)), scales


def dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """fp32 values [..., n] of packed codes [..., n / 2] and linear scale bytes [..., n / 32].

    Exact up to fp32's range: products of 2^128 and more are infinite. A NaN scale gives NaN.
    """
    groups = e2m1.decode_packed(codes).unflatten(-1, (codes.shape[-1] * 2 // GROUP, GROUP))
    return (groups * e8m0.from_bytes(scales).unsqueeze(-1)).flatten(-2)
