"""The record of one op: its schema, what it checks, what it gives, and how it is tested and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Cost:
    """What a call must move and compute at least: bytes read and written, and floating-point operations.

    Each byte of an operand counts once a call, however often a kernel re-reads it.
    """

    bytes_read: int
    bytes_written: int
    flops: int

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from the reference: |result - reference| <= atol + rtol * |reference|.

    `exact=True` asks for equal bits (ids, codes). `mismatch` is the share of elements that may be outside,
    for quantised outputs whose near ties may fall either way.
    """

    rtol: float = 0.0
    atol: float = 0.0
    mismatch: float = 0.0
    exact: bool = False


@dataclass(frozen=True)
class OpSpec:
    """One op.

    `params` is the parameter list of the schema without `backend` and `out`, with at least one keyword-only
    parameter. `args` is the record of the same parameters with the same defaults; every other function takes
    one. `outputs` names the results, each a tensor. Bump `version` with every change of the schema.

    check(args): raises ValueError or NotImplementedError naming the argument; metadata only, so it also runs
        under fake tensors.
    meta(args): empty output tensors; the fake and the allocation of results are this one function.
    reference(args): the definition of the op in torch; gives new tensors (and writes mutated arguments).
    facts(args): every property of the call that a backend's predicate may look at, as a frozen dataclass whose
        defaults describe the decode step of M3.1-Flash on one GPU.
    generate(seed, device=..., **dims): an argument record with seeded inputs; `variants` lists the values of its
        `variant` argument, hostile ones among them.
    tolerance(args): one Tolerance for each output.
    cost(args): bytes and flops of the call; may read lengths and ids from the host.
    """

    name: str
    version: int
    params: str
    outputs: tuple[str, ...]
    args: type[Any]
    check: Callable[[Any], None]
    meta: Callable[[Any], tuple[Tensor, ...]]
    reference: Callable[[Any], tuple[Tensor, ...]]
    facts_type: type[Any]
    facts: Callable[[Any], Any]
    generate: Callable[..., Any]
    tolerance: Callable[[Any], tuple[Tolerance, ...]]
    cost: Callable[[Any], Cost]
    variants: tuple[str, ...] = ("plain",)
    mutates: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        """Schema of the functional overload."""
        results = ", ".join(["Tensor"] * len(self.outputs))
        if len(self.outputs) != 1:
            results = f"({results})"
        return f"{self.name}({self.params}, str? backend=None) -> {results}"

    @property
    def out_schema(self) -> str:
        """Schema of the overload that writes the results into given tensors and returns nothing."""
        outs = ", ".join(f"Tensor(out{i}!) {name}" for i, name in enumerate(self.outputs))
        return f"{self.name}.out({self.params}, str? backend=None, {outs}) -> ()"
