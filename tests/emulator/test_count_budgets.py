"""Counts of fixed cases keep their budgets, and each limit can be broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msa_ops import _C
from msa_ops.emulator import Launch, Report, TensorBytes, count_budgets
from msa_ops.emulator.count_budgets import read

FOLDER = Path(__file__).parents[2] / "perf" / "budgets" / "counts"
FILE = FOLDER / "gfx950.json"
CASES = {(file.stem, name): case for file in sorted(FOLDER.glob("*.json")) for name, case in read(file).items()}


def built(arch: str) -> bool:
    return any(known == arch for _, known in (*_C.compiled_kernels(), *_C.code_objects()))


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "name"), CASES)
def test_counts_keep_their_budgets(arch: str, name: str) -> None:
    if not built(arch):
        pytest.skip(f"this build of msa_ops holds no kernels for {arch}")
    case = CASES[arch, name]
    found = count_budgets.measure(arch, case)
    assert count_budgets.violations(name, case, found) == [], (
        "less is welcome, more needs a reason; python -m msa_ops.emulator.count_budgets --write FILE"
    )
    # None is so loose that it says nothing.
    for key, most in case["most"].items():
        assert most <= max(found[key] * 1.02, found[key] + 0.0), key


def test_every_arch_has_cases() -> None:
    assert {arch for arch, _ in CASES} == {"sm_90a", "sm_100a", "sm_103a", "gfx950"}
    assert all(case["most"] for case in CASES.values())


def launch(kernel: str = "scan", **changed: Any) -> Launch:
    values: dict[str, Any] = {
        "warp_instructions": {"add.s32": 5}, "global_bytes_read": 0, "global_bytes_written": 0, "matrix_flops": {},
        "tensors": {"index_cache": TensorBytes(600, 589, 0, 0)}, "global_requests": 1, "global_sectors": 4,
        "shared_passes": 3, "shared_passes_at_least": 2, "waits": 0, "instructions_of_warp": {0: 5}, "launches": 1,
    }  # fmt: skip
    return Launch("indexer", "cute_sm90", kernel, Report(**{**values, **changed}))


def case_of(most: dict[str, float]) -> dict[str, Any]:
    return {"op": "indexer", "backend": None, "multiprocessors": 8, "arguments": {"seed": 1}, "most": most, "least": {}}


def test_launches_of_a_kernel_add_up_and_what_is_over_is_named() -> None:
    budgets = count_budgets.updated(case_of({}), count_budgets.common([launch(), launch()]))
    assert budgets["most"]["scan: warp_instructions"] == 10
    more = launch(warp_instructions={"add.s32": 6}, shared_passes=4)
    assert count_budgets.violations("a", budgets, count_budgets.common([launch(), more])) == [
        "a: 11 scan: warp_instructions, at most 10",
        "a: 3 scan: bank_conflicts, at most 2",
    ]
    assert count_budgets.violations("a", budgets, count_budgets.common([launch("merge")])) == [
        "a: merge has no budget",
        "a: scan has a budget and does not run",
    ]


def test_bytes_of_a_tensor() -> None:
    case = case_of({"bytes read of index_cache": 601})
    assert count_budgets.violations("a", case, count_budgets.common([launch()])) == []
    assert count_budgets.violations("a", case, count_budgets.common([launch(), launch("merge")])) == [
        "a: 1200 bytes read of index_cache, at most 601"
    ]
    assert count_budgets.violations("a", case, count_budgets.common([launch(tensors={})])) == [
        "a: bytes read of index_cache: not counted"
    ]


def test_new_limits_leave_those_of_tensors_and_of_the_op() -> None:
    found = count_budgets.common([launch()])
    case = case_of({"bytes read of index_cache": 601, "old: global_sectors": 3})
    most = count_budgets.updated(case, found)["most"]
    assert most["bytes read of index_cache"] == 601 and most["scan: global_sectors"] == 4
    assert "old: global_sectors" not in most
    own = case_of({"bytes_a_key": 73})
    assert count_budgets.updated(own, found) == own


CASE: dict[str, Any] = {
    "most": {
        "vector_instructions_a_value": 1.1,
        "lds_reads_a_value": 0.0665,
        "bytes_a_key": 73.44,
        "scratch_accesses": 0,
    },
    "least": {"columns_used": 1.0},
}
KEPT = {
    "vector_instructions_a_value": 1.09,
    "lds_reads_a_value": 0.065,
    "bytes_a_key": 72.4,
    "columns_used": 1.0,
    "scratch_accesses": 0.0,
}


def test_nothing_is_over() -> None:
    assert count_budgets.violations("a", CASE, KEPT) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("vector_instructions_a_value", 1.11, "a: 1.1100 vector_instructions_a_value, at most 1.1"),
        ("lds_reads_a_value", 0.07, "a: 0.0700 lds_reads_a_value, at most 0.0665"),
        ("bytes_a_key", 73.5, "a: 73.5000 bytes_a_key, at most 73.44"),
        ("columns_used", 0.75, "a: 0.7500 columns_used, at least 1.0"),
        ("scratch_accesses", 1.0, "a: 1.0000 scratch_accesses, at most 0"),
    ],
)
def test_each_limit_can_be_broken(key: str, value: float, said: str) -> None:
    assert count_budgets.violations("a", CASE, KEPT | {key: value}) == [said]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": "nothing"}, "accepted: .*op"),
        ({"most": {"speed": 1}}, "metrics .'speed'.; accepted"),
        ({"most": {"scan: speed": 1}}, "metrics .'scan: speed'.; accepted"),
        ({"op": "moe"}, "metrics .*'bytes_a_key'.*; accepted"),
        ({"x": 1}, "fields"),
    ],
)
def test_a_file_that_says_something_else(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    case = next(iter(json.loads(FILE.read_text()).values()))
    file = tmp_path / "gfx950.json"
    file.write_text(json.dumps({"a": case | change}))
    with pytest.raises(ValueError, match=said):
        count_budgets.read(file)


@pytest.mark.slow
@pytest.mark.skipif(not built("gfx950"), reason="this build of msa_ops holds no kernels of gfx950")
def test_the_command_fails_over_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = json.loads(FILE.read_text())
    for case in cases.values():
        case["arguments"]["seq_len"] = 4096  # too short for what does not grow with the pages
    file = tmp_path / "gfx950.json"
    file.write_text(json.dumps(cases))
    assert count_budgets.main([str(file)]) == 1
    said = capsys.readouterr()
    assert "vector_instructions_a_value, at most" in said.err and "columns_used=1.0000" in said.out
