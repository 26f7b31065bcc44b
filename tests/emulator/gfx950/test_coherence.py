# ruff: noqa: E501 (assembler text)
"""Stores become visible by scope and as late as the memory model allows: mistakes of kernels that hand data on from one
workgroup or device to another are found, with kind and place, and their correct twins run.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_gfx950_on_devices
from tests.emulator.gfx950.assembler import place_of
from tests.emulator.gfx950.code_object import NAME, code_object, run

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
{role}
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 0
v_mov_b32 v3, 1
v_add_u32 v4, 7, v0
s_waitcnt lgkmcnt(0)
s_cmp_lg_u32 s22, 0
s_cbranch_scc0 consumer
"""
"""s[8:9]: 64 dwords to hand on, s[10:11]: the flag, s[12:13]: 64 dwords of the consumer, who is the first to start."""
END = """
finished:
s_sleep 1
global_load_dword v6, v2, s[10:11] offset:128 sc0 sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s20, v6
s_cmp_lg_u32 s20, 1
s_cbranch_scc1 finished
s_endpgm
consumer:
{consumer}
s_waitcnt vmcnt(0)
global_store_dword v1, v5, s[12:13]
s_waitcnt vmcnt(0)
global_store_dword v2, v3, s[10:11] offset:128 sc0 sc1
s_endpgm
"""
"""The producer stays, since the end of a device's launch makes everything visible."""
WORKGROUP, DEVICE = "s_mov_b32 s22, s2", "s_load_dword s22, s[0:1], 0x18"


def spin(bits: str) -> str:
    return f"""again:
s_sleep 1
global_load_dword v6, v2, s[10:11] {bits} // flag
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s20, v6
s_cmp_lg_u32 s20, 1
s_cbranch_scc1 again
"""


READ = "global_load_dword v5, v1, s[8:9]"


@dataclass(frozen=True)
class Case:
    """Between workgroups; {bits} is sc1 there and sc0 sc1 between devices. The line at fault holds "// here"."""

    kind: str
    producer: str
    consumer: str
    right_producer: str
    right_consumer: str


