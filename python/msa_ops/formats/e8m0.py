"""E8M0, the power-of-two scale of MXFP8 and MXFP4: byte b is 2^(b - 127), 0xFF is NaN; there is no zero and no sign.

Source: OCP Microscaling Formats Specification v1.0, section 5.4.1. How a writer chooses the scale of a group is
not fixed by that document, so the rule has a name here (`SCALE_ROUNDINGS`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BIAS = 127
NAN = 0xFF
LARGEST = 0xFE
"""Byte of 2^127."""

SCALE_ROUNDINGS = ("floor", "ceil", "even", "rceil")
"""Rules for the scale of a group whose largest magnitude is amax, for elements with largest value M and largest
exponent E = floor(log2(M)):

floor: 2^(floor(log2(amax)) - E), the rule of the OCP specification, section 6.3; what exceeds M saturates.
ceil: 2^(ceil(log2(amax)) - E).
even: as floor, of amax rounded to the element's mantissa width first (nearest, ties to even).
rceil: fp32(amax / M) rounded up to a power of two, as the cuBLAS manual has it; nothing saturates.
"""

_MANTISSA = (1 << 23) - 1  # of fp32


class Element(NamedTuple):
    """What the rules need to know of an element format."""

    max: float
    max_exponent: int
    mantissa_bits: int


def from_bytes(data: Tensor) -> Tensor:
    """fp32 values of E8M0 bytes given as uint8 or float8_e8m0fnu; byte 0 is 2^-127, an fp32 subnormal."""
    byte = data.view(torch.uint8).to(torch.int32)
    bits = torch.where(byte == 0, 1 << 22, byte << 23)
    return torch.where(byte == NAN, 0x7FC00000, bits).to(torch.int32).view(torch.float32)


def to_bytes(x: Tensor, *, rounding: str = "up") -> Tensor:
    """E8M0 bytes (uint8) of fp32 scales.

    What is not a power of two is rounded `"up"` or `"down"` to one; zero and values below 2^-127 give byte 0,
    values above 2^127 and infinity 0xFE, NaN and negative values 0xFF. Raises ValueError for another `rounding`.
    """
    if rounding not in ("up", "down"):
        raise ValueError(f"rounding: {rounding!r}; accepted: up, down")
    bits = x.float().view(torch.int32)
    exponent, mantissa = bits >> 23, bits & _MANTISSA
    if rounding == "up":
        # Of the subnormals only those above 2^-127 (mantissa 1 << 22) need the next byte.
        more = torch.where(exponent == 0, mantissa > 1 << 22, mantissa > 0)
        exponent = exponent + more.to(torch.int32)
    return torch.where(x >= 0, exponent.clamp(0, LARGEST), NAN).to(torch.uint8)


def group_scales(amax: Tensor, element: Element, rounding: str = "floor") -> Tensor:
    """E8M0 bytes (uint8) of groups with the largest magnitudes `amax` (fp32, not negative).

    `rounding`: one of SCALE_ROUNDINGS. amax 0 gives byte 0, NaN 0xFF. Infinity counts as 2^128, except with rceil,
    where its scale is the largest one. Results are clamped to 2^-127 .. 2^127.
    Raises ValueError for another `rounding`.
    """
    if rounding not in SCALE_ROUNDINGS:
        raise ValueError(f"scale_rounding: {rounding!r}; accepted: {', '.join(SCALE_ROUNDINGS)}")
    if rounding == "rceil":
        # A tensor as divisor: torch multiplies CUDA tensors by the reciprocal of a Python scalar, which rounds twice.
        return to_bytes(amax / amax.new_full((), element.max), rounding="up")
    bits = amax.view(torch.int32)
    if rounding == "even":
        # Half a unit of the element's last place carries into the exponent where amax rounds up to a power of two.
        bits = bits + (1 << (22 - element.mantissa_bits))
    exponent = bits >> 23
    if rounding == "ceil":
        exponent = exponent + (bits & _MANTISSA > 0).to(torch.int32)
    scales = (exponent - element.max_exponent).clamp(0, LARGEST)
    return torch.where(amax.isnan(), NAN, scales).to(torch.uint8)


def normalize(groups: Tensor, scales: Tensor) -> Tensor:
    """fp32 groups [..., g] divided by their scales (uint8 [...]); 0 where the scale is NaN.

    Multiplies by the scale's inverse, whose byte is 254 - b: exact, and it divides by no subnormal number.
    """
    inverse = from_bytes(LARGEST - scales.clamp(max=LARGEST)).unsqueeze(-1)
    return torch.where((scales == NAN).unsqueeze(-1), 0.0, groups * inverse)
