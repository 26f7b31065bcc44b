# ruff: noqa: E501 (assembler text)
"""The LDS, buffers, scratch and atomic operations against NumPy; exchanges through the LDS; files that are no code objects."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from msa_ops.emulator import CodeObjectError, UnsupportedGfx950, run_gfx950, run_gfx950_on_devices
from tests.emulator.gfx950.code_object import apply, code_object, run

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_lshlrev_b32 v2, 3, v0
v_lshlrev_b32 v3, 4, v0
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[4:7], v3, s[8:9]
s_waitcnt vmcnt(0)
"""
"""s[8:9] and s[10:11] address two arrays of 64 rows of 16 bytes; v1, v2, v3 are 4, 8 and 16 times the lane, v[4:7] the row."""
END = "\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_dwordx4 v3, v[4:7], s[10:11]\ns_endpgm"


def through(body: str, data: np.ndarray, **options: int) -> np.ndarray:
    """The rows after the body."""
    result = np.zeros((64, 4), np.uint32)
    run(START + body + END, np.ascontiguousarray(data), result, lds=4096, scratch=16, **options)
    return result


def data() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 1 << 32, (64, 4), dtype=np.uint64).astype(np.uint32)


@pytest.mark.parametrize("bits", [4, 6, 8, 16])
def test_transposing_reads(bits: int) -> None:
    """16 lanes read rows of a matrix of small elements; each gets a column of it."""
    words = 3 if bits == 6 else 2
    elements = 32 * words // bits
    d = data()
    rows = d[:, :words]
    pitch = 4 * words if bits == 6 else 8
    name = {4: "ds_read_b64_tr_b4", 6: "ds_read_b96_tr_b6", 8: "ds_read_b64_tr_b8", 16: "ds_read_b64_tr_b16"}[bits]
    span = f"v[4:{3 + words}]"
    body = (
        f"v_mul_u32_u24 v8, {pitch}, v0\nds_write_b{32 * words} v8, {span}\ns_waitcnt lgkmcnt(0)\n"
        f"{name} {span}, v8\ns_waitcnt lgkmcnt(0)"
    )
    got = through(body, d)[:, :words]

    def unpacked(words_: np.ndarray) -> list[int]:
        value = sum(int(word) << (32 * i) for i, word in enumerate(words_))
        return [value >> (bits * i) & ((1 << bits) - 1) for i in range(elements)]

    lanes = [unpacked(row) for row in rows]
    for group in range(0, 64, 16):
        matrix = np.array([e for lane in lanes[group : group + 16] for e in lane]).reshape(elements, 16)
        for lane in range(16):
            assert unpacked(got[group + lane]) == matrix[:, lane].tolist()


def test_two_places_at_once() -> None:
    d = data()
    body = "ds_write2_b32 v2, v4, v5 offset0:0 offset1:1\nds_write2st64_b32 v1, v6, v7 offset0:4 offset1:5\ns_waitcnt lgkmcnt(0)\nds_read_b64 v[6:7], v2\nds_read2st64_b32 v[4:5], v1 offset0:4 offset1:5"
    np.testing.assert_array_equal(through(body, d), d[:, [2, 3, 0, 1]])


def test_small_parts() -> None:
    d = data()
    body = "ds_write_b8 v1, v4\nds_write_b8 v1, v5 offset:1\nds_write_b16 v1, v6 offset:2\ns_waitcnt lgkmcnt(0)\nds_read_i8 v4, v1\nds_read_u8 v5, v1 offset:1\nds_read_i16 v6, v1 offset:2\nds_read_u16_d16_hi v7, v1 offset:2"
    got = through(body, d)
    np.testing.assert_array_equal(got[:, 0], d[:, 0].astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32))
    np.testing.assert_array_equal(got[:, 1], d[:, 1] & 0xFF)
    np.testing.assert_array_equal(got[:, 2], d[:, 2].astype(np.uint16).view(np.int16).astype(np.int32).view(np.uint32))
    np.testing.assert_array_equal(got[:, 3], (d[:, 3] & 0xFFFF) | d[:, 2] << 16)


def test_atomic_operations_of_the_lds_act_on_every_lane() -> None:
    d = data()
    body = "v_mov_b32 v8, 0\nds_write_b32 v8, v8\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v9, 3\nds_add_rtn_u32 v4, v8, v9\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v8"
    got = through(body, d)
    assert sorted(got[:, 0].tolist()) == list(range(0, 192, 3))
    assert (got[:, 1] == 192).all()


def test_exchanges() -> None:
    a = data().reshape(-1)
    lane = np.arange(64)
    np.testing.assert_array_equal(
        apply("ds_bpermute_b32 D, A, B", 1, np.tile(4 * (lane ^ 5), 4).astype(np.uint32), a)[0].reshape(-1, 64),
        a.reshape(-1, 64)[:, lane ^ 5],
    )
    np.testing.assert_array_equal(
        apply("ds_permute_b32 D, A, B", 1, np.tile(4 * (lane ^ 5), 4).astype(np.uint32), a)[0].reshape(-1, 64),
        a.reshape(-1, 64)[:, lane ^ 5],
    )
    np.testing.assert_array_equal(
        apply(f"ds_swizzle_b32 D, A offset:{0x1F | 4 << 10}", 1, a)[0].reshape(-1, 64), a.reshape(-1, 64)[:, lane ^ 4]
    )


