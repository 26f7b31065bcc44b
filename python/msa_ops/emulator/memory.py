"""NumPy arrays and torch tensors on the CPU as the global memory of a kernel."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

Allocation = tuple[int, int, bool, str]
"""Address, bytes, whether a kernel may write, name."""

Pending = tuple[int, int, int]
"""Address and bytes of what a launch may still be writing, and the address of what stood there before it, or 0."""


def is_memory(value: object) -> bool:
    """Whether the value is a tensor or an array, so that a kernel takes its address."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def allocation(name: str, value: Any) -> Allocation:
    """The bytes from the first to the last element; gaps between elements belong to them.

    Raises ValueError for a tensor that is not on the CPU or whose elements are not in its memory as they read, for
    arrays of Python objects and for negative strides; TypeError for anything else than a tensor or an array.
    """
    with torch._C.DisableTorchFunction():  # what a tensor is, not what it shows within cpu_as_gpu
        return _allocation(name, value)


def _allocation(name: str, value: Any) -> Allocation:
    if not is_memory(value):
        raise TypeError(f"{name}: {type(value).__name__}; accepted: CPU tensors and NumPy arrays")
    if isinstance(value, Tensor):
        if value.device.type != "cpu":
            raise ValueError(f"{name}: on {value.device}; accepted: tensors on the CPU")
        # a subclass with a dispatch of its own, such as a fake tensor, need not have the memory that it shows
        if type(value).__torch_dispatch__ is not Tensor.__torch_dispatch__ or value.layout != torch.strided:
            raise ValueError(f"{name}: {type(value).__name__}, {value.layout}; accepted: plain strided tensors")
        if value.is_conj() or value.is_neg():
            raise ValueError(f"{name}: conjugated or negated when it is read; accepted: x.resolve_conj().resolve_neg()")
        size = value.element_size()
        address, shape, writable = value.data_ptr(), tuple(value.shape), True
        strides = tuple(stride * size for stride in value.stride())
    else:
        if value.dtype.hasobject:
            raise ValueError(f"{name}: an array of Python objects; accepted: numbers")
        interface = value.__array_interface__
        size = value.itemsize
        address, read_only = interface["data"]
        shape, strides, writable = value.shape, value.strides, not read_only
    if any(stride < 0 for stride in strides):
        raise ValueError(f"{name}: strides {strides}; accepted: none below zero")
    if 0 in shape:
        return address, 0, writable, name
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    return address, last + size, writable, name
