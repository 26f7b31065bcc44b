"""Budgets of what an op's kernels do on an emulated chip: counts of a fixed case, checked in as
`perf/budgets/counts/<arch>.json`.

A file maps a case's name to op, backend (null: what the registry chooses), multiprocessors, arguments (of the op's
`generate`, with `seed`), `most` and `least`: metric -> limit. Counts are exact and the same in every run, so a limit
has no slack but for its last digit. Metrics are

* `KERNEL: COUNT` of all launches of a kernel, COUNT one of `COUNTS`. A case that has one has to have all kernels.
* `bytes read of TENSOR` by all kernels of the call, as often as they are asked for.
* what `OWN` says of an op on an arch.

`python -m msa_ops.emulator.count_budgets perf/budgets/counts/*.json` prints what is measured and fails over a limit;
with `--write` the limits of kernels become what was measured. It needs a build with the kernels of these archs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msa_ops
from msa_ops import whole_file
from msa_ops.emulator.chip import Launch
from msa_ops.emulator.run import Report
from msa_ops.registry import STORE

FIELDS = {"op", "backend", "multiprocessors", "arguments", "most", "least"}
READ_OF = "bytes read of "
COUNTS: dict[str, Callable[[Report], int]] = {
    "warp_instructions": lambda report: report.total_warp_instructions,
    "global_sectors": lambda report: report.global_sectors,
    "bank_conflicts": lambda report: report.bank_conflicts,
    "bytes_read": lambda report: sum(tensor.read for tensor in report.tensors.values()),
    "bytes_written": lambda report: sum(tensor.written for tensor in report.tensors.values()),
}


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Raises ValueError for a file that is not a table of cases of an arch."""
    try:
        cases = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None
    for name, case in cases.items():
        if set(case) != FIELDS or case["op"] not in STORE.ops():
            raise ValueError(f"{file}: {name}: fields {sorted(case)}; accepted: {sorted(FIELDS)}, op {STORE.ops()}")
        own = OWN.get((file.stem, case["op"]), (None, ()))[1]
        unknown = {key for key in (*case["most"], *case["least"]) if not (key in own or _is_common(key))}
        if unknown:
            wanted = [f"KERNEL: {count}" for count in COUNTS] + [f"{READ_OF}TENSOR", *own]
            raise ValueError(f"{file}: {name}: metrics {sorted(unknown)}; accepted: {wanted}")
    return cases


def _is_common(metric: str) -> bool:
    return metric.partition(": ")[2] in COUNTS or metric.startswith(READ_OF)


def kernel_of(metric: str) -> str | None:
    kernel, _, count = metric.partition(": ")
    return kernel if count in COUNTS else None


def run(arch: str, case: Mapping[str, Any]) -> tuple[Any, list[Launch]]:
    """The case's arguments, and what its call launches. Raises NotImplementedError if the build lacks a kernel."""
    args = STORE.op(case["op"]).generate(**case["arguments"], device="cpu")
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate(arch, multiprocessors=case["multiprocessors"]) as chip:
        getattr(msa_ops, case["op"])(**values, backend=case["backend"])
    return args, chip.launches


def measure(arch: str, case: Mapping[str, Any]) -> dict[str, float]:
    """Every metric of the case. Raises NotImplementedError if the build lacks a kernel."""
    args, launches = run(arch, case)
    own = OWN.get((arch, case["op"]))
    return common(launches) | (own[0](args, launches) if own else {})


def common(launches: Sequence[Launch]) -> dict[str, float]:
    """The metrics that every op has."""
    found: dict[str, float] = {}
    for launch in launches:
        for count, of in COUNTS.items():
            metric = f"{launch.kernel}: {count}"
            found[metric] = found.get(metric, 0) + of(launch.report)
        for tensor, moved in launch.report.tensors.items():
            found[READ_OF + tensor] = found.get(READ_OF + tensor, 0) + moved.read
    return found


