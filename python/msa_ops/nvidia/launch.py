"""From a compiled kernel's name and Python values to its launch on the current stream."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from msa_ops import _C
from msa_ops.launch_arguments import bits, note, pointer, require_aligned
from msa_ops.registry import virtual

__all__ = ["bits", "clear", "launch", "pointer", "require_aligned"]


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
    if index is None:  # memory of an emulated chip
        return virtual.launch(name, values)
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    at = position(name)
    _C.launch_kernel(at, index, stream, values)
    note(at, values)


def clear(memory: Tensor, num_bytes: int) -> None:
    """Zeros the first bytes of a uint8 tensor, in the order of launches."""
    index = memory.device.index
    if index is None:  # memory of an emulated chip
        memory[:num_bytes].zero_()
        return
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    address = pointer(memory)
    _C.clear_memory(index, stream, address, num_bytes)
    note(_C.CLEAR, (address, num_bytes))
