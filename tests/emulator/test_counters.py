"""Counts of memory traffic, conflicts and waits, against what small kernels must do."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import Report, TensorBytes
from tests.emulator.programs import run

SHARED = ".shared .align 16 .b8 memory[4096];"


def aligned(bytes_: int) -> np.ndarray:
    """Zeros that start where a sector starts."""
    memory = np.zeros(bytes_ + 32, np.uint8)
    start = -memory.ctypes.data % 32
    return memory[start : start + bytes_]


def test_bytes_by_tensor_and_first_touch() -> None:
    source, target = aligned(256), aligned(256)
    report = run(
        "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd0, %rd10; add.s64 %rd12, %rd1, %rd10;"
        "ld.global.b32 %r1, [%rd11]; ld.global.b32 %r2, [%rd11+128]; ld.global.b32 %r3, [%rd11];"
        "st.global.b32 [%rd12], %r1; st.global.b32 [%rd12], %r2; atom.global.add.u32 %r4, [%rd12], %r3;",
        source,
        target,
    )
    assert report.tensors == {
        "argument 0": TensorBytes(3 * 128, 2 * 128, 0, 0),
        "argument 1": TensorBytes(128, 128, 3 * 128, 128),
    }
    assert (report.global_bytes_read, report.global_bytes_written) == (4 * 128, 3 * 128)
    assert (report.global_requests, report.global_sectors) == (5, 20)


@pytest.mark.parametrize(("stride", "sectors"), [(4, 4), (8, 8), (32, 32), (0, 1), (64, 32)])
def test_sectors(stride: int, sectors: int) -> None:
    data = aligned(2048)
    report = run(f"mul.wide.u32 %rd10, %r0, {stride}; add.s64 %rd10, %rd0, %rd10; ld.global.b32 %r1, [%rd10];", data)
    assert (report.global_requests, report.global_sectors) == (1, sectors)


def shared(width: int, stride: int, padding: str = "") -> Report:
    """One store of `width` bytes a lane, `stride` bytes apart."""
    registers = {4: "%r0", 8: "{%r0, %r0}", 16: "{%r0, %r0, %r0, %r0}"}[width]
    vector = {4: "", 8: ".v2", 16: ".v4"}[width]
    text = (
        f"mov.u32 %r5, memory; mad.lo.u32 %r6, %r0, {stride}, %r5; {padding} st.shared{vector}.b32 [%r6], {registers};"
    )
    return run(text, np.zeros(1, np.uint32), declarations=SHARED)


@pytest.mark.parametrize(
    ("width", "stride", "passes", "least"),
    [
        (4, 4, 1, 1),
        (4, 8, 2, 1),
        (4, 64, 16, 1),
        (4, 128, 32, 1),
        (4, 0, 1, 1),
        (8, 8, 2, 2),
        (8, 16, 4, 2),
        (16, 16, 4, 4),
        (16, 128, 32, 4),
    ],
)
def test_bank_conflicts(width: int, stride: int, passes: int, least: int) -> None:
    report = shared(width, stride)
    assert (report.shared_passes, report.shared_passes_at_least) == (passes, least)
    assert report.bank_conflicts == passes - least


def test_warps_and_waits() -> None:
    report = run(
        "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra LATE; add.u32 %r2, %r1, 1; add.u32 %r2, %r2, 1;"
        "LATE: bar.sync 0;",
        np.zeros(1, np.uint32),
        threads=64,
        blocks=3,
    )
    first, second = report.instructions_of_warp[0], report.instructions_of_warp[1]
    assert first - second == 3 * 2 and first + second == report.total_warp_instructions
    assert report.waits == 3 * 2
