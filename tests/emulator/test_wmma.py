"""wmma against NumPy: whole matrices are loaded, multiplied and stored."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.programs import run

SHAPES = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}
SMALL = {"m16n16k16": (4, 4), "m8n32k16": (2, 8), "m32n8k16": (8, 2)}
"""Registers of A and B of 16-bit elements that a chip does not hold twice."""
RNG = np.random.default_rng(21)


def aligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 32, np.uint8)
    start = -memory.ctypes.data % 32
    place = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def names(first: int, count: int, letter: str = "w") -> str:
    return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"


def product(shape: str, layouts: str, mma: str, types: tuple[str, str, str], registers: tuple[int, int, int, int],
            arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], letter: str = "w", space: str = "global",
            prefix: str = "wmma.mma") -> np.ndarray:  # fmt: skip
    """D of A, B, C, each in the layout that is named; C and D by rows."""
    a, b, c, d = (aligned(array) for array in arrays)
    a_type, c_type, d_type = types
    words = [names(first, count, letter) for first, count in zip((0, 20, 40, 60), registers, strict=True)]
    la, lb = layouts.split(".")
    dot = f".{space}" if space else ""
    run(
        f".reg .b32 %w<80>; .reg .b64 %q<80>;\nmov.u32 %r1, {c.shape[1]};\n"
        f"wmma.load.a.sync.aligned.{la}.{shape}{dot}.{a_type} {words[0]}, [%rd0];\n"
        f"wmma.load.b.sync.aligned.{lb}.{shape}{dot}.{a_type} {words[1]}, [%rd1];\n"
        f"wmma.load.c.sync.aligned.row.{shape}{dot}.{c_type} {words[2]}, [%rd2], %r1;\n"
        f"{prefix}.sync.aligned.{la}.{lb}.{shape}{mma} {words[3]}, {words[0]}, {words[1]}, {words[2]};\n"
        f"wmma.store.d.sync.aligned.row.{shape}{dot}.{d_type} [%rd3], {words[3]}, %r1;\n",
        a, b, c, d,
    )  # fmt: skip
    return d


def in_layout(matrix: np.ndarray, layout: str) -> np.ndarray:
    return matrix if layout == "row" else np.ascontiguousarray(matrix.T)


@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
@pytest.mark.parametrize("shape", SHAPES)
def test_halves(shape: str, layouts: str) -> None:
    m, n, k = SHAPES[shape]
    la, lb = layouts.split(".")
    a, b = (RNG.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (k, n)))
    c = RNG.integers(-9, 10, (m, n))
    for c_type, d_type in (("f16", "f16"), ("f32", "f32"), ("f16", "f32"), ("f32", "f16")):
        kinds = {"f16": (np.float16, 4), "f32": (np.float32, 8)}
        given = c.astype(kinds[c_type][0])
        got = product(shape, layouts, f".{d_type}.{c_type}", ("f16", c_type, d_type),
                      (8, 8, kinds[c_type][1], kinds[d_type][1]),
                      (in_layout(a, la), in_layout(b, lb), given, np.zeros((m, n), kinds[d_type][0])))  # fmt: skip
        np.testing.assert_array_equal(got, (a.astype(np.float32) @ b.astype(np.float32) + c).astype(got.dtype))


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_and_bytes(shape: str) -> None:
    m, n, k = SHAPES[shape]
    na, nb = SMALL[shape]
    a, b = (RNG.integers(-4, 5, size) for size in ((m, k), (k, n)))
    c = RNG.integers(-9, 10, (m, n))
    brain = [x.astype(ml_dtypes.bfloat16).view(np.uint16) for x in (a, np.ascontiguousarray(b.T))]
    got = product(shape, "row.col", ".f32.bf16.bf16.f32", ("bf16", "f32", "f32"), (na, nb, 8, 8),
                  (brain[0], brain[1], c.astype(np.float32), np.zeros((m, n), np.float32)), space="")  # fmt: skip
    np.testing.assert_array_equal(got, a @ b + c)
    for type_, kind in (("s8", np.int8), ("u8", np.uint8)):
        x, y = (np.abs(v).astype(kind) if type_ == "u8" else v.astype(kind) for v in (a, b))
        got = product(shape, "row.row", f".s32.{type_}.{type_}.s32", (type_, "s32", "s32"), (na // 2, nb // 2, 8, 8),
                      (x, y, c.astype(np.int32), np.zeros((m, n), np.int32)))  # fmt: skip
        np.testing.assert_array_equal(got, x.astype(np.int32) @ y.astype(np.int32) + c)
    full = np.full((m, k), 127, np.int8), np.full((k, n), 127, np.int8)
    most = np.full((m, n), 2**31 - 1, np.int32)
    got = product(shape, "row.row", ".s32.s8.s8.s32.satfinite", ("s8", "s32", "s32"), (na // 2, nb // 2, 8, 8),
                  (*full, most, np.zeros((m, n), np.int32)))  # fmt: skip
    np.testing.assert_array_equal(got, most)


def test_tf32_and_fp64() -> None:
    a, b = RNG.integers(-4, 5, (16, 8)), RNG.integers(-4, 5, (8, 16))
    c = RNG.integers(-9, 10, (16, 16))
    single = [x.astype(np.float32) for x in (a, b, c)]
    got = product("m16n16k8", "row.row", ".f32.tf32.tf32.f32", ("tf32", "f32", "f32"), (4, 4, 8, 8),
                  (single[0], single[1], single[2], np.zeros((16, 16), np.float32)))  # fmt: skip
    np.testing.assert_array_equal(got, a @ b + c)
    double = [x.astype(np.float64) for x in (a[:8, :4], b[:4, :8], c[:8, :8])]
    got = product("m8n8k4", "row.row", ".rn.f64.f64.f64.f64", ("f64", "f64", "f64"), (1, 1, 2, 2),
                  (double[0], double[1], double[2], np.zeros((8, 8))), letter="q")  # fmt: skip
    np.testing.assert_array_equal(got, double[0] @ double[1] + double[2])


def test_elements_of_less_than_a_byte() -> None:
    codes = RNG.integers(0, 16, (2, 8, 32))
    packed = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
    c = RNG.integers(-9, 10, (8, 8)).astype(np.int32)
    for type_ in ("u4", "s4"):
        x, y = (v - (v >> 3 << 4) if type_ == "s4" else v for v in codes)
        got = product("m8n8k32", "row.col", f".s32.{type_}.{type_}.s32", (type_, "s32", "s32"), (1, 1, 2, 2),
                      (packed[0], packed[1], c, np.zeros((8, 8), np.int32)))  # fmt: skip
        np.testing.assert_array_equal(got, x @ y.T + c)
    bits = RNG.integers(0, 2, (2, 8, 128)).astype(np.uint8)
    words = np.packbits(bits, axis=-1, bitorder="little")
    for operation, function in (("xor", np.bitwise_xor), ("and", np.bitwise_and)):
        got = product("m8n8k128", "row.col", ".s32.b1.b1.s32", ("b1", "s32", "s32"), (1, 1, 2, 2),
                      (*words, c, np.zeros((8, 8), np.int32)), prefix=f"wmma.mma.{operation}.popc")  # fmt: skip
        np.testing.assert_array_equal(got, function(bits[0][:, None], bits[1][None]).sum(-1) + c)


def test_strides_and_mistakes() -> None:
    memory = aligned(RNG.integers(-4, 5, (16, 24)).astype(np.float32))
    out = aligned(np.zeros((16, 16), np.float32))
    load = "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, "
    store = "wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%rd1], {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17};"
    run(f"{load}[%rd0], 24;\n{store}", memory, out)
    np.testing.assert_array_equal(out, memory[:, :16].T)
    for place, message in (("[%rd0+4], 24", "multiple of 32 bytes"), ("[%rd0], 23", "no multiple of 16 bytes"),
                           ("[%rd0], %r0", "differs between lanes"), ("[%rd0+64], 24", "out of bounds")):  # fmt: skip
        with pytest.raises(EmulatorFault, match=message):
            run(f"{load}{place};\n{store}", memory, out)
