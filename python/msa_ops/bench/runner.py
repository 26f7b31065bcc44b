"""Runs a workload: for every case and backend the correctness first, then the time, next to the roof."""

from __future__ import annotations

import datetime
import functools
import hashlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msa_ops.bench import argument_sets, environment, layer_step, roof, timer
from msa_ops.bench.argument_sets import Cold
from msa_ops.bench.check import Comparison, Reference
from msa_ops.bench.decode import FormatError, suggest
from msa_ops.bench.outline import Outline, outline
from msa_ops.bench.result import SCHEMA, SCHEMA_VERSION, Record, Report
from msa_ops.bench.workload import Case, Workload
from msa_ops.registry import STORE, Backend, Platform, plugins
from msa_ops.registry import platform as platforms
from msa_ops.registry.errors import BackendRefusedError, NoBackendError, UnknownBackendError
from msa_ops.registry.op import OpSpec
from msa_ops.registry.overrides import AUTOMATIC, Override
from msa_ops.registry.selection import SELECTOR
from msa_ops.registry.store import REFERENCE

LEAST_SAMPLES, MOST_SAMPLES = 10, 200
MEMORY_COPIES = 6  # timed, reference's, backend's and fresh arguments, the mask of written bytes, and temporaries


@dataclass(frozen=True)
class Options:
    """How to run. `backends` empty: all that can run here; on a GPU the reference only if it is named.

    `timer` "auto": wall on the CPU, graph on a GPU for graph-safe backends, event for others. `cold` None: on a GPU
    alone. `samples` None: as many as `seconds` allow. `repeats`: each case is measured so many times, as records of
    their own, which `compare` takes as separate runs.
    """

    device: str = "cpu"
    backends: tuple[str, ...] = ()
    timer: str = "auto"
    cold: bool | None = None
    samples: int | None = None
    seconds: float = 0.2
    repeats: int = 1
    seed: int = 0


