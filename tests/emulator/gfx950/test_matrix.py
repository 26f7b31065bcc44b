# ruff: noqa: E501 (assembler text)
"""Matrix instructions against NumPy: every shape and format, with operands that make the sums exact."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.gfx950.code_object import run

RNG = np.random.default_rng(5)
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
SIX = {2: (2, 3, 1), 3: (3, 2, 3)}  # format: exponent bits, mantissa bits, bias


def execute(
    instruction: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, scales: np.ndarray | None = None
) -> np.ndarray:
    """a, b: uint32 [registers, 64]; c: uint32 [registers, 64]; returns the result's registers. A and B in v[64:] and v[96:],
    C in v[128:], D in v[160:], scales in v192 and v193."""
    arrays = [np.ascontiguousarray(x) for x in (a, b, c)]
    result = np.zeros_like(arrays[2])
    scale = np.zeros((2, 64), np.uint32) if scales is None else np.ascontiguousarray(scales)
    lines = [
        "s_load_dwordx8 s[8:15], s[0:1], 0x0",
        "s_load_dwordx2 s[16:17], s[0:1], 0x20",
        "v_lshlrev_b32 v1, 2, v0",
        "s_waitcnt lgkmcnt(0)",
    ]
    for first, pointer, array in ((64, 8, arrays[0]), (96, 10, arrays[1]), (128, 12, arrays[2]), (192, 16, scale)):
        for register in range(array.shape[0]):
            lines += [
                f"v_add_u32 v2, {256 * register}, v1",
                f"global_load_dword v{first + register}, v2, s[{pointer}:{pointer + 1}]",
            ]

    def span(first: int, count: int) -> str:
        return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"

    name, _, rest = instruction.partition(" ")
    tail = ", v192, v193" if scales is not None else ""
    lines += ["s_waitcnt vmcnt(0)",
              f"{name} {span(160, len(result))}, {span(64, len(a))}, {span(96, len(b))}, {span(128, len(c))}{tail} {rest}",
              *["s_nop 7"] * 4]  # fmt: skip
    for register in range(len(result)):
        lines += [f"v_add_u32 v2, {256 * register}, v1", f"global_store_dword v2, v{160 + register}, s[14:15]"]
    lines.append("s_endpgm")
    run("\n".join(lines), *arrays, result, scale)
    return result


def rows_of_result(m: int, registers: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each (register, lane) of a result of one block."""
    lane, register = np.arange(64)[None, :], np.arange(registers)[:, None]
    row = 4 * (lane // 16) + register if m == 16 else 8 * (register // 4) + 4 * (lane // 32) + register % 4
    return np.broadcast_to(row, (registers, 64)), np.broadcast_to(lane % m, (registers, 64))


def pack(values: np.ndarray, m: int, per_lane: int) -> np.ndarray:
    """[m, k] codes to what each lane holds, [64, per_lane]: runs of k, one after the other over the lanes of a row."""
    return values.reshape(m, -1, per_lane).transpose(1, 0, 2).reshape(64, per_lane)


def registers(codes: np.ndarray) -> np.ndarray:
    """Codes of lanes [64, n], of one, two or four bytes, as registers [n', 64]."""
    return np.ascontiguousarray(np.ascontiguousarray(codes).view(np.uint32).T)


SHAPES: list[tuple[str, int, int, Any, Any]] = [
    ("v_mfma_f32_16x16x32_f16", 16, 32, np.float16, np.float16),
    ("v_mfma_f32_32x32x16_f16", 32, 16, np.float16, np.float16),
    ("v_mfma_f32_16x16x16_f16", 16, 16, np.float16, np.float16),
    ("v_mfma_f32_32x32x8_f16", 32, 8, np.float16, np.float16),
    ("v_mfma_f32_16x16x32_bf16", 16, 32, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ("v_mfma_f32_32x32x16_bf16", 32, 16, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ("v_mfma_f32_16x16x16_bf16", 16, 16, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ("v_mfma_f32_16x16x32_fp8_fp8", 16, 32, E4M3, E4M3),
    ("v_mfma_f32_16x16x32_bf8_fp8", 16, 32, E5M2, E4M3),
    ("v_mfma_f32_16x16x32_fp8_bf8", 16, 32, E4M3, E5M2),
    ("v_mfma_f32_16x16x32_bf8_bf8", 16, 32, E5M2, E5M2),
    ("v_mfma_f32_32x32x16_fp8_fp8", 32, 16, E4M3, E4M3),
    ("v_mfma_f32_16x16x4_f32", 16, 4, np.float32, np.float32),
    ("v_mfma_f32_32x32x2_f32", 32, 2, np.float32, np.float32),
]


@pytest.mark.parametrize("name,m,k,type_a,type_b", SHAPES)
def test_floats(name: str, m: int, k: int, type_a: Any, type_b: Any) -> None:
    a = RNG.integers(-8, 8, (m, k)).astype(np.float32).astype(type_a)
    b = RNG.integers(-8, 8, (k, m)).astype(np.float32).astype(type_b)
    count = 4 if m == 16 else 16
    row, column = rows_of_result(m, count)
    c = RNG.integers(-99, 99, (m, m)).astype(np.float32)
    per_lane = m * k // 64
    got = execute(
        name, registers(pack(a, m, per_lane)), registers(pack(b.T.copy(), m, per_lane)), c[row, column].view(np.uint32)
    )
    want = a.astype(np.float32) @ b.astype(np.float32) + c
    np.testing.assert_array_equal(got.view(np.float32), want[row, column])


@pytest.mark.parametrize(
    "name,m,k",
    [
        ("v_mfma_i32_16x16x64_i8", 16, 64),
        ("v_mfma_i32_32x32x32_i8", 32, 32),
        ("v_mfma_i32_16x16x32_i8", 16, 32),
        ("v_mfma_i32_32x32x16_i8", 32, 16),
    ],
)
def test_integers(name: str, m: int, k: int) -> None:
    a, b = RNG.integers(-128, 128, (m, k)).astype(np.int8), RNG.integers(-128, 128, (k, m)).astype(np.int8)
    row, column = rows_of_result(m, 4 if m == 16 else 16)
    c = RNG.integers(-(2**31), 2**31, (m, m)).astype(np.int32)
    got = execute(
        name,
        registers(pack(a, m, m * k // 64)),
        registers(pack(b.T.copy(), m, m * k // 64)),
        c[row, column].view(np.uint32),
    )
    want = (a.astype(np.int64) @ b.astype(np.int64) + c).astype(np.int32)
    np.testing.assert_array_equal(got.view(np.int32), want[row, column])


def codes_and_values(format_: int, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    bits = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}[format_]
    codes = RNG.integers(0, 1 << bits, shape).astype(np.uint8)
    if format_ == 0:
        codes[(codes & 0x7F) == 0x7F] = 0
        return codes, codes.view(E4M3).astype(np.float64)
    if format_ == 1:
        codes[(codes & 0x7C) == 0x7C] = 0
        return codes, codes.view(E5M2).astype(np.float64)
    if format_ == 4:
        return codes, codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    type_ = ml_dtypes.float6_e2m3fn if format_ == 2 else ml_dtypes.float6_e3m2fn
    return codes, codes.view(type_).astype(np.float64)


def lanes_of(codes: np.ndarray, format_: int, m: int) -> np.ndarray:
    """Registers of [m, k] codes. Eight-bit codes: two runs of 16 that are half of k apart; others: a run of 32."""
    k = codes.shape[1]
    if format_ < 2:
        halves = codes.reshape(m, 2, k // 32, 16).transpose(2, 0, 1, 3).reshape(64, 32)
        return registers(halves)
    lanes = codes.reshape(m, k // 32, 32).transpose(1, 0, 2).reshape(64, 32)
    width = 6 if format_ < 4 else 4
    packed = [sum(int(code) << (width * i) for i, code in enumerate(lane)) for lane in lanes]
    words = 6 if width == 6 else 4
    return np.array([[value >> (32 * word) & 0xFFFFFFFF for value in packed] for word in range(words)], np.uint32)


@pytest.mark.parametrize("m,k", [(16, 128), (32, 64)])
@pytest.mark.parametrize("format_a", range(5))
@pytest.mark.parametrize("format_b", range(5))
def test_mixed_formats_with_scales(m: int, k: int, format_a: int, format_b: int) -> None:
    codes_a, a = codes_and_values(format_a, (m, k))
    codes_b, b = codes_and_values(format_b, (m, k))
    row, column = rows_of_result(m, 4 if m == 16 else 16)
    c = np.zeros((m, m), np.float32)
    scale_a, scale_b = RNG.integers(120, 134, (m, k // 32)), RNG.integers(120, 134, (m, k // 32))
    byte_a, byte_b = 2, 1
    scales = np.stack(
        [scale_a.T.reshape(-1) << (8 * byte_a) | 0x5A, scale_b.T.reshape(-1) << (8 * byte_b) | 0x5A << 24]
    ).astype(np.uint32)
    got = execute(
        f"v_mfma_scale_f32_{m}x{m}x{k}_f8f6f4 op_sel:[0,1] op_sel_hi:[1,0] cbsz:{format_a} blgp:{format_b}",
        lanes_of(codes_a, format_a, m), lanes_of(codes_b, format_b, m), c[row, column].view(np.uint32), scales,
    ).view(np.float32)  # fmt: skip
    scaled_a = a * np.repeat(2.0 ** (scale_a - 127), 32, axis=1)
    scaled_b = b * np.repeat(2.0 ** (scale_b - 127), 32, axis=1)
    want = scaled_a @ scaled_b.T
    bound = np.abs(scaled_a) @ np.abs(scaled_b.T) * 2.0**-23 * k
    assert (np.abs(got - want[row, column]) <= bound[row, column]).all()
    plain = execute(f"v_mfma_f32_{m}x{m}x{k}_f8f6f4 cbsz:{format_a} blgp:{format_b}", lanes_of(codes_a, format_a, m), lanes_of(codes_b, format_b, m),
                    c[row, column].view(np.uint32)).view(np.float32)  # fmt: skip
    bound = np.abs(a) @ np.abs(b.T) * 2.0**-23 * k
    assert (np.abs(plain - (a @ b.T)[row, column]) <= bound[row, column]).all()


def test_scale_that_is_nan() -> None:
    """255 is NaN: of one row of A it makes that row of the result NaN."""
    codes, _ = codes_and_values(4, (16, 128))
    row, _ = rows_of_result(16, 4)
    scale = np.full((16, 4), 127)
    scale[5, 2] = 255
    scales = np.stack([scale.T.reshape(-1), np.full(64, 127)]).astype(np.uint32)
    operand = lanes_of(codes, 4, 16)
    got = execute(
        "v_mfma_scale_f32_16x16x128_f8f6f4 cbsz:4 blgp:4", operand, operand, np.zeros((4, 64), np.uint32), scales
    ).view(np.float32)
    np.testing.assert_array_equal(np.isnan(got), row == 5)


def test_accumulates_in_fp32_without_rounding_products() -> None:
    """(1 + 2^-10)^2 - 1 keeps 2^-20: a product rounded to fp16 would lose it."""
    a = np.zeros((16, 32), np.float16)
    a[:, 0] = 1 + 2.0**-10
    row, column = rows_of_result(16, 4)
    c = np.full((16, 16), -1, np.float32)
    packed = registers(pack(a, 16, 8))
    got = execute("v_mfma_f32_16x16x32_f16", packed, packed, c[row, column].view(np.uint32)).view(np.float32)
    assert (got == np.float32(2.0**-9 + 2.0**-20)).all()


def test_accumulators_are_written_from_vector_registers() -> None:
    """LLVM sets the bit that means an accumulator in other matrix instructions; the accumulator of that number is not
    what is written."""
    out = np.zeros(3 * 64, np.uint32)
    run(
        """s_load_dwordx2 s[2:3], s[0:1], 0x0
        v_lshlrev_b32 v1, 2, v0
        v_accvgpr_write_b32 a5, 33
        v_mov_b32 v5, 5
        s_mov_b32 s6, 6
        v_accvgpr_write_b32 a8, v5
        v_accvgpr_write_b32 a9, s6
        v_accvgpr_mov_b32 a10, a5
        v_accvgpr_read_b32 v8, a8
        v_accvgpr_read_b32 v9, a9
        v_accvgpr_read_b32 v10, a10
        s_waitcnt lgkmcnt(0)
        global_store_dword v1, v8, s[2:3]
        global_store_dword v1, v9, s[2:3] offset:256
        global_store_dword v1, v10, s[2:3] offset:512
        s_endpgm""",
        out,
    )
    np.testing.assert_array_equal(out, np.repeat([5, 6, 33], 64))
