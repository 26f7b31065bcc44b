"""Workgroups and devices that wait for each other for ever are found, long before the launch's limit."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_gfx950_on_devices
from tests.emulator.gfx950.code_object import NAME, code_object, run

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_mov_b32 v2, 0
v_mov_b32 v3, 1
s_waitcnt lgkmcnt(0)
"""


def spin(label: str, base: str, wanted: str = "1") -> str:
    return f"""{label}:
s_sleep 1
global_load_dword v6, v2, {base} sc0 sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s20, v6
s_cmp_lg_u32 s20, {wanted}
s_cbranch_scc1 {label}
"""


RELEASE = "global_store_dword v2, v3, {} sc0 sc1\ns_waitcnt vmcnt(0)\n"
LIMIT = 10**10


def each_waits_first(set_before: bool) -> str:
    """Workgroups 0 and 1, or 0 and 1 by the third argument: each sets its flag and waits for the other's."""
    parts = []
    for own, other in (("s[8:9]", "s[10:11]"), ("s[10:11]", "s[8:9]")):
        release, wait = RELEASE.format(own), spin(f"again{len(parts)}", other)
        parts.append(release + wait if set_before else wait + release)
    return f"s_cmp_lg_u32 s21, 0\ns_cbranch_scc1 second\n{parts[0]}s_endpgm\nsecond:\n{parts[1]}s_endpgm"


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_workgroups_that_wait_for_each_other(seed: int | None) -> None:
    flags = [np.zeros(32, np.uint32) for _ in range(2)]
    with pytest.raises(
        EmulatorFault, match=r"workgroup [01] wave 0 at 0x[0-9a-f]+; workgroup [01] wave 0 at"
    ) as caught:
        run(
            START + "s_mov_b32 s21, s2\n" + each_waits_first(False), *flags, blocks=2, seed=seed, max_instructions=LIMIT
        )
    assert caught.value.kind == "deadlock"
    run(START + "s_mov_b32 s21, s2\n" + each_waits_first(True), *flags, blocks=2, seed=seed, max_instructions=LIMIT)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_devices_that_wait_for_each_other(seed: int | None) -> None:
    flags = [np.zeros(32, np.uint32) for _ in range(2)]
    arguments = [
        struct.pack("<QQQ", *(flag.__array_interface__["data"][0] for flag in flags), rank) for rank in range(2)
    ]

    def launch(set_before: bool) -> None:
        text = START + "s_load_dword s21, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\n" + each_waits_first(set_before)
        tensors = {"first": flags[0], "second": flags[1]}
        run_gfx950_on_devices(
            code_object(text), NAME, 1, 64, arguments, tensors=tensors, seed=seed, max_instructions=LIMIT
        )

    with pytest.raises(EmulatorFault, match=r"device [01] workgroup 0 wave 0") as caught:
        launch(False)
    assert caught.value.kind == "deadlock"
    launch(True)


def test_a_wave_that_polls_while_the_rest_of_its_workgroup_is_at_a_barrier() -> None:
    text = (
        START
        + "v_cmp_gt_u32 vcc, 64, v0\ns_cbranch_vccz rest\n"
        + spin("again", "s[8:9]")
        + "rest:\ns_barrier\ns_endpgm"
    )
    with pytest.raises(EmulatorFault, match="at a barrier") as caught:
        run(text, np.zeros(1, np.uint32), np.zeros(1, np.uint32), threads=256, max_instructions=LIMIT)
    assert caught.value.kind == "deadlock"


def test_a_lock_that_nobody_gives_back() -> None:
    """By compare-and-swap: the second workgroup finds it taken for ever."""
    text = (
        START
        + """v_mov_b32 v8, 1
v_mov_b32 v9, 0
s_mov_b64 exec, 1
again:
global_atomic_cmpswap v6, v2, v[8:9], s[8:9] sc0 sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s20, v6
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 again
{}
s_endpgm"""
    )
    give_back = "global_atomic_swap v2, v9, s[8:9] sc1"
    lock = np.zeros(1, np.uint32)
    with pytest.raises(EmulatorFault) as caught:
        run(text.format("s_nop 0"), lock, lock, blocks=3, max_instructions=LIMIT)
    assert caught.value.kind == "deadlock"
    lock[:] = 0
    run(text.format(give_back), lock, lock, blocks=3, max_instructions=LIMIT)
    assert lock[0] == 0


@pytest.mark.parametrize("seed", [None, 0])
def test_waiting_long_for_one_who_computes_is_no_deadlock(seed: int | None) -> None:
    """500,000 turns of a loop that touches no memory, and as many loads at scope of other places."""
    text = (
        START
        + """s_cmp_lg_u32 s2, 0
s_cbranch_scc1 second
s_mov_b32 s22, 0
count:
s_add_i32 s22, s22, 1
s_cmp_lt_u32 s22, 0x7a120
s_cbranch_scc1 count
s_movk_i32 s22, 0x0
look:
v_mov_b32 v4, s22
global_load_dword v5, v4, s[10:11] sc1
s_addk_i32 s22, 0x4
s_cmp_lt_u32 s22, 0x20000
s_cbranch_scc1 look
s_waitcnt vmcnt(0)
"""
        + RELEASE.format("s[8:9]")
        + "s_endpgm\nsecond:\n"
        + spin("again", "s[8:9]")
        + "s_endpgm"
    )
    run(text, np.zeros(1, np.uint32), np.zeros(1 << 15, np.uint32), blocks=2, seed=seed, max_instructions=10**8)
