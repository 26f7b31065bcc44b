"""From a code object's name and Python values to its launch on the current stream."""

from __future__ import annotations

import functools

import torch

from msa_ops import _C
from msa_ops.registry import virtual


@functools.cache
def position(name: str) -> int:
    """Position of the code object in this build. Raises NotImplementedError if the build does not hold it."""
    try:
        return _C.find_code_object(name)
    except IndexError:
        raise NotImplementedError(
            f"kernel {name} is not in this build of msa_ops; build the wheel with its kernels"
        ) from None


def launch(name: str, device: torch.device, num_workgroups: int, *values: int) -> None:
    """Launches on torch's current stream of the device. Pointers and integers go as they are, floats by `bits`.

    Raises RuntimeError, naming the kernel, if there is no HIP runtime or it refuses.
    """
    index = device.index
    if index is None:  # memory of an emulated chip
        return virtual.launch(name, (num_workgroups, *values))
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    _C.launch_code_object(position(name), index, stream, num_workgroups, values)
