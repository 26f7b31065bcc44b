# ruff: noqa: E501 (assembler text)
"""Waves that order themselves through the LDS, and reads in a race whose value nobody uses; with planted mistakes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.gfx950.assembler import place_of
from tests.emulator.gfx950.code_object import run

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_and_b32 v2, 0xff, v1
v_mov_b32 v3, 0
v_mov_b32 v5, 1
v_readfirstlane_b32 s20, v0
s_lshr_b32 s20, s20, 6
v_cmp_gt_u32 vcc, 64, v0
s_and_saveexec_b64 s[4:5], vcc
ds_write_b32 v2, v3
ds_write_b32 v3, v3 offset:1024
ds_write_b32 v3, v3 offset:1028
ds_write_b32 v3, v3 offset:1032
s_mov_b64 exec, s[4:5]
s_waitcnt lgkmcnt(0)
s_barrier
v_mov_b32 v4, v0
s_cmp_eq_u32 s20, 0
"""
"""s20 is the wave, v2 4 times the lane; the LDS has 64 zeros, at 1024 a flag and at 1028 a counter. scc: the first wave."""
STORE = "\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_dword v1, v4, s[10:11]\ns_endpgm"
POLL = "again:\ns_sleep 1\nds_read_b32 v6, v3 offset:1024\ns_waitcnt lgkmcnt(0)\nv_cmp_ne_u32 vcc, 1, v6\ns_cbranch_vccnz again\n"


@dataclass(frozen=True)
class Case:
    """The line at fault holds "// here"."""

    wrong: str
    right: str
    waves: int = 2


