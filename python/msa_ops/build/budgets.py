"""Budgets of compiled kernels: what a kernel may use, checked in as `perf/budgets/<arch>.json`.

A budget holds, for each kernel name: registers, shared_memory (bytes), instructions (SASS or ISA, at most), for AMD
kernels scalar_registers and main_loop_vector too (vector instructions of the loop with the most matrix products), and
optionally `required` and `forbidden` opcode prefixes, `at_most` (opcode prefix -> instructions) and `waves_per_simd`
(occupancy, at least; AMD).
FlyDSL's compiler does not always give the same code for the same source (3,804 or 3,805 instructions have been seen).
So what AMD kernels use, but for shared memory, may be over by 1 %.
A kernel without a budget, and a budget without a kernel, are violations: both mean that the file no longer describes
the build.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FIELDS = ("registers", "shared_memory", "instructions")
AMD_FIELDS = ("scalar_registers", "main_loop_vector")
RULES = ("required", "forbidden", "at_most", "waves_per_simd")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_prefixes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(prefix, str) for prefix in value)


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


_KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys((*FIELDS, *AMD_FIELDS, "waves_per_simd"), _is_count),
    **dict.fromkeys(("required", "forbidden"), _are_prefixes),
    "at_most": _are_counts,
}


def measured(metadata: dict[str, Any]) -> dict[str, int]:
    """The budgeted quantities of one kernel."""
    return {
        "registers": metadata["registers"],
        "shared_memory": metadata["static_shared_memory"] + metadata["dynamic_shared_memory"],
        "instructions": sum(metadata["instructions"].values()),
        **{key: metadata[key] for key in AMD_FIELDS if key in metadata},
    }


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Raises ValueError for a file that is not a table of budgets."""
    try:
        budgets = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None
    if not isinstance(budgets, dict):
        raise ValueError(f"{file}: a {type(budgets).__name__}; accepted: a table of budgets, one for each kernel")
    for name, budget in budgets.items():
        if not isinstance(budget, dict):
            raise ValueError(f"{file}: {name}: {budget!r}; accepted: a table with {', '.join(FIELDS)}")
        unknown = set(budget) - set(_KINDS)
        missing = set(FIELDS) - set(budget)
        if unknown or missing:
            raise ValueError(f"{file}: {name}: unknown {sorted(unknown)}, missing {sorted(missing)}")
        for key, value in budget.items():
            if not _KINDS[key](value):
                raise ValueError(f"{file}: {name}: {key}: {value!r} is none")
    return budgets


def violations(metadata: Sequence[dict[str, Any]], budgets: dict[str, dict[str, Any]]) -> list[str]:
    """One line for everything that is over its budget."""
    lines = []
    found = {entry["name"]: entry for entry in metadata}
    lines += [f"{name}: has no budget" for name in sorted(set(found) - set(budgets))]
    lines += [f"{name}: has a budget but is not built" for name in sorted(set(budgets) - set(found))]
    for name in sorted(set(found) & set(budgets)):
        budget, used = budgets[name], measured(found[name])
        amd = "scalar_registers" in used
        for key, value in used.items():
            if value > _with_slack(budget.get(key, -1), amd and key != "shared_memory"):
                lines.append(f"{name}: {value} {key}, budget {budget.get(key, 'none')}")
        if found[name].get("waves_per_simd", 0) < budget.get("waves_per_simd", 0):
            lines.append(
                f"{name}: {found[name]['waves_per_simd']} waves a SIMD unit, wanted {budget['waves_per_simd']}"
            )
        opcodes = found[name]["instructions"]
        for prefix in budget.get("required", ()):
            if not any(opcode.startswith(prefix) for opcode in opcodes):
                lines.append(f"{name}: no {prefix} instruction")
        for prefix in budget.get("forbidden", ()):
            if any(opcode.startswith(prefix) for opcode in opcodes):
                lines.append(f"{name}: has {prefix} instructions")
        for prefix, most in budget.get("at_most", {}).items():
            count = sum(n for opcode, n in opcodes.items() if opcode.startswith(prefix))
            if count > _with_slack(most, amd):
                lines.append(f"{name}: {count} {prefix} instructions, budget {most}")
    return lines


def _with_slack(budget: int, slack: bool) -> int:
    return budget + budget // 100 if slack and budget > 0 else budget


def updated(
    metadata: Sequence[dict[str, Any]], budgets: dict[str, dict[str, Any]], ops: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Budgets that are exactly what the kernels use; opcode rules of kernels that remain are kept.

    `ops`: what `metadata` is limited to; budgets of other ops stay as they are.
    """
    others = {name: budget for name, budget in budgets.items() if ops and name.partition("__")[0] not in ops}
    found = {
        entry["name"]: {
            **{key: rule for key, rule in budgets.get(entry["name"], {}).items() if key in RULES},
            **measured(entry),
        }
        for entry in metadata
    }
    return dict(sorted({**others, **found}.items()))
