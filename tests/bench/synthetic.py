"""Result files with made-up samples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from msa_ops.bench.environment import Environment
from msa_ops.bench.result import SCHEMA, SCHEMA_VERSION, Record, Report
from msa_ops.bench.roof import Roof


def environment(**changes: Any) -> Environment:
    values: dict[str, Any] = {
        "msa_ops": "0.1",
        "git_sha": "0" * 40,
        "git_dirty": False,
        "python": "3.11.7",
        "torch": "2.13.0",
        "toolkit": None,
        "driver": None,
        "system": "Linux",
        "device": "cpu",
        "device_name": "a CPU",
        "device_uuid": None,
        "power_limit_watts": None,
        "cpu": "a CPU",
        "threads": 1,
        "cache_bytes": 1 << 20,
        "memory_bytes": 1 << 30,
    }
    return Environment(**{**values, **changes})


def record(samples: Sequence[float] = (), case: str = "rms_norm[tokens=4]", **changes: Any) -> Record:
    values: dict[str, Any] = {
        "case": case,
        "op": "rms_norm",
        "op_version": 1,
        "dims": {"tokens": 4},
        "weight": 1.0,
        "tags": [],
        "backend": "reference",
        "provider": "msa_ops",
        "source_hash": "0123456789abcdef",
        "status": "ok",
        "reason": "",
        "reproduce": "msa-ops bench --op rms_norm",
        "seed": 0,
        "timer": "wall",
        "cold": "warm",
        "samples": list(samples),
    }
    return Record(**{**values, **changes})


def report(*records: Record, **changes: Any) -> Report:
    roof = Roof("cpu", {"read": 1e10}, {"fp32": 1e11}, True, ["made up"])
    created = "2026-01-01T00:00:00+00:00"
    return Report(SCHEMA, SCHEMA_VERSION, created, "made_up", environment(**changes), roof, list(records))


def normal(seed: object, count: int = 30, median: float = 1e-4, noise: float = 0.01) -> list[float]:
    """Samples with normal noise relative to the median."""
    generator = random.Random(str(seed))
    return [median * (1 + noise * generator.gauss(0, 1)) for _ in range(count)]
