"""The suite in the emulator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from msa_ops.emulator import run_ptx
from tests.emulator.silicon import suite


def results(program: suite.Program) -> list[NDArray[np.generic]]:
    """What the emulator gives, an array for each result."""
    values = suite.operand_values(program)
    given = np.concatenate([np.frombuffer(value.tobytes(), np.uint8) for value in values] or [np.zeros(8, np.uint8)])
    starts = np.cumsum([0, *(value.nbytes for value in values)])
    offsets = [int(start) for start in starts[:-1]] + [0] * (5 - len(values))
    places = np.cumsum([0, *(size * suite.COUNT for size in program.outputs)])
    out = np.zeros(int(places[-1]), np.uint8)
    to = [int(place) for place in places[:-1]] + [0] * (3 - len(program.outputs))
    text = suite.module([program])
    run_ptx(text, program.entry, suite.COUNT // 256, 256, [_aligned(given), *offsets, out_ := _aligned(out), *to])
    return [
        out_[place : place + size * suite.COUNT].view(f"uint{8 * size}")
        for place, size in zip(places, program.outputs, strict=False)
    ]


def _aligned(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    memory = np.zeros(data.size + 16, np.uint8)
    start = -memory.ctypes.data % 16
    memory[start : start + data.size] = data
    return memory[start : start + data.size]
