"""What the runs of all kinds of cases have in common: the machine, how to time, and the record of a measurement."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from msa_ops.bench import argument_sets, environment, roof
from msa_ops.bench import timer as timers
from msa_ops.bench.argument_sets import Cold
from msa_ops.bench.check import Comparison
from msa_ops.bench.outline import Outline
from msa_ops.bench.result import Record
from msa_ops.bench.workload import Case
from msa_ops.registry import Backend, Platform
from msa_ops.registry import platform as platforms

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


@dataclass
class CaseRun:
    """One case on one machine; `records` measures it."""

    case: Case
    options: Options
    device: torch.device
    roof: roof.Roof
    cache_bytes: int
    repeat: int
    outline: Outline

    def __post_init__(self) -> None:
        self.cost = self.outline.cost

    @functools.cached_property
    def platform(self) -> Platform:
        return platforms.of_device(self.device)

    def records(self) -> Iterator[Record]:
        raise NotImplementedError

    def lacks_memory(self) -> str:
        """Why the case cannot run, or nothing."""
        free = environment.free_bytes(self.device)
        needed = MEMORY_COPIES * self.outline.call_bytes
        if free and needed > free:
            return f"needs about {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free"
        return ""

    def plan_cold(self) -> Cold:
        wanted = self.options.cold if self.options.cold is not None else self.device.type == "cuda"
        if not wanted:
            return Cold("warm")
        free = environment.free_bytes(self.device) // 2
        return argument_sets.plan_cold(self.cost.bytes, self.outline.call_bytes, self.cache_bytes, free)

    def flush(self) -> timers.Call:
        size = argument_sets.CACHE_FACTOR * self.cache_bytes
        scratch = torch.zeros(size, dtype=torch.uint8, device=self.device)
        return lambda: scratch.add_(1)

    def timer(self, backend: Backend) -> timers.Timer:
        name = self.options.timer
        if name == "auto":
            name = "wall" if self.device.type == "cpu" else "graph" if backend.graph_safe else "event"
        return timers.make(name, self.device)

    def add_times(
        self,
        record: Record,
        samples: list[float],
        clock: timers.Timer,
        cold: Cold,
        mhz: tuple[float | None, float | None],
    ) -> Record:
        """The record with what was measured: seconds of each sample, and the chip's clock before and after."""
        record.timer, record.cold, record.samples = clock.name, str(cold), samples
        record.clock_mhz_before, record.clock_mhz_after = mhz
        record.precision = self.outline.precision
        record.roof_seconds, record.bound = self.roof.bound(self.cost, record.precision)
        record.percent_of_roof = 100 * record.roof_seconds / statistics.median(samples)
        record.in_cache = cold.method == "warm" and self.cost.bytes < self.cache_bytes
        return record

    def make_record(
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


def difference(checks: Sequence[Comparison]) -> str:
    return "; ".join(
        f"{check.name}: {check.outside} of {check.elements} elements beyond tolerance, "
        f"largest error {check.max_abs_error:.3g}"
        for check in checks
        if not check.passed
    )


def line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
