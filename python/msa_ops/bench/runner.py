"""Runs a workload: for every case and backend the correctness first, then the time, next to the roof."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import torch

from msa_ops.bench import environment, roof, timer
from msa_ops.bench.case_run import Options, line
from msa_ops.bench.decode import FormatError, suggest
from msa_ops.bench.kinds import kind_of
from msa_ops.bench.op_run import OpRun
from msa_ops.bench.outline import Outline
from msa_ops.bench.result import SCHEMA, SCHEMA_VERSION, Record, Report
from msa_ops.bench.step_run import StepRun
from msa_ops.bench.workload import Workload
from msa_ops.registry import STORE, plugins

__all__ = ["Options", "outline_cases", "run"]


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
            run_of = StepRun if kind_of(case.op).together else OpRun
            bench = run_of(case, options, device, measured, found.cache_bytes, repeat, outlines[case.name])
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
            outlines[case.name] = kind_of(case.op).outline(case.dims)
        except (ValueError, NotImplementedError) as error:
            raise FormatError(f"workload {workload.name!r}: {case.name}: {error}") from error
        except (AttributeError, TypeError, RuntimeError, ArithmeticError, MemoryError) as error:
            raise FormatError(f"workload {workload.name!r}: {case.name}: {line(error)}") from error
    return outlines


def _check_backends(workload: Workload, wanted: Sequence[str]) -> None:
    ops = {spec.name for case in workload.cases for spec in kind_of(case.op).ops}
    known = {backend.name for op in ops for backend in STORE.backends(op)}
    for name in wanted:
        if name not in known:
            raise FormatError(f"--backend: no op of the workload has a backend {name!r}{suggest(name, known)}")