STORE = "global_store_dword v1, v4, s[8:9]"
FLAG = "global_store_dword v2, v3, s[10:11] {bits}"
RELEASE = STORE + "\nbuffer_wbl2 {bits}\ns_waitcnt vmcnt(0)\n" + FLAG
ACQUIRE = "{spin}buffer_inv {bits}\n" + READ
CASES = {
    "no_write_back": Case("missing write-back", STORE + "\ns_waitcnt vmcnt(0)\n" + FLAG, ACQUIRE + " // here", RELEASE, ACQUIRE),
    "no_wait_behind_the_write_back": Case("missing wait", STORE + "\nbuffer_wbl2 {bits}\n" + FLAG, ACQUIRE + " // here", RELEASE, ACQUIRE),
    "write_back_before_the_store": Case("missing write-back", "buffer_wbl2 {bits}\ns_waitcnt vmcnt(0)\n" + STORE + "\ns_waitcnt vmcnt(0)\n" + FLAG, ACQUIRE + " // here", RELEASE, ACQUIRE),
    "flag_before_data": Case("missing wait", STORE + " {bits}\n" + FLAG, ACQUIRE + " // here", STORE + " {bits}\ns_waitcnt vmcnt(0)\n" + FLAG, ACQUIRE),
    "flag_by_an_atomic_before_data": Case("missing wait", STORE + " {bits}\nglobal_atomic_swap v2, v3, s[10:11] sc1", ACQUIRE + " // here", STORE + " {bits}\ns_waitcnt vmcnt(0)\nglobal_atomic_swap v2, v3, s[10:11] sc1", ACQUIRE),
    "no_invalidation": Case("missing invalidation", RELEASE, READ + "\n{spin}" + READ + " // here", RELEASE, READ + "\n" + ACQUIRE),
    "invalidation_before_the_flag": Case("missing invalidation", RELEASE, "buffer_inv {bits}\n" + READ + "\n{spin}" + READ + " // here", RELEASE, READ + "\n" + ACQUIRE),
    "flag_polled_without_scope": Case("missing invalidation", RELEASE, "{weak_spin}buffer_inv {bits}\n" + READ, RELEASE, ACQUIRE),
    "flag_stored_without_scope": Case("missing write-back", STORE + "\nbuffer_wbl2 {bits}\ns_waitcnt vmcnt(0)\n" + FLAG.replace("{bits}", "") + "\ns_waitcnt vmcnt(0)", ACQUIRE.replace("{spin}", "{faulty_spin}"), RELEASE, ACQUIRE),
    "data_read_at_scope_but_never_written_back": Case("missing write-back", STORE + "\ns_waitcnt vmcnt(0)\n" + FLAG, "{spin}" + READ + " {bits} // here", STORE + " {bits}\ns_waitcnt vmcnt(0)\n" + FLAG, "{spin}" + READ + " {bits}"),
    "counter_cleared_without_scope": Case("missing write-back", "global_store_dword v2, v2, s[8:9]\ns_waitcnt vmcnt(0)\n" + FLAG, "{spin}global_atomic_add v5, v2, v3, s[8:9] sc0 sc1 // here", "global_store_dword v2, v2, s[8:9] {bits}\ns_waitcnt vmcnt(0)\n" + FLAG, "{spin}global_atomic_add v5, v2, v3, s[8:9] sc0 sc1\n"),
    "scalar_load_of_what_changes": Case("missing invalidation", RELEASE, "s_load_dword s21, s[8:9], 0x0\ns_waitcnt lgkmcnt(0)\n{spin}buffer_inv {bits}\ns_load_dword s21, s[8:9], 0x0 // here\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v5, s21", RELEASE, "s_load_dword s21, s[8:9], 0x0\ns_waitcnt lgkmcnt(0)\n{spin}buffer_inv {bits}\ns_dcache_inv\ns_waitcnt lgkmcnt(0)\ns_load_dword s21, s[8:9], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v5, s21"),
}  # fmt: skip
OF_DEVICES = {
    "agent_write_back_for_another_device": Case("missing write-back", RELEASE.replace("wbl2 {bits}", "wbl2 sc1"), ACQUIRE + " // here", RELEASE, ACQUIRE),
    "agent_store_for_another_device": Case("missing write-back", STORE + " sc1\ns_waitcnt vmcnt(0)\n" + FLAG, ACQUIRE + " // here", STORE + " {bits}\ns_waitcnt vmcnt(0)\n" + FLAG, ACQUIRE),
    "agent_invalidation_for_another_device": Case("missing invalidation", RELEASE, READ + "\n{spin}buffer_inv sc1\n" + READ + " // here", RELEASE, READ + "\n" + ACQUIRE),
    "flag_polled_at_agent_scope": Case("missing invalidation", RELEASE, "{agent_spin}buffer_inv {bits}\n" + READ, RELEASE, ACQUIRE),
    "counter_at_agent_scope": Case("missing write-back", "global_store_dword v2, v2, s[8:9] sc1\ns_waitcnt vmcnt(0)\n" + FLAG, "{spin}global_atomic_add v5, v2, v3, s[8:9] sc0 sc1 // here", "global_store_dword v2, v2, s[8:9] {bits}\ns_waitcnt vmcnt(0)\n" + FLAG, "{spin}global_atomic_add v5, v2, v3, s[8:9] sc0 sc1"),
}  # fmt: skip


def program(producer: str, consumer: str, bits: str, role: str) -> str:
    spins = {
        "spin": spin(bits),
        "weak_spin": spin("").replace("// flag", "// here"),
        "agent_spin": spin("sc1").replace("// flag", "// here"),
        "faulty_spin": spin(bits).replace("// flag", "// here"),
    }
    parts = [part.replace("{bits}", bits) for part in (producer, consumer)]
    parts[1] = parts[1].format(**spins)
    return START.format(role=role) + parts[0] + END.format(consumer=parts[1])


def arrays() -> list[np.ndarray]:
    """Lines of their own for the flag and the data."""
    return [np.full(64, 3, np.uint32), np.zeros(64, np.uint32), np.zeros(64, np.uint32)]


