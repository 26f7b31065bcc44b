"""Correctness before speed: a backend's results against the reference on the same inputs.

Outputs are held to the op's tolerance. In an argument that the op writes, 1 % of the bytes that the reference writes
may differ (near ties of a rounding) and no other byte may change; if it holds floats, the first output's tolerance
applies. No other argument may change by a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from msa_ops.bench.argument_sets import is_poison, make_call, poisoned_outputs
from msa_ops.registry.op import OpSpec, Tolerance
from msa_ops.registry.store import REFERENCE

WRITTEN_BYTES_MISMATCH = 0.01
PIECE = 1 << 22  # elements compared at a time; caches have gigabytes


@dataclass(frozen=True)
class Comparison:
    """One tensor against the reference. Errors are over finite elements; `outside` counts those beyond tolerance."""

    name: str
    elements: int
    outside: int
    max_abs_error: float
    max_rel_error: float
    passed: bool


def compare(name: str, found: Tensor, expected: Tensor, tolerance: Tolerance) -> Comparison:
    """NaN equals NaN and an infinity equals itself; everything else is |found - expected| <= atol + rtol |expected|.

    An exact tolerance also tells -0 from +0. The tolerance's share of mismatches does not cover what was not written:
    NaN, or the poison of integers (see `argument_sets.poison`), where the reference has something else.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return Comparison(name, expected.numel(), expected.numel(), 0.0, 0.0, False)
    outside, unwritten, absolute, relative = 0, 0, 0.0, 0.0
    pieces = zip(found.detach().reshape(-1).split(PIECE), expected.detach().reshape(-1).split(PIECE), strict=True)
    for one, other in pieces if found.numel() else ():
        a, b = one.to(torch.float64), other.to(torch.float64)
        equal = (a == b) | (a.isnan() & b.isnan())
        error = (a - b).abs()
        limit = tolerance.atol + tolerance.rtol * b.abs()
        if tolerance.exact:
            inside = equal & ((a.signbit() == b.signbit()) | a.isnan())
        else:
            inside = equal | ((error <= limit) & b.isfinite())
        outside += int((~inside).sum())
        unwritten += int((is_poison(one) & ~is_poison(other)).sum())
        nonzero = error.isfinite() & (error > 0)
        if bool(nonzero.any()):
            absolute = max(absolute, float(error[nonzero].max()))
            scale = b[nonzero].abs().clamp(min=torch.finfo(torch.float32).tiny)
            relative = max(relative, float((error[nonzero] / scale).max()))
    passed = not unwritten and outside <= tolerance.mismatch * found.numel()
    return Comparison(name, found.numel(), outside, absolute, relative, passed)


@dataclass
class Reference:
    """The reference's results for one case: fresh inputs, the record after the call, and the outputs."""

    fresh: Callable[[], Any]
    after: Any
    outs: tuple[Tensor, ...]
    tolerances: tuple[Tolerance, ...]
    written: dict[str, Tensor]  # of each argument of bytes that the op writes: which ones the reference writes

    @classmethod
    def run(cls, spec: OpSpec, fresh: Callable[[], Any]) -> Reference:
        """`fresh` gives the same inputs anew at every call."""
        args = fresh()
        tolerances = spec.tolerance(args)
        outs = poisoned_outputs(spec, args)
        make_call(spec, REFERENCE, args, outs)()
        return cls(fresh, args, outs, tolerances, _written(spec, fresh, args))

    def check(self, spec: OpSpec, backend: str) -> list[Comparison]:
        """One run of the backend on fresh inputs, compared."""
        args = self.fresh()
        outs = poisoned_outputs(spec, args)
        make_call(spec, backend, args, outs)()
        return self.compare_outputs(spec, outs) + self._compare_arguments(spec, args)

    def compare_outputs(self, spec: OpSpec, outs: Sequence[Tensor]) -> list[Comparison]:
        return [
            compare(name, out, expected, tolerance)
            for name, out, expected, tolerance in zip(spec.outputs, outs, self.outs, self.tolerances, strict=True)
        ]

    def _compare_arguments(self, spec: OpSpec, args: Any) -> list[Comparison]:
        before = self.fresh()
        results = []
        for name in args.__dataclass_fields__:
            value, expected, original = getattr(args, name), getattr(self.after, name), getattr(before, name)
            if not isinstance(original, Tensor) or name == "workspace":
                continue
            if name not in spec.mutates:
                a, b = _bytes(value), _bytes(original)
                if not torch.equal(a, b):
                    results.append(Comparison(name, a.numel(), int((a != b).sum()), 0.0, 0.0, False))
            elif value.dtype.is_floating_point:
                results.append(compare(name, value, expected, self.tolerances[0]))
            else:
                found = _compare_written(name, _bytes(value), _bytes(expected), self.written[name])
                results.append(found)
        return results


def _written(spec: OpSpec, fresh: Callable[[], Any], after: Any) -> dict[str, Tensor]:
    """Which bytes the reference writes: those that come out equal when all bits of the argument were other ones before.

    `after`: the record after an ordinary call.
    """
    args = fresh()
    names = [name for name in spec.mutates if name != "workspace" and isinstance(getattr(args, name), Tensor)]
    names = [name for name in names if not getattr(args, name).dtype.is_floating_point]
    if not names:
        return {}
    for name in names:
        getattr(args, name).bitwise_not_()
    make_call(spec, REFERENCE, args, poisoned_outputs(spec, args))()
    return {name: _bytes(getattr(args, name)) == _bytes(getattr(after, name)) for name in names}


def _compare_written(name: str, found: Tensor, expected: Tensor, written: Tensor) -> Comparison:
    differs = found != expected
    stray, wrong = int((differs & ~written).sum()), int((differs & written).sum())
    largest = float((found[differs].int() - expected[differs].int()).abs().max()) if stray + wrong else 0.0
    passed = not stray and wrong <= WRITTEN_BYTES_MISMATCH * int(written.sum())
    return Comparison(name, found.numel(), stray + wrong, largest, 0.0, passed)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)
