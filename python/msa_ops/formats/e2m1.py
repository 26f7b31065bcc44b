"""E2M1, the four-bit float of NVFP4 and MXFP4: magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign bit.

Source: OCP Microscaling Formats Specification v1.0, section 5.3.3. Two codes share a byte, the one of the lower
index in the low nibble.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

MAX = 6.0
MAX_EXPONENT = 2
MANTISSA_BITS = 1
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = MAGNITUDES + tuple(-magnitude for magnitude in MAGNITUDES)
"""Value of each of the 16 codes; code 8 is -0."""

DECISION_POINTS = ((0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6))
"""Midpoints of neighbouring magnitudes and the code that the tie goes to (the even one)."""


def _next_fp32(value: float) -> float:
    """The fp32 number after a positive one."""
    following: float = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] + 1))[0]
    return following


_STEPS = tuple(point if tie == index + 1 else _next_fp32(point) for index, (point, tie) in enumerate(DECISION_POINTS))
"""Smallest fp32 magnitude of each code from 1 on."""


def encode(x: Tensor) -> Tensor:
    """Codes (uint8, 0 to 15, one a byte) of fp32 values.

    Nearest, ties to the even code, saturating at 6. What rounds to zero is code 0, never -0; so is NaN.
    """
    magnitude = x.abs().nan_to_num(nan=0.0)
    steps = torch.tensor(_STEPS, dtype=torch.float32, device=x.device)
    code = torch.bucketize(magnitude, steps, out_int32=True, right=True).to(torch.uint8)
    return torch.where((x < 0) & (code > 0), code | 8, code)


def decode(codes: Tensor) -> Tensor:
    """fp32 values of codes, one a byte; the high nibble is ignored."""
    return torch.tensor(VALUES, dtype=torch.float32, device=codes.device)[(codes & 15).long()]


def pack(codes: Tensor) -> Tensor:
    """[..., n] codes, one a byte -> [..., n / 2] bytes."""
    pairs = codes.unflatten(-1, (codes.shape[-1] // 2, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def unpack(data: Tensor) -> Tensor:
    """[..., n / 2] bytes -> [..., n] codes, one a byte."""
    return torch.stack((data & 15, data >> 4), dim=-1).flatten(-2)


def decode_packed(data: Tensor) -> Tensor:
    """fp32 values [..., n] of packed codes [..., n / 2]: one look-up a byte gives both of its values."""
    values = [(VALUES[byte & 15], VALUES[byte >> 4]) for byte in range(256)]
    pairs = torch.tensor(values, dtype=torch.float32, device=data.device)
    return torch.nn.functional.embedding(data.int(), pairs).flatten(-2)
