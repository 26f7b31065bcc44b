"""From a compiled kernel's name and Python values to its launch on the current stream."""

from __future__ import annotations

import functools
import struct

import torch
from torch import Tensor

from msa_ops import _C


@functools.cache
def position(name: str) -> int:
    """Position of the kernel in this build. Raises NotImplementedError if the build does not hold it."""
    try:
        return _C.find_kernel(name)
    except IndexError:
        raise NotImplementedError(
            f"kernel {name} is not in this build of msa_ops; build the wheel with its kernels"
        ) from None


def launch(name: str, device: torch.device, *values: int) -> None:
    """Launches on torch's current stream of the device. Pointers and integers go as they are, floats by `bits`."""
    index = device.index
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    _C.launch_kernel(position(name), index, stream, values)


def pointer(value: Tensor | None) -> int:
    """Address of a tensor's first element; 0 for None."""
    return 0 if value is None else value.data_ptr()


def bits(value: float) -> int:
    """An fp32 argument as the launcher reads it from its eight-byte slot."""
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def require_aligned(name: str, value: Tensor, alignment: int = 16) -> None:
    """Raises ValueError for an address that vector loads cannot take."""
    if value.data_ptr() % alignment:
        raise ValueError(f"{name}: starts at address {value.data_ptr():#x}; accepted: multiples of {alignment} bytes")
