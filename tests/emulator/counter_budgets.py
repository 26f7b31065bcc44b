"""Budgets of what kernels do, as the emulator counts it: perf/emulated_budgets.json.

Of one fixed call an op and chip, for each kernel that it launches: warp instructions, sectors of global memory, bank
conflicts, bytes read and written, none of which depends on a schedule. `AT_MOST` holds bytes of one tensor
against what the op has to read. `python -m tests.emulator.counter_budgets --write` measures all cases anew, in a build
with kernels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import msa_ops
from msa_ops.emulator import Launch
from msa_ops.ops import dense_attention, indexer, qk_norm_rope_insert, quantize_nvfp4, select_blocks, sparse_attention
from tests.emulator.speed import E4M3, Case

FILE = Path(__file__).parents[2] / "perf" / "emulated_budgets.json"
KEYS = 8192
INDEXER: dict[str, Any] = {"batch": 1, "seq_len": KEYS, "q_len": 1, "num_heads": 4}
CASES = {
    "quantize_nvfp4": Case(quantize_nvfp4, "sm_90a", {}),
    "select_blocks": Case(select_blocks, "sm_90a", {}),
    "qk_norm_rope_insert": Case(qk_norm_rope_insert, "sm_90a", {}),
    "sparse_attention decode": Case(sparse_attention, "sm_90a", {"batch": 2, "seq_len": 2048, "topk": 8, "q_len": 1}),
    "sparse_attention verification": Case(
        sparse_attention, "sm_90a", {"batch": 12, "seq_len": 512, "topk": 3, "q_len": 8, "overlap": 0.8}
    ),
    "sparse_attention prefill": Case(sparse_attention, "sm_90a", {"batch": 1, "seq_len": 512, "topk": 3, "q_len": 64}),
    "dense_attention prefill": Case(dense_attention, "sm_90a", {"batch": 1, "seq_len": 512, "q_len": 64}),
    "indexer decode": Case(indexer, "sm_90a", INDEXER),
    "indexer decode on sm_100a": Case(indexer, "sm_100a", {**INDEXER, **E4M3}),
    "indexer decode on sm_103a": Case(indexer, "sm_103a", {**INDEXER, **E4M3}),
}
INDEX_BYTES = 72
"""Of a key: 64 of codes and 8 of scale factors."""
AT_MOST = {name: {"index_cache": 1.02 * INDEX_BYTES * KEYS} for name in CASES if name.startswith("indexer decode")}
"""Bytes that all kernels of a call together read of a tensor."""


def launches_of(case: Case) -> list[Launch]:
    args = case.op.generate(1, **case.dims)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate(case.arch, multiprocessors=case.multiprocessors) as chip:
        getattr(msa_ops, case.name)(**values)
    return chip.launches


def counts_of(launches: list[Launch]) -> dict[str, dict[str, int]]:
    """By kernel; what several launches of one kernel did is added."""
    made: dict[str, dict[str, int]] = {}
    for launch in launches:
        report = launch.report
        counts = {
            "warp_instructions": report.total_warp_instructions,
            "global_sectors": report.global_sectors,
            "bank_conflicts": report.bank_conflicts,
            "bytes_read": sum(tensor.read for tensor in report.tensors.values()),
            "bytes_written": sum(tensor.written for tensor in report.tensors.values()),
        }
        known = made.setdefault(launch.kernel, dict.fromkeys(counts, 0))
        made[launch.kernel] = {name: known[name] + count for name, count in counts.items()}
    return made


def violations(name: str, launches: list[Launch], budgets: dict[str, dict[str, int]]) -> list[str]:
    """One line for everything that is over the budget of the case."""
    found = counts_of(launches)
    lines = [f"{name}: {kernel} has no budget" for kernel in sorted(set(found) - set(budgets))]
    lines += [f"{name}: {kernel} has a budget and does not run" for kernel in sorted(set(budgets) - set(found))]
    for kernel in sorted(set(found) & set(budgets)):
        lines += [
            f"{name}: {kernel}: {count} {what}, budget {budgets[kernel].get(what)}"
            for what, count in found[kernel].items()
            if count > budgets[kernel].get(what, -1)
        ]
    for tensor, most in AT_MOST.get(name, {}).items():
        read = sum(launch.report.tensors[tensor].read for launch in launches if tensor in launch.report.tensors)
        if not 0 < read <= most:
            lines.append(f"{name}: {read} bytes read of {tensor}, at most {most:.0f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks or writes budgets of what kernels do on the emulator.")
    parser.add_argument("--write", action="store_true", help="budgets that are exactly what was counted")
    args = parser.parse_args()
    measured = {name: launches_of(case) for name, case in CASES.items()}
    if args.write:
        budgets = {name: counts_of(launches) for name, launches in measured.items()}
        FILE.write_text(json.dumps(budgets, indent=1) + "\n")
        return
    budgets = json.loads(FILE.read_text())
    lines = [line for name, found in measured.items() for line in violations(name, found, budgets.get(name, {}))]
    print("\n".join(lines) or f"{len(measured)} calls are within their budgets")
    raise SystemExit(bool(lines))


if __name__ == "__main__":
    main()
