"""Kernels on memory and matrices leave the bytes in the emulator that they left on a GPU.

h200_cases.txt holds what an H200 gave, as a digest a case; emulated_cases.py and cases_on_gpu.py make such digests
anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.silicon import all_cases, emulated_cases
from tests.emulator.silicon.cases import digest

DIGESTS = dict(
    line.rsplit(" ", 1)
    for line in (Path(__file__).parent / "h200_cases.txt").read_text().splitlines()
    if line[:1] != "#"
)
CASES = {case.name: case for case in all_cases.cases(emulated_cases.forms())}
PARTS = 4


def check(names: list[str]) -> None:
    assert not [name for name in names if digest(emulated_cases.run(CASES[name])) != DIGESTS[name]]


def test_the_gpu_has_run_the_cases() -> None:
    assert set(DIGESTS) == set(CASES), "run the cases on a GPU again; see docs/emulator.md"


def test_some_cases() -> None:
    check(list(DIGESTS)[::25])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_cases(part: int) -> None:
    assert len(DIGESTS) > 3400
    check(list(DIGESTS)[part::PARTS])