def run(workload: Workload, options: Options, progress: Callable[[Record], None] | None = None) -> Report:
    """Measures every case of the workload. `progress` sees each record as it is made.

    Raises FormatError for a case that the op does not accept, before anything is measured, and for an unknown backend.
    A case that fails while it runs becomes a record with a status.
    """
    device = torch.device(options.device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: {options.device!r}; accepted: cpu, cuda, cuda:N")
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
    if options.timer != "auto":
        timer.make(options.timer, device)
    plugins.load_once()
    _check_backends(workload, options.backends)
    outlines = outline_cases(workload)
    found = environment.collect(device)
    measured = roof.measure(device, found.cache_bytes)
    records = []
    for repeat in range(options.repeats):
        for case in workload.cases:
            kind = _StepRun if case.op == layer_step.NAME else _CaseRun
            bench = kind(case, options, device, measured, found.cache_bytes, repeat, outlines[case.name])
            for record in bench.records():
                records.append(record)
                if progress is not None:
                    progress(record)
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Report(SCHEMA, SCHEMA_VERSION, created, workload.name, found, measured, records)


def outline_cases(workload: Workload) -> dict[str, Outline]:
    """Outline of every case, by name. Raises FormatError if the op does not accept one."""
    outlines = {}
    for case in workload.cases:
        try:
            is_step = case.op == layer_step.NAME
            outlines[case.name] = (
                layer_step.outline_of(dict(case.dims)) if is_step else outline(STORE.op(case.op), case.dims)
            )
        except (ValueError, NotImplementedError) as error:
            raise FormatError(f"workload {workload.name!r}: {case.name}: {error}") from error
        except (AttributeError, TypeError, RuntimeError, ArithmeticError, MemoryError) as error:
            raise FormatError(f"workload {workload.name!r}: {case.name}: {_line(error)}") from error
    return outlines


def _check_backends(workload: Workload, wanted: Sequence[str]) -> None:
    ops = {case.op for case in workload.cases} - {layer_step.NAME}
    if any(case.op == layer_step.NAME for case in workload.cases):
        ops |= {spec.name for spec in layer_step.OPS}
    known = {backend.name for op in ops for backend in STORE.backends(op)}
    for name in wanted:
        if name not in known:
            raise FormatError(f"--backend: no op of the workload has a backend {name!r}{suggest(name, known)}")


@dataclass
class _CaseRun:
    case: Case
    options: Options
    device: torch.device
    roof: roof.Roof
    cache_bytes: int
    repeat: int
    outline: Outline

    def __post_init__(self) -> None:
        self.cost = self.outline.cost

    @property
    def spec(self) -> OpSpec:
        return STORE.op(self.case.op)

    @functools.cached_property
    def platform(self) -> Platform:
        return platforms.of_device(self.device)

    def records(self) -> Iterator[Record]:
        """One record for each backend that was asked for, those that cannot run here only if named."""
        known = STORE.backends(self.case.op)
        backends = [backend for backend in known if self._is_wanted(backend)]
        if not backends and not self.options.backends:
            reason = f"no other backend runs on {self.platform.arch}; name it to time it: --backend {REFERENCE}"
            yield self._record(next(b for b in known if b.name == REFERENCE), "refused", reason)
            return
        free = environment.free_bytes(self.device)
        needed = MEMORY_COPIES * self.outline.call_bytes
        if free and needed > free:
            reason = f"needs about {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free"
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
            yield from (self._record(backend, "error", f"reference: {_line(error)}") for backend in backends)
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
                yield self._record(backend, "error", _line(error))
                continue
            if all(check.passed for check in checks):
                correct.append((backend, checks))
            else:
                yield self._record(backend, "incorrect", _difference(checks), checks)
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
            cold = self._plan_cold()
            sets = [args, *(argument_sets.copy(args) for _ in range(cold.sets - 1))]
            outs = [argument_sets.poisoned_outputs(self.spec, one) for one in sets]
            flush = self._flush() if cold.method == "flush" else None
        except Exception as error:  # most likely out of memory
            yield from (self._record(backend, "error", _line(error), checks) for backend, checks in correct)
            return
        prepared: list[_Prepared] = []
        for backend, checks in correct:
            clock = self._timer(backend)
            calls = [
                argument_sets.make_call(self.spec, backend.name, one, out) for one, out in zip(sets, outs, strict=True)
            ]
            try:
                prepared.append(_Prepared(backend, checks, clock, clock.prepare(calls, flush)))
            except Exception as error:
                yield self._record(backend, "error", f"{clock.name} timer: {_line(error)}", checks)
        before = environment.clock_mhz(self.device)
        try:
            samplers = [one.sample for one in prepared]
            options = self.options
            taken = timer.take(samplers, options.samples, options.seconds, LEAST_SAMPLES, MOST_SAMPLES)
            again = [self._check_timed_calls(one.sample, outs, args, reference) for one in prepared]
        except Exception as error:
            yield from (self._record(one.backend, "error", _line(error), one.checks) for one in prepared)
            return
        after = environment.clock_mhz(self.device)
        for one, samples, checks in zip(prepared, taken, again, strict=True):
            if not all(check.passed for check in checks):
                yield self._record(one.backend, "incorrect", f"in the timed calls: {_difference(checks)}", checks)
                continue
            record = self._record(one.backend, "ok", "", one.checks)
            record.timer, record.cold, record.samples = one.clock.name, str(cold), samples
            record.workspace_bytes = needed[one.backend.name]
            record.clock_mhz_before, record.clock_mhz_after = before, after
            record.precision = self.outline.precision
            record.roof_seconds, record.bound = self.roof.bound(self.cost, record.precision)
            record.percent_of_roof = 100 * record.roof_seconds / statistics.median(samples)
            record.in_cache = cold.method == "warm" and self.cost.bytes < self.cache_bytes
            yield record

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

    def _plan_cold(self) -> Cold:
        wanted = self.options.cold if self.options.cold is not None else self.device.type == "cuda"
        if not wanted:
            return Cold("warm")
        free = environment.free_bytes(self.device) // 2
        return argument_sets.plan_cold(self.cost.bytes, self.outline.call_bytes, self.cache_bytes, free)

    def _flush(self) -> timer.Call:
        size = argument_sets.CACHE_FACTOR * self.cache_bytes
        scratch = torch.zeros(size, dtype=torch.uint8, device=self.device)
        return lambda: scratch.add_(1)

    def _timer(self, backend: Backend) -> timer.Timer:
        name = self.options.timer
        if name == "auto":
            name = "wall" if self.device.type == "cpu" else "graph" if backend.graph_safe else "event"
        return timer.make(name, self.device)

    def _record(self, backend: Backend, status: str, reason: str, checks: Sequence[Comparison] = ()) -> Record:
        return self._make_record(
            backend.name,
            backend.provider,
            backend.source_hash(),
            self.spec.version,
            backend.name,
            status,
            reason,
            checks,
        )

    def _make_record(
        self,
        backend: str,
        provider: str,
        source_hash: str,
        op_version: int,
        wish: str,
        status: str,
        reason: str,
        checks: Sequence[Comparison],
    ) -> Record:
        """wish: the backend to name on the command line, or nothing."""
        settings = "".join(f" --set '{setting}'" for setting in self.case.settings)
        return Record(
            case=self.case.name,
            op=self.case.op,
            op_version=op_version,
            dims=dict(self.case.dims),
            weight=self.case.weight,
            tags=list(self.case.tags),
            backend=backend,
            provider=provider,
            source_hash=source_hash,
            status=status,
            reason=reason,
            reproduce=f"msa-ops bench --op {self.case.op}{settings}{f' --backend {wish}' if wish else ''} "
            f"--device {self.device.type} --seed {self.options.seed}",
            seed=self.options.seed,
            repeat=self.repeat,
            bytes_read=self.cost.bytes_read,
            bytes_written=self.cost.bytes_written,
            flops=self.cost.flops,
            checks=list(checks),
        )


class _StepRun(_CaseRun):
    """A case of `layer_step`: on the backends that the registry chooses, or each time on all of one name."""

    def records(self) -> Iterator[Record]:
        for wish in self.options.backends or ("",):
            yield self._measure(wish)

    def _measure(self, wish: str) -> Record:
        free = environment.free_bytes(self.device)
        needed = MEMORY_COPIES * self.outline.call_bytes
        if free and needed > free:
            return self._of_step(
                (), wish, "refused", f"needs about {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free"
            )
        backends: tuple[Backend, ...] = ()
        try:
            step = layer_step.generate(self.options.seed, device=str(self.device), **dict(self.case.dims))
            override = Override(wish, "--backend", False) if wish else AUTOMATIC
            backends = tuple(
                SELECTOR.choose(spec.name, self.platform, override, functools.partial(spec.facts, args))
                for spec, args in zip(layer_step.OPS, step.args, strict=True)
            )
        except (UnknownBackendError, BackendRefusedError, NoBackendError) as error:
            return self._of_step(backends, wish, "refused", _line(error))
        except Exception as error:
            return self._of_step(backends, wish, "error", _line(error))
        try:
            return self._timed_step(step, backends, wish)
        except Exception as error:
            return self._of_step(backends, wish, "error", _line(error))

    def _timed_step(self, step: layer_step.Step, backends: tuple[Backend, ...], wish: str) -> Record:
        names = [backend.name for backend in backends]
        self.cost = step.cost()
        step.call(names)()
        checks = step.check()
        if not all(check.passed for check in checks):
            return self._of_step(backends, wish, "incorrect", _difference(checks), checks)
        cold = self._plan_cold()
        steps = [step, *(step.copy() for _ in range(cold.sets - 1))]
        clock = self._timer(min(backends, key=lambda backend: backend.graph_safe))
        sample = clock.prepare([one.call(names) for one in steps], self._flush() if cold.method == "flush" else None)
        before = environment.clock_mhz(self.device)
        options = self.options
        (samples,) = timer.take([sample], options.samples, options.seconds, LEAST_SAMPLES, MOST_SAMPLES)
        after = environment.clock_mhz(self.device)
        for one in steps:
            one.poison()
        for _ in steps:
            sample()
        again = [check for one in steps for check in one.check()]
        if not all(check.passed for check in again):
            return self._of_step(backends, wish, "incorrect", f"in the timed calls: {_difference(again)}", again)
        record = self._of_step(backends, wish, "ok", "", checks)
        record.timer, record.cold, record.samples = clock.name, str(cold), samples
        record.clock_mhz_before, record.clock_mhz_after = before, after
        record.precision = self.outline.precision
        record.roof_seconds, record.bound = self.roof.bound(self.cost, record.precision)
        record.percent_of_roof = 100 * record.roof_seconds / statistics.median(samples)
        record.in_cache = cold.method == "warm" and self.cost.bytes < self.cache_bytes
        return record

    def _of_step(
        self,
        backends: tuple[Backend, ...],
        wish: str,
        status: str,
        reason: str,
        checks: Sequence[Comparison] = (),
    ) -> Record:
        """Named by the ops' backends, or what was wished for."""
        name = "+".join(dict.fromkeys(backend.name for backend in backends)) or wish or "none"
        sources = hashlib.sha256("".join(backend.source_hash() for backend in backends).encode()).hexdigest()[:16]
        providers = "+".join(dict.fromkeys(backend.provider for backend in backends)) or "none"
        return self._make_record(
            name, providers, sources if backends else "unknown", layer_step.VERSION, wish, status, reason, checks
        )


@dataclass(frozen=True)
class _Prepared:
    backend: Backend
    checks: list[Comparison]
    clock: timer.Timer
    sample: timer.Sample


def _difference(checks: Sequence[Comparison]) -> str:
    return "; ".join(
        f"{check.name}: {check.outside} of {check.elements} elements beyond tolerance, "
        f"largest error {check.max_abs_error:.3g}"
        for check in checks
        if not check.passed
    )


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
