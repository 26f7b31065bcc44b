"""mma.sync against NumPy: fragments are laid out by the manual's formulas for single elements, sums are in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import run_ptx
from tests.emulator.programs import kernel, run

Array = NDArray[np.generic]
LANE = np.arange(32)
GROUP, THREAD = LANE >> 2, LANE % 4


def a_place(bits: int, rows: int, i: int) -> tuple[Array, Array]:
    """Row and column of element i of A in each lane, for operands of `bits` bits (64: a register an element)."""
    per = 1 if bits >= 32 else 32 // bits
    register, inside = divmod(i, per)
    lower = rows == 16 and register % 2 == 1
    right = register // (rows // 8)
    return GROUP + 8 * lower, THREAD * per + inside + 4 * per * right


def b_place(bits: int, i: int) -> tuple[Array, Array]:
    per = 1 if bits >= 32 else 32 // bits
    register, inside = divmod(i, per)
    return THREAD * per + inside + 4 * per * register, GROUP


def c_place(i: int) -> tuple[Array, Array]:
    return GROUP + 8 * (i >> 1), THREAD * 2 + (i & 1)


def pack(codes: Array, bits: int) -> Array:
    """[elements, lanes] codes to [registers, lanes]."""
    if bits >= 32:
        return codes
    per = 32 // bits
    words = np.zeros((len(codes) // per, 32), np.uint32)
    for i, row in enumerate(codes):
        words[i // per] |= row.astype(np.uint32) << np.uint32(i % per * bits)
    return words


def take(matrix: Array, place: Callable[[int], tuple[Array, Array]], count: int) -> Array:
    return np.stack([matrix[place(i)] for i in range(count)])


def execute(
    opcode: str, operands: list[Array], out: Array, sum_order: int | None = None, last: int | None = None
) -> Array:
    """Runs `opcode D, operands...` in one warp; every operand is [registers, lanes].

    With a number `last` behind them the last operand is one register, not a vector.
    """
    lines, names = [], []
    number = 1
    for i, operand in enumerate(operands):
        size = operand.dtype.itemsize
        letter = "%w" if size == 8 else "%x"
        registers = [f"{letter}{number + j}" for j in range(len(operand))]
        number += len(operand)
        lines += [f"mul.lo.s64 %rd20, %rd15, {size}; add.s64 %rd20, %rd20, %rd{i};"]
        lines += [f"ld.global.b{8 * size} {name}, [%rd20+{32 * size * j}];" for j, name in enumerate(registers)]
        names.append("{" + ", ".join(registers) + "}")
    if last is not None:
        names[-1:] = [names[-1][1:-1], str(last)]
    size = out.dtype.itemsize
    results = [f"{'%w' if size == 8 else '%x'}{100 + j}" for j in range(len(out))]
    lines.append(f"{opcode} {{{', '.join(results)}}}, {', '.join(names)};")
    lines.append(f"mul.lo.s64 %rd20, %rd15, {size}; add.s64 %rd20, %rd20, %rd{len(operands)};")
    lines += [f"st.global.b{8 * size} [%rd20+{32 * size * j}], {name};" for j, name in enumerate(results)]
    registers = ".reg .b32 %x<140>; .reg .b64 %w<140>;\n"
    text = kernel("{" + registers + "\n".join(lines) + "}", len(operands) + 1)
    run_ptx(text, "k", 1, 32, [*operands, out], sum_order=sum_order)
    return out


CODES = {
    "f16": (16, np.float16), "bf16": (16, ml_dtypes.bfloat16), "e4m3": (8, ml_dtypes.float8_e4m3fn),
    "e5m2": (8, ml_dtypes.float8_e5m2), "s8": (8, np.int8), "u8": (8, np.uint8), "s4": (4, None), "u4": (4, None),
}  # fmt: skip


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> tuple[Array, Array]:
    """(codes, values in float64) of an element type."""
    if kind == "tf32":
        numbers = rng.standard_normal(shape).astype(np.float32)
        # The low 13 bits do not count.
        return numbers.view(np.uint32), (numbers.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    if kind == "f64":
        numbers = rng.standard_normal(shape)
        return numbers, numbers
    bits, dtype = CODES[kind]
    if dtype is None:
        codes = rng.integers(0, 16, shape)
        return codes, np.where((codes > 7) & (kind == "s4"), codes - 16, codes).astype(np.float64)
    if kind[0] in "su":
        codes = rng.integers(0, 256, shape).astype(np.uint8)
        return codes, codes.view(dtype).astype(np.float64)
    numbers = (rng.standard_normal(shape) * 4).astype(dtype)
    return numbers.view(f"u{bits // 8}"), numbers.astype(np.float64)


def check(opcode: str, rows: int, k: int, a_kind: str, b_kind: str, c_kind: str, saturate: bool = False) -> None:
    rng = np.random.default_rng([rows, k, len(opcode), ord(opcode[-1])])
    bits = {"f64": 64, "tf32": 32, "b1": 1}.get(a_kind) or CODES[a_kind][0]
    a_codes, a = draw(rng, a_kind, (rows, k))
    b_codes, b = draw(rng, b_kind, (k, 8))
    per_lane = rows * k // 32
    a_registers = pack(take(a_codes, lambda i: a_place(bits, rows, i), per_lane), bits)
    b_registers = pack(take(b_codes, lambda i: b_place(bits, i), k * 8 // 32), bits)
    if c_kind == "s32":
        ends = (-(2**31), 2**31) if saturate else (-1000, 1000)
        c = rng.integers(*ends, (rows, 8)).astype(np.int32)
    else:
        c = rng.standard_normal((rows, 8)).astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[c_kind])
    c_elements = take(c, c_place, rows // 4)
    halves = c_kind == "f16"
    c_registers = pack(c_elements.view(np.uint16), 16) if halves else c_elements.view(f"u{c.itemsize}")
    out = execute(opcode, [a_registers, b_registers, c_registers], np.zeros_like(c_registers))
    if halves:
        found = np.stack([(out[i // 2] >> np.uint32(i % 2 * 16)).astype(np.uint16) for i in range(rows // 4)])
        found = found.view(np.float16)
    else:
        found = out.view(c.dtype)
    result = np.zeros((rows, 8), c.dtype)
    for i in range(rows // 4):
        result[c_place(i)] = found[i]
    exact = a @ b + c.astype(np.float64)
    if c_kind == "s32":
        whole = np.clip(exact, -(2**31), 2**31 - 1) if saturate else exact
        np.testing.assert_array_equal(result, whole.astype(np.int64).astype(np.int32))
        return
    epsilon = {"f16": 2.0**-11, "f32": 2.0**-23, "f64": 2.0**-52}[c_kind]
    bound = (np.abs(a) @ np.abs(b) + np.abs(c.astype(np.float64))) * k * 2.0**-24 + np.abs(exact) * epsilon
    assert (np.abs(result.astype(np.float64) - exact) <= bound * (1 if c_kind != "f64" else 2.0**-27)).all()


@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize(("kind", "sums"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32")])
def test_halves(k: int, kind: str, sums: str) -> None:
    check(f"mma.sync.aligned.m16n8k{k}.row.col.{sums}.{kind}.{kind}.{sums}", 16, k, kind, kind, sums)


@pytest.mark.parametrize("k", [4, 8])
def test_tf32(k: int) -> None:
    check(f"mma.sync.aligned.m16n8k{k}.row.col.f32.tf32.tf32.f32", 16, k, "tf32", "tf32", "f32")


@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("sums", ["f32", "f16"])
@pytest.mark.parametrize(("a", "b"), itertools.product(["e4m3", "e5m2"], repeat=2))
def test_fp8(k: int, sums: str, a: str, b: str) -> None:
    check(f"mma.sync.aligned.m16n8k{k}.row.col.{sums}.{a}.{b}.{sums}", 16, k, a, b, sums)


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
@pytest.mark.parametrize("rounding", ["", ".rn"])
def test_fp64(m: int, k: int, rounding: str) -> None:
    check(f"mma.sync.aligned.m{m}n8k{k}.row.col{rounding}.f64.f64.f64.f64", m, k, "f64", "f64", "f64")


@pytest.mark.parametrize(("m", "k"), [(8, 16), (16, 16), (16, 32)])
@pytest.mark.parametrize(("a", "b"), itertools.product(["s8", "u8"], repeat=2))
@pytest.mark.parametrize("saturate", [False, True])
def test_bytes(m: int, k: int, a: str, b: str, saturate: bool) -> None:
    tail = ".satfinite" if saturate else ""
    check(f"mma.sync.aligned.m{m}n8k{k}.row.col{tail}.s32.{a}.{b}.s32", m, k, a, b, "s32", saturate)


@pytest.mark.parametrize(("m", "k"), [(8, 32), (16, 32), (16, 64)])
@pytest.mark.parametrize(("a", "b"), itertools.product(["s4", "u4"], repeat=2))
@pytest.mark.parametrize("saturate", [False, True])
def test_nibbles(m: int, k: int, a: str, b: str, saturate: bool) -> None:
    tail = ".satfinite" if saturate else ""
    check(f"mma.sync.aligned.m{m}n8k{k}.row.col{tail}.s32.{a}.{b}.s32", m, k, a, b, "s32", saturate)


@pytest.mark.parametrize(("m", "k"), [(8, 128), (16, 128), (16, 256)])
@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits(m: int, k: int, operation: str) -> None:
    rng = np.random.default_rng(k + m)
    a, b = rng.integers(0, 2, (m, k)), rng.integers(0, 2, (k, 8))
    c = rng.integers(-1000, 1000, (m, 8)).astype(np.int32)
    a_registers = pack(take(a, lambda i: a_place(1, m, i), m * k // 32), 1)
    b_registers = pack(take(b, lambda i: b_place(1, i), k * 8 // 32), 1)
    c_registers = take(c, c_place, m // 4)
    opcode = f"mma.sync.aligned.m{m}n8k{k}.row.col.s32.b1.b1.s32.{operation}.popc"
    out = execute(opcode, [a_registers, b_registers, c_registers], np.zeros_like(c_registers))
    agreeing = a[:, :, None] ^ b[None] if operation == "xor" else a[:, :, None] & b[None]
    expected = agreeing.sum(1) + c
    for i in range(m // 4):
        np.testing.assert_array_equal(out[i], expected[c_place(i)])


@pytest.mark.parametrize(("a_layout", "b_layout"), itertools.product(["row", "col"], repeat=2))
@pytest.mark.parametrize(("d_kind", "c_kind"), [("f16", "f16"), ("f32", "f16"), ("f32", "f32")])
def test_four_small_products(a_layout: str, b_layout: str, d_kind: str, c_kind: str) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-8, 9, (4, *shape)).astype(np.float16) for shape in ((8, 4), (4, 8)))
    c = rng.integers(-8, 9, (4, 8, 8)).astype(np.float32)
    upper = np.where(LANE < 16, 0, 4)
    group = LANE % 16 // 4

    def sums_place(kind: str, i: int) -> tuple[Array, Array, Array]:
        if kind == "f16":
            return group, LANE % 4 + upper, np.full(32, i)
        return group, (LANE & 1) + (i & 2) + upper, (i & 4) + (LANE & 2) + (i & 1)

    def words(rows: list[Array], kind: str) -> Array:
        stacked = np.stack(rows).astype({"f16": np.float16, "f32": np.float32}[kind])
        return pack(stacked.view(np.uint16), 16) if kind == "f16" else stacked.view(np.uint32)

    inner, outer = np.arange(4), LANE % 4
    a_rows = [a[group, outer + upper, i] if a_layout == "row" else a[group, i + upper, outer] for i in inner]
    b_rows = [b[group, outer, i + upper] if b_layout == "row" else b[group, i, outer + upper] for i in inner]
    c_rows = [c[sums_place(c_kind, i)] for i in range(8)]
    opcode = f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d_kind}.f16.f16.{c_kind}"
    expected = words(
        [(a.astype(np.float32) @ b.astype(np.float32) + c)[sums_place(d_kind, i)] for i in range(8)], d_kind
    )
    operands = [words(a_rows, "f16"), words(b_rows, "f16"), words(c_rows, c_kind)]
    np.testing.assert_array_equal(execute(opcode, operands, np.zeros_like(expected)), expected)


def test_order_of_sums_is_that_of_the_document() -> None:
    """fp32, k ascending: bit for bit."""
    rng = np.random.default_rng(3)
    a = (rng.standard_normal((16, 16)) * 100).astype(np.float16)
    b = (rng.standard_normal((16, 8)) * 100).astype(np.float16)
    c = rng.standard_normal((16, 8)).astype(np.float32)
    expected = c.copy()
    for k in range(16):
        expected = expected + a[:, k : k + 1].astype(np.float32) * b[k].astype(np.float32)
    a_registers = pack(take(a.view(np.uint16), lambda i: a_place(16, 16, i), 8), 16)
    b_registers = pack(take(b.view(np.uint16), lambda i: b_place(16, i), 4), 16)
    out = execute("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
                  [a_registers, b_registers, take(c, c_place, 4)], np.zeros((4, 32), np.float32))  # fmt: skip
    np.testing.assert_array_equal(out, take(expected, c_place, 4))


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2"])
def test_every_code_of_a_format(kind: str) -> None:
    """A times the identity: finite codes arrive as their values, infinities and NaN as arithmetic makes of them."""
    bits, dtype = CODES[kind]
    k = 16 if bits == 16 else 32
    identity = np.eye(k, 8).astype(dtype).view(f"u{bits // 8}")
    b_registers = pack(take(identity, lambda i: b_place(bits, i), k * 8 // 32), bits)
    codes = np.arange(2**bits) if bits == 8 else np.r_[0:64, 0x3F0:0x410, 0x7BF0:0x7C10, 0x7F70:0x8010, 0xFBFE:0xFFFF]
    codes = np.pad(codes, (0, -len(codes) % 128)).astype(f"u{bits // 8}")
    opcode = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32"
    for chunk in codes.reshape(-1, 16, 8):
        # Columns beyond 8 are zero, so that a NaN or infinity of one column reaches its row only through 0 * infinity.
        a = np.zeros((16, k), chunk.dtype)
        a[:, :8] = chunk
        values = a.view(dtype).astype(np.float32)
        with np.errstate(invalid="ignore"):
            expected = sum(
                (values[:, i : i + 1] * np.eye(k, 8, dtype=np.float32)[i] for i in range(k)), np.zeros((16, 8))
            )
        a_registers = pack(take(a, lambda i: a_place(bits, 16, i), 16 * k // 32), bits)
        out = execute(opcode, [a_registers, b_registers, np.zeros((4, 32), np.float32)], np.zeros((4, 32), np.float32))
        wanted = take(expected.astype(np.float32), c_place, 4)
        np.testing.assert_array_equal(out, wanted)
        assert (out.view(np.uint32)[np.isnan(out)] == 0x7FFFFFFF).all()


def test_order_of_sums_by_seed() -> None:
    """Another order gives other bits, the same ones for the same seed, within the bound for any order."""
    rng = np.random.default_rng(6)
    a = rng.integers(0, 2**32, (4, 32), dtype=np.uint32) & 0x5BFF5BFF
    b = rng.integers(0, 2**32, (2, 32), dtype=np.uint32) & 0xDBFFDBFF
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    out = [
        execute(opcode, [a, b, np.zeros((4, 32), np.float32)], np.zeros((4, 32), np.float32), sum_order=seed)
        for seed in (None, 1, 1, 2)
    ]
    np.testing.assert_array_equal(out[1], out[2])
    assert (out[0] != out[1]).any() and (out[1] != out[3]).any()
    np.testing.assert_allclose(out[1], out[0], rtol=0, atol=float(np.abs(out[0]).max()) * 2.0**-20)


def test_flops_are_counted() -> None:
    body = "mov.b32 %r1, 0; mov.b64 %rd1, 0;\n"
    body += "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r2,%r3,%r4,%r5}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, "
    body += "{%r1,%r1,%r1,%r1};\n"
    body += "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%r2,%r3,%r4,%r5}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, "
    body += "{%r1,%r1,%r1,%r1};\n"
    report = run(body, np.zeros(1, np.uint32), threads=64)
    assert report.matrix_flops == {"f16": 2 * 2 * 16 * 8 * 16, "f8f6f4": 2 * 2 * 16 * 8 * 32}


def rounded(exact: Fraction, rounding: str) -> float:
    near = float(exact)
    below, above = (near if Fraction(near) <= exact else np.nextafter(near, -np.inf),
                    near if Fraction(near) >= exact else np.nextafter(near, np.inf))  # fmt: skip
    toward_zero = below if exact > 0 else above
    return float({"": near, ".rn": near, ".rz": toward_zero, ".rm": below, ".rp": above}[rounding])


@pytest.mark.parametrize("rounding", ["", ".rn", ".rz", ".rm", ".rp"])
def test_roundings_of_fp64(rounding: str) -> None:
    """Fused multiply-adds one after the other, k ascending."""
    rng = np.random.default_rng(44)
    a, b, c = (rng.standard_normal(size) for size in ((8, 4), (4, 8), (8, 8)))
    lanes = np.concatenate([a[GROUP, THREAD], b[THREAD, GROUP], c[GROUP, 2 * THREAD], c[GROUP, 2 * THREAD + 1]])
    out = np.zeros(64)
    body = "shl.b64 %rd2, %rd15, 3; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;\n"
    body += "".join(f"ld.global.b64 %rd{5 + i}, [%rd3+{256 * i}];\n" for i in range(4))
    opcode = f"mma.sync.aligned.m8n8k4.row.col{rounding}.f64.f64.f64.f64"
    body += f"{opcode} {{%rd9, %rd10}}, {{%rd5}}, {{%rd6}}, {{%rd7, %rd8}};\n"
    run(body + "st.global.b64 [%rd4], %rd9; st.global.b64 [%rd4+256], %rd10;", lanes, out)
    for lane in range(32):
        for i in range(2):
            row, column = GROUP[lane], 2 * THREAD[lane] + i
            total = float(c[row, column])
            for k in range(4):
                total = rounded(Fraction(float(a[row, k])) * Fraction(float(b[k, column])) + Fraction(total), rounding)
            assert out[32 * i + lane] == total
