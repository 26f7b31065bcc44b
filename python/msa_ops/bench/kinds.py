"""What a case of a workload names: an op, or several ops that are timed as one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msa_ops.bench import layer_step
from msa_ops.bench.outline import Outline, outline
from msa_ops.registry import STORE
from msa_ops.registry.op import OpSpec


@dataclass(frozen=True)
class Kind:
    """ops: in the order of their calls. generate: takes a case's dims as keyword arguments. outline: of a case's dims;
    raises what `generate` and the ops' checks raise. variants: values of the dim "variant", if it has one. together:
    its ops hand their results on, and the whole is timed.
    """

    ops: tuple[OpSpec, ...]
    generate: Callable[..., Any]
    outline: Callable[[Mapping[str, Any]], Outline]
    variants: tuple[str, ...] = ()
    together: bool = False


def names() -> tuple[str, ...]:
    """Of all kinds, as cases name them."""
    return (*STORE.ops(), layer_step.NAME)


def kind_of(name: str) -> Kind:
    """Raises UnknownOpError for a name that is none of `names`."""
    if name == layer_step.NAME:
        return Kind(layer_step.OPS, layer_step.generate, layer_step.outline_of, together=True)
    spec = STORE.op(name)
    return Kind((spec,), spec.generate, functools.partial(outline, spec), tuple(spec.variants))
