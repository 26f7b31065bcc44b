"""NumPy arrays and torch tensors on the CPU as the global memory of a kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

Allocation = tuple[int, int, bool, str]
"""Address, bytes, whether a kernel may write, name."""


def is_memory(value: object) -> bool:
    """Whether the value is a tensor or an array, so that a kernel takes its address."""
    return isinstance(value, Tensor) or hasattr(value, "__array_interface__")


def allocation(name: str, value: Any) -> Allocation:
    """The bytes from the first to the last element; gaps between elements belong to them.

    Raises ValueError for a tensor that is not on the CPU and for negative strides.
    """
    if isinstance(value, Tensor):
        if value.device.type != "cpu":
            raise ValueError(f"{name}: on {value.device}; accepted: tensors on the CPU")
        size = value.element_size()
        address, shape, writable = value.data_ptr(), tuple(value.shape), True
        strides = tuple(stride * size for stride in value.stride())
    else:
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
