"""Floating-point instructions against NumPy and ml_dtypes, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.programs import apply

NAN = np.uint32(0x7FFFFFFF)
SPECIAL = np.array(
    [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x00000001, 0x807FFFFF,
     0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x3F000000, 0x40200000, 0x33800000, 0x477FE000,
     0x477FF000, 0x38800000, 0x387FC000, 0x33000000, 0x33000001, 0x43E00000, 0x43E80000, 0x43E80001, 0x3A800000,
     0x4F000000, 0x4EFFFFFF, 0xCF000000, 0x4F800000, 0x5F000000, 0xDF000000, 0x5F800000, 0x3FC00000, 0xC0200000],
    np.uint32,
)  # fmt: skip


def operands(count: int, seed: int = 0) -> list[np.ndarray]:
    """`count` fp32 arrays: pairs of special values, random bits, and random numbers near one another."""
    rng = np.random.default_rng(seed)
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    arrays = []
    for i in range(count):
        bits = rng.integers(0, 2**32, 1500, dtype=np.uint32)
        near = rng.standard_normal(1500).astype(np.float32).view(np.uint32)
        arrays.append(np.concatenate([pairs[i % 2], bits, near]).view(np.float32))
    return arrays


def flushed(values: np.ndarray) -> np.ndarray:
    small = np.abs(values) < np.float32(2**-126)
    return np.where(small, np.copysign(np.float32(0), values), values)


def same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, where each expected NaN is the canonical one."""
    bits = np.where(np.isnan(expected), NAN, expected.astype(np.float32).view(np.uint32))
    np.testing.assert_array_equal(got.view(np.uint32), bits)


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_arithmetic(ftz: str) -> None:
    a, b, c = operands(3)
    x, y, z = (flushed(v) if ftz else v for v in (a, b, c))
    after = flushed if ftz else (lambda v: v)
    with np.errstate(all="ignore"):
        for name, value in {"add": x + y, "sub": x - y, "mul": x * y}.items():
            same_bits(apply(f"{name}{ftz}.f32 D, A, B", "float32", a, b), after(value))
            same_bits(apply(f"{name}.rn{ftz}.f32 D, A, B", "float32", a, b), after(value))
        same_bits(apply(f"div.rn{ftz}.f32 D, A, B", "float32", a, b), after(x / y))
        same_bits(apply(f"rcp.rn{ftz}.f32 D, A", "float32", a), after(np.float32(1) / x))
        same_bits(apply(f"sqrt.rn{ftz}.f32 D, A", "float32", a), after(np.sqrt(x)))
    assert z.size == a.size


def rounded(value: int, power: int) -> float:
    """value * 2^power, rounded once to fp32 with exact integers."""
    sign, value = (-1, -value) if value < 0 else (1, value)
    drop = max(value.bit_length() - 24, -149 - power)
    if drop > 0:
        kept, rest = value >> drop, value & ((1 << drop) - 1)
        kept += rest > 1 << (drop - 1) or (rest == 1 << (drop - 1) and kept & 1)
        value, power = kept, power + drop
    return sign * float(np.float32(np.ldexp(np.float64(value), power)))


def test_fma_rounds_once() -> None:
    a, b, c = operands(3, seed=1)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0) & (c != 0)
    a, b, c = a[finite], b[finite], c[finite]
    got = apply("fma.rn.f32 D, A, B, C", "float32", a, b, c)
    whole = [np.ldexp(np.float64(v), 149).astype(object) for v in (a, b, c)]
    with np.errstate(over="ignore"):
        expected = np.array(
            [rounded(int(x) * int(y) + (int(z) << 149), -298) for x, y, z in zip(*whole, strict=True)], np.float32
        )
    np.testing.assert_array_equal(got, expected)


def test_fma_special() -> None:
    inf, nan = np.inf, np.nan
    a, b, c = np.array(
        [[inf, 0, 1], [inf, 1, -inf], [inf, 1, 1], [nan, 1, 1], [1, 1, nan], [2, 3, -inf]], np.float32
    ).T.copy()
    same_bits(apply("fma.rn.f32 D, A, B, C", "float32", a, b, c), np.array([nan, nan, inf, nan, nan, -inf], np.float32))


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_sign(ftz: str) -> None:
    (a,) = operands(1)
    x = (flushed(a) if ftz else a).view(np.uint32)
    for name, bits in (("abs", x & 0x7FFFFFFF), ("neg", x ^ 0x80000000)):
        expected = np.where(np.isnan(a), NAN, bits)
        np.testing.assert_array_equal(apply(f"{name}{ftz}.f32 D, A", "uint32", a), expected)


