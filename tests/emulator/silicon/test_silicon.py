"""The emulator gives the bits that a GPU gave, instruction by instruction.

h200.txt holds what an H200 gave, as a digest an instruction; `python -m tests.emulator.silicon.prepare` and on_gpu.py
make such digests anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.silicon import emulated, suite

DIGESTS = dict(
    line.rsplit(" ", 1) for line in (Path(__file__).parent / "h200.txt").read_text().splitlines() if line[:1] != "#"
)
PROGRAMS = {program.opcode: program for program in suite.programs()}


def check(opcodes: list[str]) -> None:
    different = [name for name in opcodes if suite.digest(emulated.results(PROGRAMS[name])) != DIGESTS[name]]
    assert not different


def test_the_gpu_has_run_every_instruction() -> None:
    missing = {opcode for opcode in PROGRAMS if opcode not in DIGESTS}
    assert not missing, "run the suite on a GPU again; see docs/emulator.md"


def test_some_instructions() -> None:
    names = sorted(set(DIGESTS) & set(PROGRAMS))
    check(names[::40])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_instructions(part: int) -> None:
    names = sorted(set(DIGESTS) & set(PROGRAMS))
    assert len(names) > 10000
    check(names[part::8])
