"""Counts of fixed cases keep their budgets, and each limit can be broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msa_ops import _C
from msa_ops.emulator import count_budgets

FILE = Path(__file__).parents[3] / "perf" / "budgets" / "counts" / "gfx950.json"
BUILT = ("indexer__scan_nvfp4_16__gfx950", "gfx950") in _C.code_objects()


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="this build of msa_ops holds no kernels of gfx950")
@pytest.mark.parametrize("name", count_budgets.read(FILE))
def test_counts_keep_their_budgets(name: str) -> None:
    case = count_budgets.read(FILE)[name]
    found = count_budgets.measure("gfx950", case)
    assert count_budgets.violations(name, case, found) == []
    # None is so loose that it says nothing.
    for key, most in case["most"].items():
        assert most <= max(found[key] * 1.02, found[key] + 0.0), key


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
    [({"op": "moe"}, "accepted: .*op"), ({"most": {"speed": 1}}, "metrics .'speed'.; accepted"), ({"x": 1}, "fields")],
)
def test_a_file_that_says_something_else(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    case = next(iter(json.loads(FILE.read_text()).values()))
    file = tmp_path / "gfx950.json"
    file.write_text(json.dumps({"a": case | change}))
    with pytest.raises(ValueError, match=said):
        count_budgets.read(file)


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="this build of msa_ops holds no kernels of gfx950")
def test_the_command_fails_over_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = json.loads(FILE.read_text())
    for case in cases.values():
        case["arguments"]["seq_len"] = 4096  # too short for what does not grow with the pages
    file = tmp_path / "gfx950.json"
    file.write_text(json.dumps(cases))
    assert count_budgets.main([str(file)]) == 1
    said = capsys.readouterr()
    assert "vector_instructions_a_value, at most" in said.err and "columns_used=1.0000" in said.out
