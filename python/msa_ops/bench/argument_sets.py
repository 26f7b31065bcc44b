"""Argument records of a case: copies at other addresses, poisoned outputs, and calls on them.

Cold caches: a case is given several argument sets, together larger than twice the cache, and goes round them. Where
that would take too many sets (small cases) or too much memory, a buffer of twice the cache is written before each
sample instead. Which of the two was done stands in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from msa_ops.registry.op import OpSpec

MOST_SETS = 128
CACHE_FACTOR = 2  # argument sets together are larger than this many caches


@dataclass(frozen=True)
class Cold:
    """How the cache is kept cold: "warm" (not at all), "rotate" over `sets` argument sets, or "flush"."""

    method: str
    sets: int = 1

    def __str__(self) -> str:
        return f"{self.method}:{self.sets}" if self.method == "rotate" else self.method


def plan_cold(call_bytes: int, set_bytes: int, cache_bytes: int, free_bytes: int) -> Cold:
    """`call_bytes`: what one call touches. `set_bytes`: what one more set takes. `free_bytes`: memory for sets."""
    if cache_bytes <= 0:
        return Cold("warm")
    # While a call runs, everything that ran since the same set was last used must have displaced it.
    sets = 1 + -(-CACHE_FACTOR * cache_bytes // max(call_bytes, 1))
    if sets > MOST_SETS or (sets - 1) * set_bytes > free_bytes:
        return Cold("flush")
    return Cold("rotate", sets)


def values(args: Any) -> dict[str, Any]:
    return {name: getattr(args, name) for name in args.__dataclass_fields__}


def copy(args: Any) -> Any:
    """The record with every tensor copied to memory of its own, strides and gaps kept."""
    return type(args)(
        **{name: _copy(value) if isinstance(value, Tensor) else value for name, value in values(args).items()}
    )


def poisoned_outputs(spec: OpSpec, args: Any) -> tuple[Tensor, ...]:
    """Output tensors that hold NaN, or bytes 0xC3 where the type has no NaN: what an op leaves unwritten shows."""
    outs = spec.meta(args)
    for out in outs:
        poison(out)
    return outs


def poison(out: Tensor) -> None:
    if out.dtype.is_floating_point and out.element_size() > 1:
        out.fill_(torch.nan)
    elif out.numel():
        out.view(torch.uint8).fill_(0xFF if out.dtype.is_floating_point else 0xC3)


def is_poison(out: Tensor) -> Tensor:
    """bool: elements that hold what `poison` writes. False for single bytes, which may be results all of them."""
    if out.dtype.is_floating_point:
        return out.isnan() if out.element_size() > 1 else torch.zeros_like(out, dtype=torch.bool)
    if out.element_size() == 1:
        return torch.zeros_like(out, dtype=torch.bool)
    return out == int.from_bytes(b"\xc3" * out.element_size(), "little", signed=True)


def make_call(spec: OpSpec, backend: str, args: Any, outs: Sequence[Tensor]) -> Callable[[], None]:
    """A call through the torch op, as a user makes it, into `outs`. Arguments are checked and dispatched every time."""
    overload = getattr(torch.ops.msa_ops, spec.name).out
    keywords = {**values(args), "backend": backend, **dict(zip(spec.outputs, outs, strict=True))}

    def call() -> None:
        overload(**keywords)

    return call


def _copy(tensor: Tensor) -> Tensor:
    if tensor.numel() == 0 or any(stride < 0 for stride in tensor.stride()):
        return tensor.clone()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((span,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)
