"""E4M3 (OCP, "fn"): 4 exponent bits, 3 mantissa bits, largest value 448, no infinities.

Source: OCP 8-bit Floating Point Specification, section 5. The FNUZ variant of gfx942 has other values for the
same bytes and is refused everywhere in this package.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX = 448.0
MAX_EXPONENT = 8
MANTISSA_BITS = 3
SMALLEST = 2.0**-9
"""Smallest positive value, a subnormal (byte 0x01)."""

NAN = 0x7F
"""The NaN byte that is written; 0xFF reads as NaN too."""

ROUNDINGS = ("exact", "e4m3")
"""Rounding modes of a dequantised value: as it is, or rounded once more to E4M3 as chips with FP8 MMA do."""


def to_bytes(x: Tensor) -> Tensor:
    """E4M3 bytes (uint8) of fp32 values: nearest even, saturating at +-448, NaN gives 0x7F whatever its sign."""
    # The clamp matters: casts of torch before 2.12 turn values above 464 into NaN.
    data = x.float().clamp(-MAX, MAX).to(torch.float8_e4m3fn).view(torch.uint8)
    return torch.where(x.isnan(), NAN, data).to(torch.uint8)


def from_bytes(data: Tensor) -> Tensor:
    """fp32 values of E4M3 bytes given as uint8 or float8_e4m3fn."""
    return data.view(torch.float8_e4m3fn).float()


def round_to(x: Tensor) -> Tensor:
    """fp32 values rounded to E4M3, saturating."""
    return from_bytes(to_bytes(x))