def violations(name: str, case: Mapping[str, Any], found: Mapping[str, float]) -> list[str]:
    """One line for each limit that is not kept."""
    limits = {**case["most"], **case["least"]}
    budgeted, ran = ({kernel_of(metric) for metric in metrics} - {None} for metrics in (limits, found))
    said = [f"{name}: {kernel} has no budget" for kernel in sorted(ran - budgeted, key=str) if budgeted]
    said += [f"{name}: {kernel} has a budget and does not run" for kernel in sorted(budgeted - ran, key=str)]
    for limited, word, breaks in (
        (case["most"], "most", lambda value, limit: value > limit),
        (case["least"], "least", lambda value, limit: value < limit),
    ):
        for metric, limit in limited.items():
            if kernel_of(metric) in budgeted - ran:
                continue
            if metric not in found:
                said.append(f"{name}: {metric}: not counted")
            elif breaks(found[metric], limit):
                said.append(f"{name}: {_number(found[metric])} {metric}, at {word} {limit}")
    return said


def updated(case: Mapping[str, Any], found: Mapping[str, float]) -> dict[str, Any]:
    """The case with the limits of its kernels as measured, if it has such or none at all."""
    kept = {metric: limit for metric, limit in case["most"].items() if kernel_of(metric) is None}
    if case["most"] and len(kept) == len(case["most"]) and not any(metric.startswith(READ_OF) for metric in kept):
        return dict(case)
    kernels = {metric: round(value) for metric, value in found.items() if kernel_of(metric) is not None}
    return {**case, "most": kept | kernels}


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def _count(report: Report, *prefixes: str, but: str = " ") -> int:
    return sum(
        count
        for name, count in report.warp_instructions.items()
        if name.startswith(prefixes) and not name.startswith(but)
    )


def _indexer_gfx950(args: Any, launches: Sequence[Launch]) -> dict[str, float]:
    """Of the scan, by value of an index key (128 a key): vector instructions without matrix products, and reads of
    the table and whatever else in LDS, both of 64 lanes. Of both kernels: these instructions, and bytes of global
    memory by key. The part of
    the matrix products' columns that hold a query; accesses of scratch memory.
    """
    scan, merge = (launch.report for launch in launches)
    keys = int(args.seq_lens.sum())
    columns = args.index_q.shape[0] // args.seq_lens.numel() * args.index_q.shape[1]
    lanes = keys * 128 / 64
    return {
        "vector_instructions_a_value": _count(scan, "v_", but="v_mfma") / lanes,
        "vector_instructions_a_value_of_the_call": sum(_count(one, "v_", but="v_mfma") for one in (scan, merge))
        / lanes,
        "lds_reads_a_value": _count(scan, "ds_read") / lanes,
        "bytes_a_key": (scan.global_bytes_read + merge.global_bytes_read) / keys,
        "columns_used": 2 * keys * 128 * columns / sum(scan.matrix_flops.values()),
        "scratch_accesses": float(_count(scan, "scratch_") + _count(merge, "scratch_")),
    }


OWN: dict[tuple[str, str], tuple[Callable[[Any, Sequence[Launch]], dict[str, float]], tuple[str, ...]]] = {
    ("gfx950", "indexer"): (
        _indexer_gfx950,
        (
            "vector_instructions_a_value",
            "vector_instructions_a_value_of_the_call",
            "lds_reads_a_value",
            "bytes_a_key",
            "columns_used",
            "scratch_accesses",
        ),
    ),
}
"""By arch and op: what measures, and the names of its metrics."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m msa_ops.emulator.count_budgets", description=__doc__)
    parser.add_argument("file", type=Path, nargs="+", help="perf/budgets/counts/ARCH.json")
    parser.add_argument("--write", action="store_true", help="limits of kernels that are exactly what was counted")
    options = parser.parse_args(argv)
    over = []
    for file in options.file:
        cases = read(file)
        for name, case in cases.items():
            found = measure(file.stem, case)
            print(name, *(f"{key}={_number(value)}" for key, value in found.items()))
            if options.write:
                cases[name] = case = updated(case, found)
            over += violations(name, case, found)
        if options.write:
            whole_file.write(file, json.dumps(cases, indent=1) + "\n")
    print("\n".join(over), file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
