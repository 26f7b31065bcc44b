"""A case of one op: all backends on the same arguments, the correctness first, then the time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msa_ops.bench import argument_sets, environment, timer
from msa_ops.bench.case_run import LEAST_SAMPLES, MOST_SAMPLES, CaseRun, difference, line
from msa_ops.bench.check import Comparison, Reference
from msa_ops.bench.result import Record
from msa_ops.registry import STORE, Backend
from msa_ops.registry.op import OpSpec
from msa_ops.registry.store import REFERENCE


class OpRun(CaseRun):
    """Backends that are asked for, or all that can run here."""

    @property
    def spec(self) -> OpSpec:
        return STORE.op(self.case.op)

    def records(self) -> Iterator[Record]:
        """One record for each backend that was asked for, those that cannot run here only if named."""
        known = STORE.backends(self.case.op)
        backends = [backend for backend in known if self._is_wanted(backend)]
        if not backends and not self.options.backends:
            reason = f"no other backend runs on {self.platform.arch}; name it to time it: --backend {REFERENCE}"
            yield self._record(next(b for b in known if b.name == REFERENCE), "refused", reason)
            return
        if reason := self.lacks_memory():
            yield from (self._record(backend, "refused", reason) for backend in backends)
            return
        fresh = functools.partial(
            self.spec.generate, self.options.seed, device=str(self.device), **dict(self.case.dims)
        )
        try:
            args = fresh()
            self.cost = self.spec.cost(args)
            facts = self.spec.facts(args)
            reference = Reference.run(self.spec, fresh)
        except Exception as error:
            yield from (self._record(backend, "error", f"reference: {line(error)}") for backend in backends)
            return
        correct: list[tuple[Backend, list[Comparison]]] = []
        for backend in backends:
            refusals = backend.platform_refusals(self.platform) + backend.call_refusals(self.platform, facts)
            if refusals:
                yield self._record(backend, "refused", "; ".join(map(str, refusals)))
                continue
            try:
                checks = reference.check(self.spec, backend.name)
            except Exception as error:
                yield self._record(backend, "error", line(error))
                continue
            if all(check.passed for check in checks):
                correct.append((backend, checks))
            else:
                yield self._record(backend, "incorrect", difference(checks), checks)
        yield from self._timed(correct, args, facts, reference)

    def _is_wanted(self, backend: Backend) -> bool:
        if self.options.backends:
            return backend.name in self.options.backends
        if backend.name == REFERENCE and self.device.type != "cpu":
            return False
        return not backend.platform_refusals(self.platform)

    def _timed(
        self, correct: Sequence[tuple[Backend, list[Comparison]]], args: Any, facts: Any, reference: Reference
    ) -> Iterator[Record]:
        """Times all correct backends in balanced order, on the same argument sets."""
        try:
            needed = {backend.name: backend.workspace_bytes(self.platform, facts) for backend, _ in correct}
            if any(needed.values()) and getattr(args, "workspace", self) is None:
                args.workspace = torch.empty(max(needed.values()), dtype=torch.uint8, device=self.device)
            cold = self.plan_cold()
            sets = [args, *(argument_sets.copy(args) for _ in range(cold.sets - 1))]
            outs = [argument_sets.poisoned_outputs(self.spec, one) for one in sets]
            flush = self.flush() if cold.method == "flush" else None
        except Exception as error:  # most likely out of memory
            yield from (self._record(backend, "error", line(error), checks) for backend, checks in correct)
            return
        prepared: list[_Prepared] = []
        for backend, checks in correct:
            clock = self.timer(backend)
            calls = [
                argument_sets.make_call(self.spec, backend.name, one, out) for one, out in zip(sets, outs, strict=True)
            ]
            try:
                prepared.append(_Prepared(backend, checks, clock, clock.prepare(calls, flush)))
            except Exception as error:
                yield self._record(backend, "error", f"{clock.name} timer: {line(error)}", checks)
        before = environment.clock_mhz(self.device)
        try:
            samplers = [one.sample for one in prepared]
            options = self.options
            taken = timer.take(samplers, options.samples, options.seconds, LEAST_SAMPLES, MOST_SAMPLES)
            again = [self._check_timed_calls(one.sample, outs, args, reference) for one in prepared]
        except Exception as error:
            yield from (self._record(one.backend, "error", line(error), one.checks) for one in prepared)
            return
        after = environment.clock_mhz(self.device)
        for one, samples, checks in zip(prepared, taken, again, strict=True):
            if not all(check.passed for check in checks):
                yield self._record(one.backend, "incorrect", f"in the timed calls: {difference(checks)}", checks)
                continue
            record = self._record(one.backend, "ok", "", one.checks)
            record.workspace_bytes = needed[one.backend.name]
            yield self.add_times(record, samples, one.clock, cold, (before, after))

    def _check_timed_calls(
        self, sample: timer.Sample, outs: Sequence[tuple[torch.Tensor, ...]], args: Any, reference: Reference
    ) -> list[Comparison]:
        """Outputs of the very calls that were timed: a captured graph may do less than the call that was captured.

        Nothing is compared if the call changes its own inputs: those of a later call are others.
        """
        if any(getattr(args, name) is not None for name in self.spec.mutates if name != "workspace"):
            return []
        for one in outs:
            for out in one:
                argument_sets.poison(out)
        for _ in outs:
            sample()
        return [check for one in outs for check in reference.compare_outputs(self.spec, one)]

    def _record(self, backend: Backend, status: str, reason: str, checks: Sequence[Comparison] = ()) -> Record:
        return self.make_record(
            backend.name,
            backend.provider,
            backend.source_hash(),
            self.spec.version,
            backend.name,
            status,
            reason,
            checks,
        )


@dataclass(frozen=True)
class _Prepared:
    backend: Backend
    checks: list[Comparison]
    clock: timer.Timer
    sample: timer.Sample
