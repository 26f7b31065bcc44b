"""Tensors and numbers as kernel launches take them, on every vendor's chips."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator

from torch import Tensor

Launch = tuple[int, tuple[int, ...]]
"""Position of a kernel, and its arguments."""


class _Recording(threading.local):
    launches: list[Launch] | None = None


_recording = _Recording()


class Address(int):
    """An address that knows its tensor."""

    tensor: Tensor


@contextlib.contextmanager
def record() -> Iterator[list[Launch]]:
    """Lists what is launched in this thread within the block; addresses are of type `Address`."""
    launches: list[Launch] = []
    before, _recording.launches = _recording.launches, launches
    try:
        yield launches
    finally:
        _recording.launches = before


def note(position: int, values: tuple[int, ...]) -> None:
    """Called with every launch."""
    if _recording.launches is not None:
        _recording.launches.append((position, values))


def pointer(value: Tensor | None) -> int:
    """Address of a tensor's first element; 0 for None."""
    if value is None:
        return 0
    if _recording.launches is None:
        return value.data_ptr()
    address = Address(value.data_ptr())
    address.tensor = value
    return address


def bits(value: float) -> int:
    """An fp32 argument as a launcher reads it from its eight-byte slot."""
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def require_aligned(name: str, value: Tensor, alignment: int = 16) -> None:
    """Raises ValueError for an address that vector loads cannot take."""
    if value.data_ptr() % alignment:
        raise ValueError(f"{name}: starts at address {value.data_ptr():#x}; accepted: multiples of {alignment} bytes")
