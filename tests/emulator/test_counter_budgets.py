"""Kernels stay within what they did when their budgets were written; what is over a budget is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msa_ops import _C
from msa_ops.emulator import Launch, Report, TensorBytes
from tests.emulator.counter_budgets import CASES, FILE, counts_of, launches_of, violations

BUDGETS = json.loads(FILE.read_text())


def launch(**changed: Any) -> Launch:
    values: dict[str, Any] = {
        "warp_instructions": {"add.s32": 5}, "global_bytes_read": 0, "global_bytes_written": 0, "matrix_flops": {},
        "tensors": {"index_cache": TensorBytes(600_000, 589_824, 0, 0)}, "global_requests": 1, "global_sectors": 4,
        "shared_passes": 3, "shared_passes_at_least": 2, "waits": 0, "instructions_of_warp": {0: 5}, "launches": 1,
    }  # fmt: skip
    return Launch("indexer", "cute_sm90", "scan", Report(**{**values, **changed}))


def test_every_case_has_budgets() -> None:
    assert list(BUDGETS) == list(CASES)
    assert all(BUDGETS.values())


def test_what_is_over_a_budget_is_named() -> None:
    budgets = counts_of([launch(), launch()])
    assert budgets["scan"]["warp_instructions"] == 10
    assert violations("case", [launch(), launch()], budgets) == []
    more = launch(warp_instructions={"add.s32": 6}, shared_passes=4)
    assert violations("case", [launch(), more], budgets) == [
        "case: scan: 11 warp_instructions, budget 10", "case: scan: 3 bank_conflicts, budget 2"
    ]  # fmt: skip
    assert violations("case", [launch()], {"merge": budgets["scan"]}) == [
        "case: scan has no budget", "case: merge has a budget and does not run"
    ]  # fmt: skip


def test_keys_are_read_little_more_than_once() -> None:
    name = "indexer decode"
    assert violations(name, [launch()], counts_of([launch()])) == []
    twice = launch(tensors={"index_cache": TensorBytes(1_179_648, 589_824, 0, 0)})
    assert violations(name, [twice], counts_of([twice])) == [
        "indexer decode: 1179648 bytes read of index_cache, at most 601620"
    ]
    none = launch(tensors={})
    assert violations(name, [none], counts_of([none])) == [
        "indexer decode: 0 bytes read of index_cache, at most 601620"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_within_their_budgets(name: str) -> None:
    if not any(arch == CASES[name].arch for _, arch in _C.compiled_kernels()):
        pytest.skip(f"this build of msa_ops holds no kernels for {CASES[name].arch}")
    assert violations(name, launches_of(CASES[name]), BUDGETS[name]) == [], (
        "less is welcome, more needs a reason; python -m tests.emulator.counter_budgets --write"
    )
