"""Correctness before speed: a backend's results against the reference on the same inputs.

Outputs are held to the op's tolerance. Of an argument that the op writes, bytes that the reference leaves alone must
be left alone; of the bytes that it changes, a share of 1 % may differ (near ties of a rounding), floats are held to
the first output's tolerance. No other argument may change by a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from msa_ops.bench.argument_sets import make_call, poisoned_outputs
from msa_ops.registry.op import OpSpec, Tolerance
from msa_ops.registry.store import REFERENCE

WRITTEN_BYTES_MISMATCH = 0.01


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
    """NaN equals NaN and an infinity equals itself; everything else is |found - expected| <= atol + rtol |expected|."""
    a, b = found.detach(), expected.detach()
    if a.shape != b.shape or a.dtype != b.dtype:
        return Comparison(name, b.numel(), b.numel(), 0.0, 0.0, False)
    kind = torch.float64 if a.dtype in (torch.float64, torch.int64, torch.int32) else torch.float32
    a, b = a.to(kind), b.to(kind)
    equal = (a == b) | (a.isnan() & b.isnan())
    error = (a - b).abs()
    limit = tolerance.atol + tolerance.rtol * b.abs()
    inside = equal if tolerance.exact else equal | ((error <= limit) & b.isfinite())
    finite = error[error.isfinite()]
    relative = finite / b[error.isfinite()].abs().clamp(min=torch.finfo(kind).tiny)
    outside = int((~inside).sum())
    return Comparison(
        name,
        a.numel(),
        outside,
        float(finite.max()) if finite.numel() else 0.0,
        float(relative[finite > 0].max()) if bool((finite > 0).any()) else 0.0,
        outside <= tolerance.mismatch * a.numel(),
    )


@dataclass
class Reference:
    """The reference's results for one case: fresh inputs, the record after the call, and the outputs."""

    fresh: Callable[[], Any]
    after: Any
    outs: tuple[Tensor, ...]
    tolerances: tuple[Tolerance, ...]

    @classmethod
    def run(cls, spec: OpSpec, fresh: Callable[[], Any]) -> Reference:
        """`fresh` gives the same inputs anew at every call."""
        args = fresh()
        tolerances = spec.tolerance(args)
        outs = poisoned_outputs(spec, args)
        make_call(spec, REFERENCE, args, outs)()
        return cls(fresh, args, outs, tolerances)

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
                found = compare(name, _bytes(value), _bytes(original), Tolerance(exact=True))
                if not found.passed:
                    results.append(found)
            elif value.dtype.is_floating_point:
                results.append(compare(name, value, expected, self.tolerances[0]))
            else:
                results.append(_compare_written(name, _bytes(value), _bytes(expected), _bytes(original)))
        return results


def _compare_written(name: str, found: Tensor, expected: Tensor, original: Tensor) -> Comparison:
    written = expected != original
    stray = int(((found != original) & ~written).sum())
    wrong = int(((found != expected) & written).sum())
    error = (found.int() - expected.int()).abs().max() if found.numel() else 0
    # A tie that falls back on the byte that stood there before is counted as wrong, a changed byte elsewhere as stray.
    allowed = WRITTEN_BYTES_MISMATCH * int(written.sum())
    return Comparison(name, found.numel(), stray + wrong, float(error), 0.0, stray + wrong <= allowed)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
