# ruff: noqa: E501 (assembler text)
"""Faults that other emulators of CDNA4 had, one test each: what they got wrong is right here.

ROCm/rocm-systems: PR 10347 (block-scaled matrix instructions), PR 7272 (broadcasts of i8, blocks of bf16), 10758 (ds_add),
10773 (fp8 products), 12056 (order of sums); gem5 2478 (rounding of the accumulator). What hardware itself got wrong
(ROCm/rocMLIR 2459, v_pk_fma_f32 with op_sel) is forbidden by msa_ops.build.isa; see tests/build/test_isa.py.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from msa_ops import _C
from tests.emulator.gfx950.assembler import assemble
from tests.emulator.gfx950.code_object import apply, run
from tests.emulator.gfx950.test_matrix import (
    codes_and_values,
    execute,
    lanes_of,
    pack,
    registers,
    rows_of_result,
)

RNG = np.random.default_rng(17)


def test_prefix_and_product_are_one_instruction() -> None:
    """PR 10347: 16 bytes, one place, one entry of the counters; nothing may stand between them."""
    code = assemble("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3], v24, v25")
    size, text = _C.disassemble_gfx950_instruction(code).split(" ", 1)
    assert (size, text.split()[0]) == ("16", "v_mfma_scale_f32_16x16x128_f8f6f4")
    with pytest.raises(NotImplementedError, match="scales without a matrix instruction"):
        _C.disassemble_gfx950_instruction(code[:8] + assemble("v_mov_b32 v0, v1\nv_mov_b32 v0, v1"))


@pytest.mark.parametrize("format_", [0, 4])
@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("operand", ["a", "b"])
def test_each_lane_and_byte_scales_its_own_block(format_: int, byte: int, operand: str) -> None:
    """PR 10347: scales left out, or of another lane or byte. All bytes but the chosen one would make the result huge."""
    codes_a, a = codes_and_values(format_, (16, 128))
    codes_b, b = codes_and_values(format_, (16, 128))
    row, column = rows_of_result(16, 4)
    scale = RNG.integers(110, 144, (16, 4))
    words = (0xF0F0F0F0 & ~(0xFF << 8 * byte)) | scale.T.reshape(-1) << 8 * byte
    ones = np.full(64, 0x7F7F7F7F)
    low, high = byte & 1, byte >> 1
    selects = f"op_sel:[{low},0] op_sel_hi:[{high},0]" if operand == "a" else f"op_sel:[0,{low}] op_sel_hi:[0,{high}]"
    scales = np.stack([words, ones] if operand == "a" else [ones, words]).astype(np.uint32)
    got = execute(
        f"v_mfma_scale_f32_16x16x128_f8f6f4 {selects} cbsz:{format_} blgp:{format_}",
        lanes_of(codes_a, format_, 16), lanes_of(codes_b, format_, 16), np.zeros((4, 64), np.uint32), scales,
    ).view(np.float32)  # fmt: skip
    factor = np.repeat(2.0 ** (scale - 127), 32, axis=1)
    a, b = (a * factor, b) if operand == "a" else (a, b * factor)
    bound = np.abs(a) @ np.abs(b.T) * 2.0**-16
    assert (np.abs(got - (a @ b.T)[row, column]) <= bound[row, column]).all()


@pytest.mark.parametrize("which", ["a", "b"])
def test_nan_scale_of_either_operand(which: str) -> None:
    codes, _ = codes_and_values(0, (16, 128))
    row, column = rows_of_result(16, 4)
    scale = np.full((16, 4), 127)
    scale[9, 1] = 255
    ones = np.full(64, 127)
    scales = np.stack([scale.T.reshape(-1), ones] if which == "a" else [ones, scale.T.reshape(-1)]).astype(np.uint32)
    operand = lanes_of(codes, 0, 16)
    got = execute("v_mfma_scale_f32_16x16x128_f8f6f4", operand, operand, np.zeros((4, 64), np.uint32), scales)
    np.testing.assert_array_equal(np.isnan(got.view(np.float32)), (row if which == "a" else column) == 9)


def products(tail: str, c: str, before: str = "") -> float:
    """One element of 128 products of 1 and 1, all operands FP8, plus C."""
    text = f"""s_load_dwordx2 s[8:9], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
{chr(10).join(f"v_mov_b32 v{i}, 0x38383838" for i in range(8, 24))}
v_mov_b32 v24, 0x82828282
{before}
s_nop 1
v_mfma_scale_f32_16x16x128_f8f6f4 v[4:7], v[8:15], v[16:23], {c}, {tail}
s_nop 7
s_nop 7
s_waitcnt lgkmcnt(0)
global_store_dword v1, v4, s[8:9]
s_endpgm"""
    out = np.zeros(64, np.float32)
    run(text, out)
    assert (out == out[0]).all()
    return float(out[0])


def test_scales_that_are_inline_constants_or_scalar_registers() -> None:
    """PR 10347: an inline integer is 32 bits of which byte 0 is 64 here: 2^-63; 1.0 has 0x3f as its byte 3."""
    assert products("v24, v24", "0") == 128 * 2.0**6
    assert products("64, v24", "0") == 128 * 2.0 ** (64 - 127 + 3)
    assert products("v24, 1.0 op_sel:[0,1] op_sel_hi:[0,1]", "0") == 128 * 2.0 ** (0x3F - 127 + 3)
    assert products("s20, v24", "0", "s_mov_b32 s20, 0x80") == 128 * 2.0 ** (1 + 3)


def test_modifiers_of_c() -> None:
    """PR 10347: the sign and the magnitude of C."""
    minus = "\n".join(f"v_mov_b32 v{i}, -2.0" for i in range(28, 32))
    assert products("v24, v24", "v[28:31]", minus) == 8192 - 2
    assert products("v24, v24", "-v[28:31]", minus) == 8192 + 2
    assert products("v24, v24", "|v[28:31]|", minus) == 8192 + 2
    assert products("v24, v24", "-|v[28:31]|", minus) == 8192 - 2


def block_of(m: int, blocks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block, row and column of each (register, lane) of a result of several blocks."""
    lane = np.arange(64)[None, :]
    register = np.arange({4: 4, 16: 16, 32: 32}[m])[:, None]
    if m == 4:
        return (
            np.broadcast_to(lane // 4, (4, 64)),
            np.broadcast_to(register, (4, 64)),
            np.broadcast_to(lane % 4, (4, 64)),
        )
    if m == 16:
        return np.broadcast_arrays(register // 4, 4 * (lane // 16) + register % 4, lane % 16)  # type: ignore[return-value]
    return np.broadcast_arrays(register // 16, 8 * (register % 16 // 4) + 4 * (lane // 32) + register % 4, lane % 32)  # type: ignore[return-value]


OF_A = ((1, 0), (1, 1), (2, 2), (3, 5), (4, 11))
SHAPES = [
    ("v_mfma_f32_32x32x4_2b_bf16", 32, ml_dtypes.bfloat16),
    ("v_mfma_f32_16x16x4_4b_bf16", 16, ml_dtypes.bfloat16),
    ("v_mfma_f32_4x4x4_16b_bf16", 4, ml_dtypes.bfloat16),
    ("v_mfma_f32_16x16x4_4b_f16", 16, np.float16),
    ("v_mfma_i32_32x32x4_2b_i8", 32, np.int8),
    ("v_mfma_i32_16x16x4_4b_i8", 16, np.int8),
    ("v_mfma_i32_4x4x4_16b_i8", 4, np.int8),
]
BROADCASTS = [
    *((*shape, "", None, None) for shape in SHAPES),
    *(
        (*shape, f"cbsz:{size} abid:{i}", (size, i), None)
        for shape in SHAPES
        for size, i in OF_A
        if 1 << size <= 64 // shape[1]
    ),
    *((*shape, f"blgp:{i}", None, i) for shape in SHAPES for i in range(1, 8)),
]


@pytest.mark.parametrize(("name", "m", "type_", "modifiers", "of_a", "of_b"), BROADCASTS)
def test_blocks_and_broadcasts(
    name: str, m: int, type_: Any, modifiers: str, of_a: tuple[int, int] | None, of_b: int | None
) -> None:
    """PR 7272: the number of blocks; cbsz and abid, which give a block of A to 2^cbsz ones; blgp, which moves lanes of B."""
    blocks = 64 // m
    a, b = (RNG.integers(-8, 8, (64, 4)).astype(type_) for _ in range(2))  # of lanes: a block, a row, four of k
    block, row, column = block_of(m, blocks)
    c = RNG.integers(-99, 99, block.shape).astype(np.int32 if type_ is np.int8 else np.float32)
    got = execute(f"{name} {modifiers}", registers(a), registers(b), c.view(np.uint32)).view(c.dtype)
    lanes = np.arange(64)
    whole: dict[int | None, np.ndarray] = {None: lanes, 1: lanes % 32, 2: lanes % 32 + 32, 3: (lanes + 16) % 64}
    moved = (whole | {i: lanes % 16 + 16 * (i - 4) for i in range(4, 8)})[of_b]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)[moved]
    source = block if of_a is None else (block >> of_a[0] << of_a[0]) + of_a[1]
    want = (wide_a[source * m + row] * wide_b[block * m + column]).sum(axis=-1) + c
    np.testing.assert_array_equal(got, want.astype(c.dtype))


def test_ds_add_acts_on_every_lane() -> None:
    """10758: 64 lanes add to one place and to a place each."""
    text = """s_load_dwordx2 s[8:9], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 0x100
v_mov_b32 v3, 0
ds_write_b32 v1, v0
ds_write_b32 v2, v3
s_waitcnt lgkmcnt(0)
v_mov_b32 v4, 3
ds_add_u32 v1, v4
ds_add_u32 v2, v0
s_waitcnt lgkmcnt(0)
ds_read_b32 v5, v1
ds_read_b32 v6, v2
s_waitcnt lgkmcnt(0)
v_lshl_or_b32 v5, v6, 16, v5
global_store_dword v1, v5, s[8:9]
s_endpgm"""
    out = np.zeros(64, np.uint32)
    run(text, out, lds=512)
    assert (out & 0xFFFF).tolist() == list(range(3, 67))
    assert (out >> 16 == sum(range(64))).all()


@pytest.mark.parametrize(("name", "type_"), [("fp8", ml_dtypes.float8_e4m3fn), ("bf8", ml_dtypes.float8_e5m2)])
def test_every_product_of_two_bytes(name: str, type_: Any) -> None:
    """10773: all 65,536 products of OCP bytes, subnormal numbers and NaN among them, 16 x 16 of them at a time."""
    values = np.arange(256, dtype=np.uint8).view(type_).astype(np.float32)
    row, column = rows_of_result(16, 4)
    for block_a in range(0, 256, 64):
        for block_b in range(0, 256, 64):
            for step in range(4):
                a, b = np.zeros((16, 32), np.uint8), np.zeros((16, 32), np.uint8)
                a[:, 0] = block_a + 16 * step + np.arange(16)
                b[:, 0] = block_b + 16 * ((step + block_a // 64) % 4) + np.arange(16)
                lanes_a, lanes_b = (registers(pack(x, 16, 8)) for x in (a, b))
                got = execute(f"v_mfma_f32_16x16x32_{name}_{name}", lanes_a, lanes_b, np.zeros((4, 64), np.uint32))
                with np.errstate(invalid="ignore"):
                    want = values[a[:, 0]][:, None] * values[b[:, 0]][None, :]
                np.testing.assert_array_equal(got.view(np.float32), want[row, column])


def test_accumulator_is_rounded_once() -> None:
    """gem5 2478: 1 + 2^-24 (1 + 2^-10) is just above half way to the next number; a product cut to fp16 is not."""
    a = np.zeros((16, 32), np.float16)
    b = np.zeros((16, 32), np.float16)
    a[:, 0], b[:, 0] = 2.0**-12, 2.0**-12 * (1 + 2.0**-10)
    lanes_a, lanes_b = (registers(pack(x, 16, 8)) for x in (a, b))
    got = execute("v_mfma_f32_16x16x32_f16", lanes_a, lanes_b, np.full((4, 64), 1.0, np.float32).view(np.uint32))
    assert (got.view(np.float32) == np.float32(1 + 2.0**-23)).all()


def test_dot_product_keeps_what_cancels() -> None:
    """12056: 2^20 - 2^20 + 2^-20 in every order: both products and the accumulator are exact before the one rounding."""
    big, small = np.float16(1024.0), np.float16(2.0**-10)
    pair = np.array([[big, big], [big, small], [small, big]], np.float16).view(np.uint32).ravel()
    other = np.array([[big, -big], [big, small], [small, big]], np.float16).view(np.uint32).ravel()
    accumulator = np.array([2.0**-20, -(2.0**20), -(2.0**20)], np.float32).view(np.uint32)
    operands = [np.resize(x, 64) for x in (pair, other, accumulator)]
    got = apply("v_dot2_f32_f16 D, A, B, C", 1, *operands).view(np.float32)[0]
    np.testing.assert_array_equal(got[:3], np.full(3, 2.0**-20, np.float32))