def extreme(a: np.ndarray, b: np.ndarray, least: bool, nan: bool) -> np.ndarray:
    """minNum and maxNum with -0 below +0, or with NaN."""
    with np.errstate(invalid="ignore"):
        first_key, second_key = (np.where(np.signbit(v), -1, 1) * 2.0**-200 + v.astype(np.float64) for v in (a, b))
    first = (first_key <= second_key) == least
    value = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where(first, a, b)))
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), value) if nan else value


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_extremes(name: str, ftz: str, nan: str) -> None:
    a, b = operands(2)
    x, y = (flushed(v) if ftz else v for v in (a, b))
    same_bits(apply(f"{name}{ftz}{nan}.f32 D, A, B", "float32", a, b), extreme(x, y, name == "min", bool(nan)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_extremes_of_sixteen_bits(dtype: str, name: str, nan: str) -> None:
    ptx = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    rng = np.random.default_rng(3)
    special = np.array([0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0xFF80, 0x7FC1, 1, 0x8001, 0x3C00], np.uint16)
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    a, b = (np.concatenate([p, rng.integers(0, 2**16, 1001 * 2 - p.size % 2, dtype=np.uint16)]) for p in pairs)
    a, b = a[: a.size // 2 * 2], b[: b.size // 2 * 2]
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    wide = extreme(a.view(kind).astype(np.float32), b.view(kind).astype(np.float32), name == "min", bool(nan))
    expected = np.where(np.isnan(wide), np.uint16(0x7FFF), wide.astype(kind).view(np.uint16))
    np.testing.assert_array_equal(apply(f"{name}{nan}.{ptx} D, A, B", "uint16", a, b), expected)
    packed = apply(f"{name}{nan}.{ptx}x2 D, A, B", "uint32", a.view(np.uint32), b.view(np.uint32))
    np.testing.assert_array_equal(packed.view(np.uint16), expected)


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_comparisons(ftz: str) -> None:
    a, b = operands(2)
    x, y = (flushed(v) if ftz else v for v in (a, b))
    ordered = {"eq": x == y, "ne": (x < y) | (x > y), "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    unordered = np.isnan(x) | np.isnan(y)
    expected = ordered | {f"{name}u": value | unordered for name, value in ordered.items()}
    expected |= {"num": ~unordered, "nan": unordered}
    for name, value in expected.items():
        got = apply(f"setp.{name}{ftz}.f32 %p1, A, B ; selp.b32 D, 1, 0, %p1", "uint32", a, b)
        np.testing.assert_array_equal(got.astype(bool), value, name)


@pytest.mark.parametrize("kind", ["b16", "s16", "u16", "b32", "s32", "u32", "b64", "s64", "u64"])
def test_integer_comparisons(kind: str) -> None:
    bits = kind[1:]
    dtype = {"s": f"int{bits}"}.get(kind[0], f"uint{bits}")
    rng = np.random.default_rng(4)
    a = np.concatenate([rng.integers(0, 3, 200), rng.integers(-(2**15), 2**15, 200)]).astype(dtype)
    b = np.concatenate([rng.integers(0, 3, 200), rng.integers(-(2**15), 2**15, 200)]).astype(dtype)
    tests = {"eq": a == b, "ne": a != b}
    if kind[0] != "b":
        tests |= {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    if kind[0] == "u":
        tests |= {"lo": a < b, "ls": a <= b, "hi": a > b, "hs": a >= b}
    for name, value in tests.items():
        got = apply(f"setp.{name}.{kind} %p1, A, B ; selp.b32 D, 1, 0, %p1", "uint32", a, b)
        np.testing.assert_array_equal(got.astype(bool), value, name)


def test_joined_comparison_and_predicates() -> None:
    a, b, c = np.array(np.meshgrid([0, 1], [0, 1], [0, 1]), np.uint32).reshape(3, -1)
    less, third = a < b, c != 0
    for join, function in {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.items():
        text = f"setp.ne.b32 %p3, C, 0 ; setp.lt.{join}.u32 %p1|%p2, A, B, %p3 ; selp.b32 %r9, 2, 0, %p2 ; "
        got = apply(text + "selp.b32 D, 1, 0, %p1 ; or.b32 D, D, %r9", "uint32", a, b, c)
        np.testing.assert_array_equal(got, function(less, third) + 2 * function(~less, third), join)
        text = f"setp.lt.u32 %p1, A, B ; setp.eq.b32 %p3, C, 0 ; not.pred %p3, %p3 ; {join}.pred %p4, %p1, %p3 ; "
        got = apply(text + "selp.b32 D, 1, 0, %p4", "uint32", a, b, c)
        np.testing.assert_array_equal(got.astype(bool), function(less, third), join)
        got = apply(
            f"setp.ne.b32 %p3, C, 0 ; setp.lt.{join}.u32 %p1, A, B, !%p3 ; selp.b32 D, 1, 0, %p1", "uint32", a, b, c
        )
        np.testing.assert_array_equal(got.astype(bool), function(less, ~third), join)
