"""The result file: versioned JSON, written and read by this module alone. docs/benchmarks.md describes the fields."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msa_ops import whole_file
from msa_ops.bench.check import Comparison
from msa_ops.bench.decode import FormatError, decode
from msa_ops.bench.environment import Environment
from msa_ops.bench.roof import Roof
from msa_ops.strict_json import read_json

SCHEMA = "msa-ops-bench"
SCHEMA_VERSION = 1
SHORTEST, LONGEST = 1e-12, 1e9
"""Seconds of a call that a stored sample may have."""

LARGEST_WEIGHT = 1e12

STATUSES = ("ok", "incorrect", "refused", "error")
"""ok: correct and timed. incorrect: differs from the reference, no time. refused: the backend cannot serve the call,
or the machine cannot hold it. error: it raised."""


@dataclass
class Record:
    """One backend on one case. `samples` are seconds of one call, in the order taken; empty unless status is "ok"."""

    case: str
    op: str
    op_version: int
    dims: dict[str, Any]
    weight: float
    tags: list[str]
    backend: str
    provider: str
    source_hash: str
    status: str
    reason: str
    reproduce: str
    seed: int
    repeat: int = 0
    timer: str | None = None
    cold: str | None = None
    samples: list[float] = field(default_factory=list)
    bytes_read: int = 0
    bytes_written: int = 0
    flops: int = 0
    workspace_bytes: int = 0
    precision: str | None = None
    roof_seconds: float | None = None
    bound: str | None = None
    percent_of_roof: float | None = None
    in_cache: bool = False
    clock_mhz_before: float | None = None
    clock_mhz_after: float | None = None
    checks: list[Comparison] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def clock_mhz(self) -> float | None:
        clocks = [clock for clock in (self.clock_mhz_before, self.clock_mhz_after) if clock]
        return statistics.mean(clocks) if clocks else None


@dataclass
class Report:
    """Everything one run of `msa-ops bench` found. `created` is UTC in ISO 8601; `roof` was measured in the run."""

    schema: str
    schema_version: int
    created: str
    workload: str
    environment: Environment
    roof: Roof
    records: list[Record]

    @property
    def failed(self) -> bool:
        return any(record.status in ("incorrect", "error") for record in self.records)


def to_json(report: Report) -> str:
    return json.dumps(dataclasses.asdict(report), indent=1, allow_nan=False) + "\n"


def write(report: Report, path: str) -> None:
    """Writes the file; one that is there is replaced (see `check_path`)."""
    whole_file.write(path, to_json(report))


def check_path(path: str, schema: str = SCHEMA, verb: str = "bench") -> None:
    """Raises OSError, before anything is measured, if writing would fail or replace a file of another kind."""
    if not path:
        raise FileNotFoundError("'': no name of a file to write")
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"{path}: a folder; accepted: a file to write")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{path}: its folder does not exist")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise PermissionError(f"{path}: cannot be written")
    if file.is_file() and file.stat().st_size:
        with file.open("rb") as stream:
            if f'"{schema}"'.encode() not in stream.read(200):
                raise FileExistsError(f"{path}: exists and is not a result of `msa-ops {verb}`; it stays as it is")


def read(path: str) -> Report:
    """A stored report. Raises FormatError, one line naming file and field, for anything that is not one."""
    try:
        data = read_json(Path(path))
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from None
    return from_plain(data, path)


def from_plain(data: object, where: str) -> Report:
    """The report in parsed JSON. Raises FormatError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise FormatError(f"{where}: not a result of `msa-ops bench` (key 'schema' is not {SCHEMA!r})")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(
            f"{where}: schema_version {data.get('schema_version')!r}; accepted: {SCHEMA_VERSION}; measure again"
        )
    report = decode(Report, data, where)
    for position, record in enumerate(report.records):
        place = f"{where}: records[{position}]"
        if record.status not in STATUSES:
            raise FormatError(f"{place}.status: {record.status!r}; accepted: {', '.join(STATUSES)}")
        if record.status != "ok" and record.samples:
            raise FormatError(f"{place}.samples: a result that is {record.status} has no time")
        for sample in record.samples:
            if not SHORTEST <= sample <= LONGEST:
                raise FormatError(f"{place}.samples: {sample}; accepted: seconds from {SHORTEST:g} to {LONGEST:g}")
        if not 0 <= record.weight <= LARGEST_WEIGHT:
            raise FormatError(f"{place}.weight: {record.weight}; accepted: numbers from 0 to {LARGEST_WEIGHT:g}")
        if not (record.case.isprintable() and record.backend.isprintable()):
            raise FormatError(f"{place}: {record.case!a:.60} {record.backend!a:.60}: names that do not print")
    return report