def on_two_workgroups(text: str, used: list[np.ndarray], seed: int | None) -> None:
    run(text, *used, blocks=2, seed=seed, max_instructions=60_000)


def on_two_devices(text: str, used: list[np.ndarray], seed: int | None, uncached: bool = False) -> None:
    """The role is the fourth argument."""
    arguments = [
        b"".join(struct.pack("<Q", array.__array_interface__["data"][0]) for array in used) + struct.pack("<Q", role)
        for role in (0, 1)
    ]
    tensors = {f"array {i}": array for i, array in enumerate(used)}
    run_gfx950_on_devices(code_object(text), NAME, 1, 64, arguments, tensors=tensors, seed=seed, max_instructions=60_000,
                          uncached=used if uncached else ())  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mistake_between_workgroups_is_found(name: str) -> None:
    case = CASES[name]
    text = program(case.producer, case.consumer, "sc1", WORKGROUP)
    with pytest.raises(EmulatorFault) as caught:
        on_two_workgroups(text, arrays(), None)
    fault = caught.value
    assert (fault.kind, fault.line, fault.block[0]) == (case.kind, place_of(text, "// here"), 0), str(fault)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [None, *range(5)])
def test_correct_twin_between_workgroups_runs(name: str, seed: int | None) -> None:
    case = CASES[name]
    used = arrays()
    on_two_workgroups(program(case.right_producer, case.right_consumer, "sc1", WORKGROUP), used, seed)
    assert used[2].tolist() == expected(name)


@pytest.mark.parametrize("name", [*CASES, *OF_DEVICES])
def test_mistake_between_devices_is_found(name: str) -> None:
    case = (CASES | OF_DEVICES)[name]
    text = program(case.producer, case.consumer, "sc0 sc1", DEVICE)
    with pytest.raises(EmulatorFault) as caught:
        on_two_devices(text, arrays(), None)
    fault = caught.value
    assert (fault.kind, fault.line) == (case.kind, place_of(text, "// here")), str(fault)


@pytest.mark.parametrize("name", [*CASES, *OF_DEVICES])
@pytest.mark.parametrize("seed", [None, *range(5)])
def test_correct_twin_between_devices_runs(name: str, seed: int | None) -> None:
    case = (CASES | OF_DEVICES)[name]
    used = arrays()
    on_two_devices(program(case.right_producer, case.right_consumer, "sc0 sc1", DEVICE), used, seed)
    assert used[2].tolist() == expected(name)


def expected(name: str) -> list[int]:
    if "counter" in name:  # each lane adds one to the first dword
        return list(range(64))
    if "scalar" in name:
        return [7] * 64
    return list(range(7, 71))


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_uncached_memory_needs_waits_alone(seed: int | None) -> None:
    producer, consumer = STORE + "\ns_waitcnt vmcnt(0)\n" + FLAG, READ + "\n{weak_spin}" + READ
    used = arrays()
    on_two_devices(program(producer, consumer, "", DEVICE), used, seed, uncached=True)
    assert used[2].tolist() == list(range(7, 71))
    if seed is None:  # the flag overtakes the data
        used = arrays()
        on_two_devices(program(STORE + "\n" + FLAG, consumer, "", DEVICE), used, None, uncached=True)
        assert used[2].tolist() == [3] * 64


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_a_value_and_its_tag_in_one_word_need_no_flag(seed: int | None) -> None:
    """Readers poll the payload itself: 64 bits are stored and loaded as a whole, in any order."""
    text = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 3, v0
