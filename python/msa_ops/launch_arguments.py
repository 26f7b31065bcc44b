"""Tensors and numbers as kernel launches take them, on every vendor's chips."""

from __future__ import annotations

import struct

from torch import Tensor


def pointer(value: Tensor | None) -> int:
    """Address of a tensor's first element; 0 for None."""
    return 0 if value is None else value.data_ptr()


def bits(value: float) -> int:
    """An fp32 argument as a launcher reads it from its eight-byte slot."""
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def require_aligned(name: str, value: Tensor, alignment: int = 16) -> None:
    """Raises ValueError for an address that vector loads cannot take."""
    if value.data_ptr() % alignment:
        raise ValueError(f"{name}: starts at address {value.data_ptr():#x}; accepted: multiples of {alignment} bytes")
