"""NumPy arrays and torch tensors on the CPU as the global memory of a kernel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from msa_ops import _C


class Allocation(NamedTuple):
    """Memory that a kernel may use: `bytes` from `address` on; if there are steps, of them runs of `run` bytes, which
    each step of (stride in bytes, count) repeats."""

    address: int
    bytes: int
    writable: bool
    name: str
    run: int = 0
    steps: Sequence[tuple[int, int]] = ()


class Pending(NamedTuple):
    """What a launch may still be writing, as in `Allocation`, and the address of what stood there before it, or 0."""

    address: int
    bytes: int
    before: int
    run: int = 0
    steps: Sequence[tuple[int, int]] = ()


def is_memory(value: object) -> bool:
    """Whether the value is a tensor or an array, so that a kernel takes its address."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def allocation(name: str, value: Any) -> Allocation:
    """The bytes of the elements, without what lies between them, at any strides.

    Raises ValueError for a tensor that is not on the CPU or whose elements are not in its memory as they read, and for
    arrays of Python objects; TypeError for anything else than a tensor or an array.
    """
    address, element, shape, strides, writable = _elements(name, value)
    if 0 in shape:
        return Allocation(address, 0, writable, name)
    steps = [(abs(stride), extent) for stride, extent in zip(strides, shape, strict=True)]
    covered = _C.Footprint(element, steps)
    first = address + sum((extent - 1) * min(stride, 0) for stride, extent in zip(strides, shape, strict=True))
    if not covered.steps:
        return Allocation(first, covered.bytes, writable, name)
    return Allocation(first, covered.bytes, writable, name, covered.run, covered.steps)


def address_of(name: str, value: Any) -> int:
    """Where the first element is, which kernels are given: not the lowest address if a stride is negative.

    Raises as `allocation`.
    """
    return _elements(name, value)[0]


def _elements(name: str, value: Any) -> tuple[int, int, Sequence[int], Sequence[int], bool]:
    """Address of the first element, bytes of an element, shape, strides in bytes, and whether they may be written."""
    with torch._C.DisableTorchFunction():  # what a tensor is, not what it shows within cpu_as_gpu
        if isinstance(value, Tensor):
            if value.device.type != "cpu":
                raise ValueError(f"{name}: on {value.device}; accepted: tensors on the CPU")
            # a subclass with a dispatch of its own, such as a fake tensor, need not have the memory that it shows
            if type(value).__torch_dispatch__ is not Tensor.__torch_dispatch__ or value.layout != torch.strided:
                raise ValueError(f"{name}: {type(value).__name__}, {value.layout}; accepted: plain strided tensors")
            if value.is_conj() or value.is_neg():
                raise ValueError(
                    f"{name}: conjugated or negated when it is read; accepted: x.resolve_conj().resolve_neg()"
                )
            size = value.element_size()
            strides = tuple(stride * size for stride in value.stride())
            return value.data_ptr(), size, tuple(value.shape), strides, True
    if not is_memory(value):
        raise TypeError(f"{name}: {type(value).__name__}; accepted: CPU tensors and NumPy arrays")
    if value.dtype.hasobject:
        raise ValueError(f"{name}: an array of Python objects; accepted: numbers")
    address, read_only = value.__array_interface__["data"]
    return address, value.itemsize, value.shape, value.strides, not read_only
