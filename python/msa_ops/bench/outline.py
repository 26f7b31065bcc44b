"""Argument records of cases that are too large to hold: small tensors are real, large ones have a shape and no memory.

With them a case's arguments can be checked and its bytes and operations counted on any machine. A large tensor that
is not drawn leaves the generator where it was: values drawn after it differ from those of the real arguments (they
have the same distribution), so a cost that depends on them is an estimate. A measurement counts on the real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from msa_ops.bench.roof import precision
from msa_ops.registry.op import Cost, OpSpec

LIMITS = (1 << 24, 1 << 27, 1 << 30)
"""Bytes of the largest tensor that is made in earnest; the next limit is tried when the values were needed."""


@dataclass(frozen=True)
class Outline:
    """What is known of a case without running it: `call_bytes` of all arguments and outputs, `roof.precision`."""

    cost: Cost
    call_bytes: int
    precision: str


def outline(spec: OpSpec, dims: Mapping[str, Any]) -> Outline:
    """Cost, size and precision of a case. Checks the arguments too.

    Raises what the op's `generate` or `check` raise for bad dimensions (ValueError, NotImplementedError).
    """
    for position, limit in enumerate(LIMITS):
        try:
            with _Outline(limit):
                args = spec.generate(0, **dims)
                spec.check(args)
                tensors = [*(getattr(args, name) for name in args.__dataclass_fields__), *spec.meta(args)]
                return Outline(spec.cost(args), _bytes_of(tensors), precision(args))
        except (RuntimeError, NotImplementedError):  # torch raises either where a value of a meta tensor is needed
            if position == len(LIMITS) - 1:
                raise
    raise AssertionError


def _bytes_of(values: Iterable[Any]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))


class _Outline(TorchDispatchMode):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(tensor.is_meta for tensor in tensors):
            return _run_without_memory(func, args, kwargs)
        makes_tensor = any(argument.name == "device" for argument in func._schema.arguments)
        if makes_tensor and func is not torch.ops.aten._to_copy.default:
            result = _run_without_memory(func, args, kwargs)
            if isinstance(result, Tensor) and result.numel() * result.element_size() > self.limit:
                return result
        return func(*args, **kwargs)


def _run_without_memory(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    def without_memory(tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            return tensor
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

    if func in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        # The size of a selection by a mask depends on its values; those of a small mask are at hand.
        args = tree_map_only(Tensor, _mask_to_indices, args)
    moved_args, moved_kwargs = tree_map_only(Tensor, without_memory, (args, kwargs))
    if moved_kwargs.get("generator") is not None:
        moved_kwargs["generator"] = None
    if any(argument.name == "device" for argument in func._schema.arguments):
        moved_kwargs["device"] = torch.device("meta")
    result = func(*moved_args, **moved_kwargs)
    return args[0] if func._schema.is_mutable and isinstance(args[0], Tensor) else result


def _mask_to_indices(tensor: Tensor) -> Any:
    if tensor.dtype != torch.bool or tensor.is_meta or tensor.dim() != 1:
        return tensor
    return tensor.nonzero()[:, 0]
