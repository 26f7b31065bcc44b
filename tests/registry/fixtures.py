"""A registry of its own for tests: one op with facts, and backends that refuse for every kind of reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from msa_ops.registry import Backend, Band, Between, Code, Cost, MultipleOf, OneOf, OpSpec, Platform, Refusal, Tolerance
from msa_ops.registry.store import Store


@dataclass(slots=True)
class Args:
    x: Tensor
    topk: int = 16


@dataclass(frozen=True)
class Facts:
    topk: int = 16
    heads: int = 4
    kv_format: str = "nvfp4"


def spec(name: str = "probe") -> OpSpec:
    return OpSpec(
        name=name,
        version=1,
        params="Tensor x, *, int topk=16",
        outputs=("out",),
        args=Args,
        check=lambda a: None,
        meta=lambda a: (torch.empty_like(a.x),),
        reference=reference,
        facts_type=Facts,
        facts=lambda a: Facts(topk=a.topk),
        generate=lambda seed, **dims: Args(torch.zeros(4)),
        tolerance=lambda a: (Tolerance(),),
        cost=lambda a: Cost(1, 1, 1),
    )


def reference(a: Args) -> tuple[Tensor, ...]:
    return (a.x * 2,)


def filled(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the synthetic backends: writes 7."""
    outs[0].fill_(7)


def even_heads(platform: Platform, facts: Facts) -> Iterable[Refusal]:
    if facts.heads % 2 and platform.tensor_memory_columns:
        yield Refusal(Code.ARGUMENT, f"heads is {facts.heads}; accepted with tensor memory: even", "pad the heads")


def backend(name: str, archs: Iterable[str], band: Band = Band.PERFORMANT, **more: Any) -> Backend:
    return Backend(
        op="probe", name=name, target="tests.registry.fixtures:filled", archs=frozenset(archs), band=band, **more
    )


def store() -> Store:
    """reference, portable, fast (Blackwell), qmul (needs QMUL4 and CUDA 13.4), amd."""
    result = Store()
    result.add_op(spec())
    for record in (
        backend("portable", ["sm_90a", "sm_100a", "sm_103a", "sm_107a"], Band.PORTABLE),
        backend("fast", ["sm_100a", "sm_103a", "sm_107a"], limits=(("topk", Between(1, 32)),), predicate=even_heads),
        backend(
            "qmul",
            ["sm_100a", "sm_103a", "sm_107a"],
            Band.SPECIALIZED,
            features=frozenset({"qmul4"}),
            requires=(("cuda", (13, 4)),),
            limits=(("topk", Between(1, 32)), ("kv_format", OneOf("nvfp4")), ("heads", MultipleOf(2))),
        ),
        backend("amd", ["gfx950"], limits=(("topk", OneOf(16)),), requires=(("no-such-package", (1, 0)),)),
    ):
        result.add_backend(record)
    return result