def test_buffers_give_zero_outside() -> None:
    d = data()
    body = "s_mov_b32 s12, s8\ns_mov_b32 s13, s9\ns_mov_b32 s14, 0x3f8\ns_mov_b32 s15, 0x20000\nbuffer_load_dwordx4 v[4:7], v3, s[12:15], 0 offen"
    result = np.zeros((64, 4), np.uint32)
    report = run(START + body + END, d, result)
    want = d.copy()
    want[63, 2:] = 0
    np.testing.assert_array_equal(result, want)
    assert report.out_of_range_lanes == 1


def test_loads_to_the_lds_lie_in_order_of_the_lanes() -> None:
    d = data()
    body = "s_mov_b32 s12, s8\ns_mov_b32 s13, s9\ns_mov_b32 s14, 0x400\ns_mov_b32 s15, 0x20000\ns_mov_b32 m0, 0x200\ns_nop 0\nbuffer_load_dwordx4 v3, s[12:15], 0 offen lds\ns_waitcnt vmcnt(0)\nv_xor_b32 v8, 0x30, v3\nds_read_b128 v[4:7], v8 offset:512"
    np.testing.assert_array_equal(through(body, d), d[np.arange(64) ^ 3])


def test_scratch_belongs_to_a_lane() -> None:
    d = data()
    body = "scratch_store_dword off, v4, off offset:4\nscratch_store_dword off, v5, off offset:8\ns_waitcnt vmcnt(0)\nscratch_load_dword v5, off, off offset:4\nscratch_load_dword v4, off, off offset:8"
    np.testing.assert_array_equal(through(body, d), d[:, [1, 0, 2, 3]])


def test_atomic_operations_of_memory() -> None:
    counters = np.zeros(4, np.uint32)
    text = """s_load_dwordx2 s[8:9], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v2, 1
v_mov_b32 v3, 1.0
s_waitcnt lgkmcnt(0)
global_atomic_add v1, v2, s[8:9]
global_atomic_add_f32 v1, v3, s[8:9] offset:4
global_atomic_umax v1, v0, s[8:9] offset:8
s_endpgm"""
    run(text, counters, blocks=3, threads=128)
    assert counters[0] == 384
    assert counters[1:2].view(np.float32)[0] == 384
    assert counters[2] == 127


def test_bank_conflicts_are_counted() -> None:
    text = "v_mul_u32_u24 v1, {pitch}, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_endpgm"
    conflicts = [run(text.format(pitch=pitch), lds=64 * 256 + 4).bank_conflicts for pitch in (4, 8, 256)]
    assert conflicts == [0, 1, 63]


def test_what_is_no_code_object() -> None:
    good = code_object("s_endpgm")
    no_names = good[:62] + b"\xff\xff" + good[64:]  # their section is beyond the last one
    for bad in (b"", b"\x7fELF" + bytes(100), good[:200], no_names, code_object("s_endpgm", machine=0x4C)):
        with pytest.raises(CodeObjectError):
            run_gfx950(bad, "k", 1, 64, b"")
    with pytest.raises(ValueError, match="has k"):
        run_gfx950(good, "other", 1, 64, b"")
    with pytest.raises(ValueError, match="block x: 2048"):
        run_gfx950(good, "k", 1, 2048, b"")


def test_unknown_encodings_are_reported_with_their_addresses() -> None:
    text = "s_nop 0\ns_nop 0\ns_endpgm"
    made = bytearray(code_object(text))
    made[64 + 4 : 64 + 8] = (0xF0000000).to_bytes(4, "little")  # an image instruction
    with pytest.raises(UnsupportedGfx950, match="at 0x4"):
        run_gfx950(bytes(made), "k", 1, 64, b"")


def test_two_devices_wait_for_each_other() -> None:
    """Each device sets a flag in the other's memory and waits for its own."""
    text = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v2, 7
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[10:11] sc0 sc1
again:
s_sleep 1
global_load_dword v3, v1, s[8:9] sc0 sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s20, v3
s_cmp_lg_u32 s20, 7
s_cbranch_scc1 again
s_endpgm"""
    for seed in (None, 1, 2, 3):
        flags = np.zeros((2, 4), np.uint32)
        addresses = [flags[i].__array_interface__["data"][0] for i in range(2)]
        arguments = [struct.pack("<QQ", addresses[i], addresses[1 - i]) for i in range(2)]
        reports = run_gfx950_on_devices(code_object(text), "k", 1, 64, arguments, tensors={"flags": flags}, seed=seed)
        assert flags[:, 0].tolist() == [7, 7]
        assert len(reports) == 2


def test_a_workgroup_larger_than_the_kernel_was_compiled_for() -> None:
    from msa_ops import _C

    built = [name for name, _ in _C.code_objects() if name.startswith("quantize_nvfp4__")]
    if not built:
        pytest.skip("this build of msa_ops holds no code objects")
    found = _C.code_object(_C.find_code_object(built[0]))
    message = f"block: {2 * found['threads']} work-items; kernel .* was compiled for {found['threads']} at most"
    with pytest.raises(ValueError, match=message):
        run_gfx950(found["code"], found["kernel"], 1, 2 * found["threads"], [None] * 6)
