"""Tensors and numbers as kernel launches take them, on every vendor's chips."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Launch = tuple[int, tuple[int, ...]]
"""Position of a kernel, and its arguments."""


class Launches(list[Launch]):
    """What was launched, in order. `others`: torch did some work too, which is not in the list."""

    others = False


class _Recording(threading.local):
    launches: Launches | None = None


_recording = _Recording()


class Address(int):
    """An address that knows its tensor, and goes on knowing it if a number of bytes is added."""

    tensor: Tensor

    def __add__(self, num_bytes: int) -> Address:
        found = Address(int(self) + num_bytes)
        found.tensor = self.tensor
        return found


class _SeeWork(TorchDispatchMode):
    """Sees the ops of torch that are more than other views of a tensor."""

    def __init__(self, launches: Launches) -> None:
        super().__init__()
        self.launches = launches

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.launches.others = True
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def record() -> Iterator[Launches]:
    """Lists what is launched in this thread within the block; addresses are of type `Address`."""
    launches = Launches()
    before, _recording.launches = _recording.launches, launches
    try:
        with _SeeWork(launches):
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
