"""Budgets of what an op's kernels do on an emulated chip: counts of a fixed case, checked in as
`perf/budgets/counts/<arch>.json`.

A file maps a case's name to op, backend, multiprocessors, arguments (of the op's `generate`, with `seed`), `most` and
`least`: metric -> limit. Counts are exact and the same in every run, so a limit has no slack but for its last digit.

`python -m msa_ops.emulator.count_budgets perf/budgets/counts/gfx950.json` prints what is measured and fails over a
limit. It needs a build with the arch's kernels.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msa_ops
from msa_ops.emulator.run import Report
from msa_ops.ops import indexer

FIELDS = {"op", "backend", "multiprocessors", "arguments", "most", "least"}


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Raises ValueError for a file that is not a table of cases."""
    try:
        cases = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None
    for name, case in cases.items():
        if set(case) != FIELDS or case["op"] not in METRICS:
            raise ValueError(f"{file}: {name}: fields {sorted(case)}; accepted: {sorted(FIELDS)}, op {list(METRICS)}")
        unknown = (set(case["most"]) | set(case["least"])) - set(METRICS[case["op"]][1])
        if unknown:
            raise ValueError(f"{file}: {name}: metrics {sorted(unknown)}; accepted: {list(METRICS[case['op']][1])}")
    return cases


def measure(arch: str, case: Mapping[str, Any]) -> dict[str, float]:
    """Every metric of the case's op. Raises NotImplementedError if the build lacks a kernel."""
    return METRICS[case["op"]][0](arch, case)


def violations(name: str, case: Mapping[str, Any], found: Mapping[str, float]) -> list[str]:
    """One line for each limit that is not kept."""
    over = [
        f"{name}: {found[key]:.4f} {key}, at most {most}" for key, most in case["most"].items() if found[key] > most
    ]
    return over + [
        f"{name}: {found[key]:.4f} {key}, at least {least}"
        for key, least in case["least"].items()
        if found[key] < least
    ]


def _count(report: Report, *prefixes: str, but: str = " ") -> int:
    return sum(
        count
        for name, count in report.warp_instructions.items()
        if name.startswith(prefixes) and not name.startswith(but)
    )


def _indexer(arch: str, case: Mapping[str, Any]) -> dict[str, float]:
    """Of the scan, by value of an index key (128 a key): vector instructions without matrix products, and reads of
    the table and whatever else in LDS, both of 64 lanes. Of both kernels: bytes of global memory by key. The part of
    the matrix products' columns that hold a query; accesses of scratch memory.
    """
    args = indexer.generate(**case["arguments"])
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    with msa_ops.emulate(arch, multiprocessors=case["multiprocessors"]) as chip:
        msa_ops.indexer(**values, backend=case["backend"])
    scan, merge = (launch.report for launch in chip.launches)
    keys = int(args.seq_lens.sum())
    columns = args.index_q.shape[0] // args.seq_lens.numel() * args.index_q.shape[1]
    lanes = keys * 128 / 64
    return {
        "vector_instructions_a_value": _count(scan, "v_", but="v_mfma") / lanes,
        "lds_reads_a_value": _count(scan, "ds_read") / lanes,
        "bytes_a_key": (scan.global_bytes_read + merge.global_bytes_read) / keys,
        "columns_used": 2 * keys * 128 * columns / sum(scan.matrix_flops.values()),
        "scratch_accesses": float(_count(scan, "scratch_") + _count(merge, "scratch_")),
    }


METRICS: dict[str, tuple[Callable[[str, Mapping[str, Any]], dict[str, float]], tuple[str, ...]]] = {
    "indexer": (
        _indexer,
        ("vector_instructions_a_value", "lds_reads_a_value", "bytes_a_key", "columns_used", "scratch_accesses"),
    ),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m msa_ops.emulator.count_budgets", description=__doc__)
    parser.add_argument("file", type=Path, help="perf/budgets/counts/ARCH.json")
    file = parser.parse_args(argv).file
    over = []
    for name, case in read(file).items():
        found = measure(file.stem, case)
        print(name, *(f"{key}={value:.4f}" for key, value in found.items()))
        over += violations(name, case, found)
    print("\n".join(over), file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
