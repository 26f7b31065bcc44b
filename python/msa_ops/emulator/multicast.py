"""Multicast addresses, through which kernels reach a tensor on each of several devices at once: `multicast`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from msa_ops import _C
from msa_ops.emulator.arguments import several
from msa_ops.emulator.memory import allocation, is_memory


def multicast(tensors: Sequence[Any]) -> Tensor:
    """A tensor at a multicast address: `multimem` instructions there load from all of `tensors`, store to all of them
    and reduce into all of them, and stores of the bulk and tensor engines write them all.

    tensors: one a device, in the order in which `multimem.ld_reduce` adds them; CPU tensors or NumPy arrays of one
        shape, dtype and strides. If one of them is a read-only array, kernels may only load.

    Returns a tensor like the first (of uint8 with the same bytes for arrays whose dtype torch has not), to be passed to
    kernels as any other, also in parts (`x[1:]`). It keeps the memory of all alive. On the host it reads as zeros, and
    to write it ends the process: nothing is at the address itself, as on a chip.

    Raises ValueError for no tensors, tensors that are not alike, or that `run_ptx` would not take; TypeError for
    anything else than tensors and arrays.
    """
    made = [allocation(f"tensors[{i}]", value) for i, value in enumerate(several("tensors", tensors))]
    if not made:
        raise ValueError("tensors: none; accepted: one a device")
    first = tensors[0]
    if min(_shape(first)[2], default=0) < 0:
        raise ValueError(f"tensors: strides {_shape(first)[2]}; accepted: none below zero")
    for i, value in enumerate(tensors):
        if _shape(value) != _shape(first):
            raise ValueError(f"tensors[{i}]: {_shape(value)}; accepted: as tensors[0], {_shape(first)}")
    size = made[0].bytes
    bound = _C.MulticastRange(size, [one.address for one in made], all(one.writable for one in made))
    content = (ctypes.c_uint8 * size).from_address(bound.address)
    content.held = bound, list(tensors)  # type: ignore[attr-defined]  # as long as a tensor uses it
    flat = torch.frombuffer(content, dtype=torch.uint8)
    if isinstance(first, Tensor):
        return flat.view(first.dtype).as_strided(first.shape, first.stride())
    try:
        kind = torch.from_numpy(first[:0].copy() if first.ndim else first.copy()).dtype
    except TypeError:
        return flat
    return flat.view(kind).as_strided(first.shape, [stride // first.itemsize for stride in first.strides])


def _shape(value: Any) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Dtype, shape and strides, to compare and for messages."""
    assert is_memory(value)
    strides = value.stride() if isinstance(value, Tensor) else value.strides
    return str(value.dtype), tuple(value.shape), tuple(strides)