v_lshlrev_b32 v2, 2, v0
v_mul_u32_u24 v4, 5, v0
v_mov_b32 v5, 9
s_waitcnt lgkmcnt(0)
s_cmp_lg_u32 s2, 0
s_cbranch_scc1 consumer
global_store_dwordx2 v1, v[4:5], s[8:9] sc1
s_endpgm
consumer:
global_load_dwordx2 v[6:7], v1, s[8:9] sc1
s_waitcnt vmcnt(0)
v_cmp_ne_u32 vcc, 9, v7
s_nop 4
s_cbranch_vccnz consumer
global_store_dword v2, v6, s[10:11]
s_endpgm"""
    pairs, out = np.zeros(128, np.uint32), np.zeros(64, np.uint32)
    run(text, pairs, out, blocks=2, seed=seed, max_instructions=60_000)
    assert out.tolist() == [5 * i for i in range(64)]


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_waves_of_a_workgroup_share_a_cache(seed: int | None) -> None:
    text = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_xor_b32 v2, 0x100, v1
s_waitcnt lgkmcnt(0)
global_load_dword v3, v2, s[8:9]
global_store_dword v1, v0, s[8:9]
s_waitcnt vmcnt(0)
s_barrier
global_load_dword v3, v2, s[8:9]
s_waitcnt vmcnt(0)
global_store_dword v1, v3, s[10:11]
s_endpgm"""
    data, out = np.zeros(128, np.uint32), np.zeros(128, np.uint32)
    run(text, data, out, threads=128, seed=seed)
    assert out.tolist() == [*range(64, 128), *range(64)]


def test_what_nobody_uses_is_no_mistake() -> None:
    """A load ahead of time that is thrown away, as loops do in their last iteration."""
    case = CASES["no_write_back"]
    text = program(case.producer, case.consumer + "\ns_waitcnt vmcnt(0)\nv_mov_b32 v5, 1", "sc1", WORKGROUP)
    used = arrays()
    on_two_workgroups(text, used, None)
    assert used[2].tolist() == [1] * 64


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_workgroups_that_store_to_one_line(seed: int | None) -> None:
    """Bytes of a line have different writers; each keeps its own, and what was there stays."""
    text = """s_load_dwordx2 s[8:9], s[0:1], 0x0
s_lshl_b32 s20, s2, 4
v_lshlrev_b32 v1, 2, v0
v_add_u32 v1, s20, v1
v_add_u32 v2, s2, v0
v_cmp_gt_u32 vcc, 3, v0
s_and_saveexec_b64 s[4:5], vcc
s_waitcnt lgkmcnt(0)
global_load_dword v3, v1, s[8:9]
s_waitcnt vmcnt(0)
v_add_u32 v2, v2, v3
global_store_dword v1, v2, s[8:9]
s_endpgm"""
    data = np.full(32, 100, np.uint32)
    run(text, data, blocks=8, seed=seed)
    assert data.reshape(8, 4).tolist() == [[100 + g, 101 + g, 102 + g, 100] for g in range(8)]


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_many_workgroups_count_at_agent_scope(seed: int | None) -> None:
    """A barrier over the grid: the last to arrive sees what all the others stored."""
    text = """s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
v_lshlrev_b32 v1, 2, v0
s_lshl_b32 s20, s2, 8
v_add_u32 v2, s20, v1
v_mov_b32 v3, 0
v_mov_b32 v4, 1
v_add_u32 v5, s2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v2, v5, s[8:9]
buffer_wbl2 sc1
s_waitcnt vmcnt(0)
s_mov_b64 s[4:5], exec
s_mov_b64 exec, 1
s_nop 4
global_atomic_add v6, v3, v4, s[10:11] sc0
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s21, v6
s_mov_b64 exec, s[4:5]
s_cmp_lg_u32 s21, 15
s_cbranch_scc1 out
buffer_inv sc1
v_mov_b32 v7, 0
s_movk_i32 s22, 0x0
sum:
v_add_u32 v8, s22, v1
global_load_dword v9, v8, s[8:9]
s_waitcnt vmcnt(0)
v_add_u32 v7, v7, v9
s_addk_i32 s22, 0x100
s_cmp_lt_u32 s22, 0x1000
s_cbranch_scc1 sum
global_store_dword v1, v7, s[12:13]
out:
s_endpgm"""
    data, counter, out = np.zeros(16 * 64, np.uint32), np.zeros(32, np.uint32), np.zeros(64, np.uint32)
    run(text, data, counter, out, blocks=16, seed=seed)
    assert out.tolist() == [120 + 16 * lane for lane in range(64)]
    with pytest.raises(EmulatorFault, match="missing write-back"):
        run(text.replace("buffer_wbl2 sc1", "s_nop 0"), np.zeros_like(data), np.zeros_like(counter), out, blocks=16)
