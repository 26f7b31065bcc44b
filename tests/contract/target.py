"""Where the contract suite runs an op: every backend that this machine can execute, itself or on an emulated chip.

A contract module sets `OP = "name"` and takes the fixture `target`; it then runs once for each backend of the op.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from msa_ops import emulate
from msa_ops.emulator import ARCHS
from msa_ops.registry import STORE, Backend, OneOf, parse_platform, plugins
from msa_ops.registry import platform as platforms
from msa_ops.registry.op import OpSpec, Tolerance
from msa_ops.registry.platform import Platform


@dataclass(frozen=True)
class Target:
    """One backend of one op on one device of this machine, or on a chip that is emulated in its CPU."""

    op: str
    backend: str
    device: str
    chip: str | None = None

    def __str__(self) -> str:
        return f"{self.backend}-{self.device}" if self.chip is None else f"{self.backend}-emulated:{self.chip}"

    @property
    def platform(self) -> Platform:
        return platforms.of_device(torch.device(self.device)) if self.chip is None else parse_platform(self.chip)

    @property
    def spec(self) -> OpSpec:
        return STORE.op(self.op)

    @property
    def record(self) -> Backend:
        return next(backend for backend in STORE.backends(self.op) if backend.name == self.backend)

    def dims(self) -> dict[str, Any]:
        """What a generator must be told of dtypes and roundings for this backend to take its calls, if anything."""
        found: dict[str, Any] = {}
        defaults = self.spec.facts_type()
        for name, limit in self.record.limits:
            if name.endswith("dtype") and isinstance(limit, OneOf) and not limit.accepts(getattr(defaults, name)):
                found[name] = limit.values[0]
        rounding = self.record.numerics.rounding
        if getattr(defaults, "rounding", rounding[0]) not in rounding:
            found["rounding"] = rounding[0]
        return found

    def run(self, args: Any, outs: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
        """Calls the op through torch on this backend, as a user would. Results come back on the CPU.

        Arguments are moved to the device; mutated ones are copied back. A call that the backend refuses because
        of its limits skips the test, with the reasons.
        """
        with contextlib.nullcontext() if self.chip is None else emulate(self.chip):
            return self._run(args, outs)

    def _run(self, args: Any, outs: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
        moved = args if self.device == "cpu" else self._moved(args)
        self._skip_if_refused(moved)
        values = {name: getattr(moved, name) for name in moved.__dataclass_fields__}
        packet = getattr(torch.ops.msa_ops, self.op)
        if outs is None:
            results = packet.default(**values, backend=self.backend)
            results = (results,) if isinstance(results, Tensor) else tuple(results)
        else:
            results = tuple(out.to(self.device) for out in outs)
            packet.out(**values, backend=self.backend, **dict(zip(self.spec.outputs, results, strict=True)))
            for out, result in zip(outs, results, strict=True):
                out.copy_(result)
        for name in self.spec.mutates if moved is not args else ():
            original = getattr(args, name)
            if original is not None:
                original.copy_(getattr(moved, name))
        return tuple(result.cpu() for result in results)

    def _moved(self, args: Any) -> Any:
        """The arguments on the device, with their strides; tensors that share memory go on sharing it there."""
        storages: dict[int, torch.UntypedStorage] = {}
        return type(args)(
            **{
                name: moved(value, self.device, storages) if isinstance(value := getattr(args, name), Tensor) else value
                for name in args.__dataclass_fields__
            }
        )

    def _skip_if_refused(self, args: Any) -> None:
        backend = self.record
        if not backend.needs_facts:
            return
        self.spec.check(args)
        reasons = backend.call_refusals(self.platform, self.spec.facts(args))
        if reasons:
            pytest.skip(f"{self.backend} refuses: " + "; ".join(map(str, reasons)))


def moved(value: Tensor, device: str, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    """A copy of the tensor's whole storage on the device, seen with the same offset and strides."""
    source = value.untyped_storage()
    if source.data_ptr() not in storages:
        storages[source.data_ptr()] = torch.UntypedStorage(source.nbytes(), device=device).copy_(source)
    copy = torch.empty(0, dtype=value.dtype, device=device)
    return copy.set_(storages[source.data_ptr()], value.storage_offset(), value.shape, value.stride())


def targets(op: str) -> list[Target]:
    """All backends of `op` that can be executed here."""
    plugins.load_once()
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    found = []
    for device in devices:
        platform = platforms.of_device(torch.device(device))
        found += [
            Target(op, backend.name, device)
            for backend in STORE.backends(op)
            if not backend.platform_refusals(platform)
        ]
    for chip in ARCHS:
        platform = parse_platform(chip)
        found += [
            Target(op, backend.name, "cpu", chip)
            for backend in STORE.backends(op)
            if backend.compiled and not backend.platform_refusals(platform)
        ]
    return found


def assert_close(result: Tensor, expected: Tensor, tolerance: Tolerance, what: str = "result") -> None:
    """Fails unless the result is within the tolerance; NaN equals NaN, infinities must agree."""
    assert result.shape == expected.shape, f"{what}: shape {list(result.shape)}, expected {list(expected.shape)}"
    if tolerance.exact:
        assert torch.equal(result, expected.to(result.dtype)), f"{what}: bits differ"
        return
    result, expected = result.double(), expected.double()
    bound = tolerance.atol + tolerance.rtol * expected.abs()
    same = (result == expected) | (result.isnan() & expected.isnan())
    wrong = ~(same | ((result - expected).abs() <= bound))
    share = wrong.double().mean().item() if wrong.numel() else 0.0
    if share > tolerance.mismatch:
        worst = torch.where(same, 0.0, (result - expected).abs()).nan_to_num(nan=torch.inf).max().item()
        raise AssertionError(f"{what}: {share:.3%} outside rtol {tolerance.rtol} atol {tolerance.atol}, worst {worst}")