CASES = {
    "flag": Case(
        wrong="s_cbranch_scc0 reader\nds_write_b32 v3, v5 offset:1024\nds_write_b32 v2, v0\ns_branch out\nreader:\n" + POLL + "ds_read_b32 v4, v2 // here\nout:",
        right="s_cbranch_scc0 reader\nds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1024\ns_branch out\nreader:\n" + POLL + "ds_read_b32 v4, v2\nout:",
    ),
    "flag_asked_once": Case(
        wrong="s_cbranch_scc0 reader\nds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1024\ns_branch out\nreader:\nds_read_b32 v6, v3 offset:1024 // here\ns_waitcnt lgkmcnt(0)\nv_cmp_ne_u32 vcc, 1, v6\ns_cbranch_vccnz out\nds_read_b32 v4, v2\nout:",
        right="s_cbranch_scc0 reader\nds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1024\ns_branch out\nreader:\nds_read_b32 v6, v3 offset:1024\ns_waitcnt lgkmcnt(0)\nv_cmp_eq_u32 vcc, 1, v6\ns_cbranch_vccnz go\n" + POLL + "go:\nds_read_b32 v4, v2\nout:",
    ),
    "flag_of_a_load_to_the_lds": Case(
        wrong="s_cbranch_scc0 reader\ns_mov_b32 m0, 0\ns_nop 4\nglobal_load_lds_dword v2, s[8:9]\nds_write_b32 v3, v5 offset:1024\ns_branch out\nreader:\n" + POLL + "ds_read_b32 v4, v2 // here\nout:",
        right="s_cbranch_scc0 reader\ns_mov_b32 m0, 0\ns_nop 4\nglobal_load_lds_dword v2, s[8:9]\ns_waitcnt vmcnt(0)\nds_write_b32 v3, v5 offset:1024\ns_branch out\nreader:\n" + POLL + "ds_read_b32 v4, v2\nout:",
    ),
    "flag_handed_on": Case(
        wrong="s_cbranch_scc0 second\nds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1024\ns_branch out\nsecond:\ns_cmp_eq_u32 s20, 1\ns_cbranch_scc0 third\nds_write_b32 v3, v5 offset:1032\ns_branch out\nthird:\nagain:\ns_sleep 1\nds_read_b32 v6, v3 offset:1032\ns_waitcnt lgkmcnt(0)\nv_cmp_ne_u32 vcc, 1, v6\ns_cbranch_vccnz again\nds_read_b32 v4, v2 // here\nout:",
        right="s_cbranch_scc0 second\nds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1024\ns_branch out\nsecond:\ns_cmp_eq_u32 s20, 1\ns_cbranch_scc0 third\n" + POLL + "ds_write_b32 v3, v5 offset:1032\ns_branch out\nthird:\nthere:\ns_sleep 1\nds_read_b32 v6, v3 offset:1032\ns_waitcnt lgkmcnt(0)\nv_cmp_ne_u32 vcc, 1, v6\ns_cbranch_vccnz there\nds_read_b32 v4, v2\nout:",
        waves=3,
    ),
    "last_one_of_a_counter": Case(
        wrong="s_mov_b64 exec, 1\nds_add_rtn_u32 v6, v3, v5 offset:1028\ns_mov_b64 exec, s[4:5]\nds_write_b32 v1, v0 offset:2048\ns_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s21, v6\ns_cmp_eq_u32 s21, 1\ns_cbranch_scc0 out\nv_xor_b32 v7, 0x100, v1\nds_read_b32 v4, v7 offset:2048 // here\nout:",
        right="ds_write_b32 v1, v0 offset:2048\ns_mov_b64 exec, 1\nds_add_rtn_u32 v6, v3, v5 offset:1028\ns_mov_b64 exec, s[4:5]\ns_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s21, v6\ns_cmp_eq_u32 s21, 1\ns_cbranch_scc0 out\nv_xor_b32 v7, 0x100, v1\nds_read_b32 v4, v7 offset:2048\nout:",
    ),
    "what_a_lock_guards": Case(
        wrong="s_mov_b64 exec, 1\nagain:\nds_cmpst_rtn_b32 v6, v3, v3, v5 offset:1024\ns_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s21, v6\ns_cmp_eq_u32 s21, 0\ns_cbranch_scc0 again\nds_write_b32 v3, v3 offset:1024\nds_read_b32 v6, v3 offset:1028 // here\ns_waitcnt lgkmcnt(0)\nv_add_u32 v6, 1, v6\nds_write_b32 v3, v6 offset:1028\ns_mov_b64 exec, s[4:5]",
        right="s_mov_b64 exec, 1\nagain:\nds_cmpst_rtn_b32 v6, v3, v3, v5 offset:1024\ns_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s21, v6\ns_cmp_eq_u32 s21, 0\ns_cbranch_scc0 again\nds_read_b32 v6, v3 offset:1028\ns_waitcnt lgkmcnt(0)\nv_add_u32 v6, 1, v6\nds_write_b32 v3, v6 offset:1028\nds_write_b32 v3, v3 offset:1024\ns_mov_b64 exec, s[4:5]",
    ),
    "read_after_the_write": Case(
        wrong="s_cbranch_scc0 reader\nds_write_b32 v2, v0\ns_branch out\nreader:\nds_read_b32 v4, v2 // here\nout:",
        right="s_cbranch_scc0 reader\nds_write_b32 v2, v0\ns_branch out\nreader:\nds_read_b32 v6, v2\ns_waitcnt lgkmcnt(0)\ns_mov_b64 vcc, -1\nv_cndmask_b32 v4, v6, v0, vcc\nout:",
    ),
    "read_before_the_write": Case(
        wrong="s_cbranch_scc0 writer\nds_read_b32 v4, v2\ns_waitcnt lgkmcnt(0)\nv_add_u32 v4, 1, v4\ns_branch out\nwriter:\nds_write_b32 v2, v0 // here\nout:",
        right="s_cbranch_scc0 writer\nds_read_b32 v6, v2\ns_waitcnt lgkmcnt(0)\ns_mov_b64 vcc, -1\nv_cndmask_b32 v4, v6, v0, vcc\ns_branch out\nwriter:\nds_write_b32 v2, v0\nout:",
    ),
    "read_before_the_write_and_used_behind_it": Case(
        wrong="s_cbranch_scc0 writer\nds_read_b32 v6, v2 // here\nds_write_b32 v3, v5 offset:1024\nthere:\ns_sleep 1\nds_read_b32 v7, v3 offset:1032\ns_waitcnt lgkmcnt(0)\nv_cmp_ne_u32 vcc, 1, v7\ns_cbranch_vccnz there\nv_add_u32 v4, 1, v6\ns_branch out\nwriter:\nds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1032\nout:",
        right="s_cbranch_scc0 writer\nds_read_b32 v6, v2\nds_write_b32 v3, v5 offset:1024\nthere:\ns_sleep 1\nds_read_b32 v7, v3 offset:1032\ns_waitcnt lgkmcnt(0)\nv_cmp_ne_u32 vcc, 1, v7\ns_cbranch_vccnz there\nv_add_u32 v4, 1, v6\ns_branch out\nwriter:\n" + POLL.replace("again", "here_too") + "ds_write_b32 v2, v0\nds_write_b32 v3, v5 offset:1032\nout:",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mistake_is_found(name: str) -> None:
    case = CASES[name]
    text = START + case.wrong + STORE
    with pytest.raises(EmulatorFault) as caught:
        run(text, *arrays(), threads=64 * case.waves, lds=4096, max_instructions=100_000)
    fault = caught.value
    assert (fault.kind, fault.line) == ("race", place_of(text, "// here")), str(fault)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_correct_twin_runs(name: str, seed: int | None) -> None:
    case = CASES[name]
    run(START + case.right + STORE, *arrays(), threads=64 * case.waves, lds=4096, max_instructions=100_000, seed=seed)


def test_what_a_flag_and_a_lock_guard_is_right() -> None:
    for seed in (None, 1, 2):
        result = arrays()[1]
        run(START + CASES["flag"].right + STORE, arrays()[0], result, threads=128, lds=4096, seed=seed)
        np.testing.assert_array_equal(result[64:128], np.arange(64))
        result = arrays()[1]
        text = CASES["what_a_lock_guards"].right + "\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v4, v3 offset:1028"
        run(START + text + STORE, arrays()[0], result, threads=192, lds=4096, seed=seed)
        assert (result == 3).all()


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(192, dtype=np.uint32), np.zeros(192, np.uint32)
