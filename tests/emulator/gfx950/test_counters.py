"""Counts of memory traffic, waits and waves of gfx950, against what small kernels must do."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator.run import SpaceBytes
from tests.emulator.gfx950.code_object import run

START = "s_load_dwordx4 s[8:11], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)"


def aligned(bytes_: int) -> np.ndarray:
    """Zeros that start where a line starts."""
    memory = np.zeros(bytes_ + 128, np.uint8)
    start = -memory.ctypes.data % 128
    return memory[start : start + bytes_]


@pytest.mark.parametrize(("stride", "sectors"), [(4, 8), (8, 16), (32, 64), (64, 64), (0, 1)])
def test_sectors_of_a_load(stride: int, sectors: int) -> None:
    data = aligned(64 * 64)
    report = run(
        f"{START}\nv_mul_u32_u24 v2, {stride}, v0\ns_nop 0\nglobal_load_dword v3, v2, s[8:9]\ns_endpgm", data, data
    )
    assert (report.global_requests, report.global_sectors) == (1, sectors)


def test_requests_are_those_that_touch_memory() -> None:
    """A store and an atomic operation by half of the lanes, 16 bytes that begin in the middle of a sector; none by no
    lane, by a buffer that holds nothing, of scratch memory, or by a scalar load."""
    data = aligned(4096)
    text = f"""{START}
        v_mov_b32 v4, 1
        s_mov_b32 exec_hi, 0
        global_store_dword v1, v4, s[8:9]
        global_atomic_add v1, v4, s[8:9]
        s_mov_b32 exec_lo, 1
        v_mov_b32 v5, 24
        global_load_dwordx4 v[8:11], v5, s[8:9]
        s_mov_b64 exec, 0
        global_load_dword v12, v5, s[8:9]
        s_mov_b64 exec, -1
        s_mov_b32 s12, s8
        s_mov_b32 s13, s9
        s_mov_b32 s14, 0
        s_mov_b32 s15, 0x27000
        buffer_load_dword v13, v1, s[12:15], 0 offen
        scratch_store_dword v4, v4, off
        s_endpgm"""
    report = run(text, data, data, scratch=64)
    assert report.spaces == {"local": SpaceBytes(0, 64 * 4)}
    assert (report.global_requests, report.global_sectors) == (3, 4 + 4 + 2)


def test_waits_and_instructions_by_wave() -> None:
    """Two waves wait at the barrier of three workgroups; one of them also for its load, and once for nothing."""
    text = f"""{START}
        v_readfirstlane_b32 s6, v0
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 LATE
        global_load_dword v3, v1, s[8:9]
        s_waitcnt vmcnt(0)
        s_waitcnt vmcnt(0)
        LATE:
        s_barrier
        s_endpgm"""
    report = run(text, np.zeros(64, np.uint32), np.zeros(64, np.uint32), threads=128, blocks=3)
    assert report.waits == 3 * 2
    assert report.waits_for == {"barrier": 3 * 2, "vmcnt": 3, "lgkmcnt": 3 * 2}
    assert report.waits_of_warp == {0: 3, 1: 3}
    first, second = report.instructions_of_warp[0], report.instructions_of_warp[1]
    assert first - second == 3 * 3 and first + second == report.total_warp_instructions


def test_bytes_of_the_lds() -> None:
    """A write of 8 bytes and a read of two places by half of the lanes, an atomic operation, and a load to the LDS."""
    text = f"""{START}
        v_lshlrev_b32 v2, 3, v0
        v_mov_b32 v4, 1
        v_mov_b32 v5, 2
        s_mov_b32 exec_hi, 0
        ds_write_b64 v2, v[4:5]
        ds_read2_b32 v[6:7], v2 offset0:0 offset1:1
        ds_add_u32 v2, v4
        s_waitcnt lgkmcnt(0)
        s_movk_i32 m0, 0x400
        s_nop 4
        global_load_lds_dword v1, s[8:9]
        s_endpgm"""
    data = np.zeros(64, np.uint32)
    assert run(text, data, data, lds=2048).spaces == {"shared": SpaceBytes(32 * 8 + 32 * 4, 32 * 8 + 32 * 4 + 32 * 4)}


def test_a_single_wave_waits_at_no_barrier() -> None:
    report = run(f"{START}\ns_barrier\ns_endpgm", np.zeros(1, np.uint32), np.zeros(1, np.uint32))
    assert report.waits == 0 and report.instructions_of_warp == {0: 5}
