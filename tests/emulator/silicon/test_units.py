"""The multifunction unit's approximations: 2^18 operands beside each other give what an H200 gave, at many places.

units_h200.txt has sums of what the chip gave for all 2^32 operands in 16,384 pieces of 2^18; here are about 30 of each
instruction: zeros, subnormal numbers, both ends, infinity and NaN, numbers near one, and places drawn at random. Of
fp64 the operands are the upper words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from msa_ops.emulator import run_ptx
from tests.emulator.programs import apply
from tests.emulator.silicon.units_on_gpu import sum_kernel

COUNT = 1 << 18
LINES = [
    line.split(" ") for line in (Path(__file__).parent / "units_h200.txt").read_text().splitlines() if line[0] != "#"
]
OPCODES = list(dict.fromkeys(line[0] for line in LINES))


def mixed_sum(results: np.ndarray, operands: np.ndarray) -> int:
    """A sum that hardly any other results have."""
    mixed = results * np.uint32(0x9E3779B1) + operands * np.uint32(0x85EBCA77)
    for shift, factor in ((15, 0x2C1B3C6D), (13, 0x297A2D39)):
        mixed ^= mixed >> np.uint32(shift)
        mixed *= np.uint32(factor)
    mixed ^= mixed >> np.uint32(16)
    return int(mixed.sum(dtype=np.uint64))


def results(opcode: str, operands: np.ndarray) -> np.ndarray:
    if not opcode.endswith("f64"):
        return apply(f"{opcode} D, A", "uint32", operands)
    wide = apply(f"{opcode} D, A", "uint64", operands.astype(np.uint64) << np.uint64(32))
    assert not (wide & np.uint64(0xFFFFFFFF)).any()
    return (wide >> np.uint64(32)).astype(np.uint32)


def check(lines: list[list[str]]) -> None:
    different = []
    for opcode, place, wanted in lines:
        operands = np.arange(COUNT, dtype=np.uint32) + np.uint32(int(place) * COUNT)
        if mixed_sum(results(opcode, operands), operands) != int(wanted, 16):
            different.append((opcode, hex(int(place) * COUNT)))
    assert not different


@pytest.mark.parametrize("opcode", OPCODES)
def test_the_kernel_that_sums_on_a_gpu(opcode: str) -> None:
    """What units_on_gpu.py launches, here for 512 operands."""
    total = np.zeros(1, np.uint64)
    run_ptx(sum_kernel(opcode), "k", 2, 256, [total, 0x3F7FFF00])
    operands = np.arange(512, dtype=np.uint32) + np.uint32(0x3F7FFF00)
    assert int(total[0]) == mixed_sum(results(opcode, operands), operands)


@pytest.mark.parametrize("opcode", OPCODES)
def test_a_place(opcode: str) -> None:
    (line, *_) = [line for line in LINES if line[0] == opcode and 0x3A00 <= int(line[1]) * 4 < 0x4200]
    check([line])


@pytest.mark.slow
@pytest.mark.parametrize("opcode", OPCODES)
def test_all_places(opcode: str) -> None:
    lines = [line for line in LINES if line[0] == opcode]
    assert len(lines) > 20
    check(lines)
