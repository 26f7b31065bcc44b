"""Arithmetic of Blackwell and Rubin against exact fractions and ml_dtypes: pairs of fp32, mixed sums, small formats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import PtxError, opcodes
from tests.emulator import exact
from tests.emulator.exact import BF16, F16, F32, Format
from tests.emulator.programs import apply

ROUNDINGS = ("", ".rn", ".rz", ".rm", ".rp")


def mode(rounding: str) -> str:
    return rounding[1:] or "rn"


def column(function: Callable[..., int], *arrays: NDArray[np.generic]) -> NDArray[np.uint32]:
    return np.array([function(*map(int, row)) for row in zip(*arrays, strict=True)], np.uint32)


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_pairs_of_fp32(rounding: str, ftz: bool) -> None:
    a, b, c = (array[: array.size // 2 * 2] for array in exact.operands(F32, 3, size=100))
    x, y, z = (np.array([F32.flushed(int(v)) if ftz else int(v) for v in array], np.uint32) for array in (a, b, c))
    pairs = [array.view(np.uint64) for array in (a, b, c)]
    tail = f"{rounding}{'.ftz' if ftz else ''}.f32x2"
    for name, function in {
        "add": lambda p, q: exact.add(F32, p, q, mode(rounding), ftz),
        "sub": lambda p, q: exact.add(F32, p, q ^ F32.sign_bit, mode(rounding), ftz),
        "mul": lambda p, q: exact.mul(F32, p, q, mode(rounding), ftz),
    }.items():
        got = apply(f"{name}{tail} D, A, B", "uint64", *pairs[:2], target="sm_100a").view(np.uint32)
        np.testing.assert_array_equal(got, column(function, x, y), name)
    if rounding:
        got = apply(f"fma{tail} D, A, B, C", "uint64", *pairs, target="sm_100a").view(np.uint32)
        expected = column(lambda p, q, r: exact.fma(F32, p, q, r, mode(rounding), ftz), x, y, z)
        np.testing.assert_array_equal(got, expected)


def widened(form: Format, bits: int) -> int:
    return F32.bits(form.value(bits), negative_zero=exact.is_negative(form, bits))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("type_, form", [("f16", F16), ("bf16", BF16)])
def test_sixteen_bits_into_fp32(type_: str, form: Format, rounding: str) -> None:
    a, b = exact.operands(form, 2, size=100)
    (c,) = exact.operands(F32, 1, size=400)
    size = min(a.size, c.size) // 2 * 2
    a, b, c = a[:size], b[:size], np.random.default_rng(1).permutation(c)[:size]
    x, y = column(lambda v: widened(form, v), a), column(lambda v: widened(form, v), b)
    how = mode(rounding)
    added = column(lambda p, q: exact.add(F32, p, q, how), x, c)
    taken = column(lambda p, q: exact.add(F32, p, q ^ F32.sign_bit, how), x, c)
    fused = column(lambda p, q, r: exact.fma(F32, p, q, r, how), x, y, c)
    for saturate in ("", ".sat"):

        def ended(bits: np.ndarray, saturate: str = saturate) -> np.ndarray:
            values = np.nan_to_num(bits.view(np.float32), nan=0.0, posinf=np.inf, neginf=-np.inf)
            return np.clip(values, np.float32(0), np.float32(1)).view(np.uint32) & 0x7FFFFFFF if saturate else bits

        tail = f"{rounding}{saturate}.f32.{type_}"
        got = apply(f"add{tail} D, A, B", "uint32", a, c, target="sm_100a")
        np.testing.assert_array_equal(got, ended(added), tail)
        got = apply(f"sub{tail} D, A, B", "uint32", a, c, target="sm_100a")
        np.testing.assert_array_equal(got, ended(taken), tail)
        if rounding:
            got = apply(f"fma{tail} D, A, B, C", "uint32", a, b, c, target="sm_100a")
            np.testing.assert_array_equal(got, ended(fused), tail)
    if rounding:  # the same on pairs, with a second factor of fp32
        d = np.roll(c, 7)
        wide = [array.view(np.uint64) for array in (c, d)]
        got = apply(
            f"fma{rounding}.f32x2.{type_}x2.f32x2.f32x2 D, A, B, C",
            "uint64",
            a.view(np.uint32),
            *wide,
            target="sm_107a",
        )
        expected = column(lambda p, q, r: exact.fma(F32, p, q, r, how), x, c, d)
        np.testing.assert_array_equal(got.view(np.uint32), expected)
        got = apply(
            f"add{rounding}.f32x2.{type_}x2.f32x2 D, A, B", "uint64", a.view(np.uint32), wide[0], target="sm_107a"
        )
        np.testing.assert_array_equal(got.view(np.uint32), added)
        got = apply(
            f"sub{rounding}.f32x2.{type_}x2.f32x2 D, A, B", "uint64", a.view(np.uint32), wide[0], target="sm_107a"
        )
        np.testing.assert_array_equal(got.view(np.uint32), taken)


@pytest.mark.parametrize("type_, form, ftz", [("f16", F16, True), ("bf16", BF16, False)])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_pairs_of_fp32_into_sixteen_bits(name: str, type_: str, form: Format, ftz: bool) -> None:
    """Toward zero, so that a rounding to fp32 on the way changes nothing."""
    rng = np.random.default_rng(2)
    a, b = (array[: array.size // 2 * 2] for array in exact.operands(F32, 2, size=200))
    scale = rng.integers(-12, 12, a.size)  # results among the subnormal numbers of FP16 and beyond its largest
    with np.errstate(all="ignore"):
        close = np.where(np.abs(scale) < 9, a.view(np.float32), np.ldexp(a.view(np.float32), scale)).view(np.uint32)
    a, b = np.concatenate([a, close]), np.concatenate([b, rng.permutation(b)])

    def function(p: int, q: int) -> int:
        p, q = (F32.flushed(v) if ftz else v for v in (p, q))
        q = q ^ F32.sign_bit if name == "sub" else q
        wide = (exact.mul if name == "mul" else exact.add)(F32, p, q, "rz")
        return form.bits(F32.value(wide), "rz", exact.is_negative(F32, wide), ftz)

    tail = f".rz{'.ftz' if ftz else ''}.{type_}x2.f32x2.f32x2"
    got = apply(f"{name}{tail} D, A, B", "uint32", a.view(np.uint64), b.view(np.uint64), target="sm_107a")
    np.testing.assert_array_equal(got.view(np.uint16), column(function, a, b).astype(np.uint16))


# ---- formats of 8 bits and less

KINDS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 8),
    "e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4),
    "ue8m0": (ml_dtypes.float8_e8m0fnu, 8),
}


def values_of(kind: str) -> NDArray[np.float64]:
    dtype, bits = KINDS[kind]
    return np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float64)


GRID = {kind: values_of(kind) for kind in KINDS}
MOST = {"e4m3": 448.0, "e5m2": 57344.0}


def nearest(kind: str, value: Fraction | float, negative: bool, finite: bool) -> int:
    """The code of the nearest number, ties to the even code."""
    sign = 0x80 if negative else 0
    if isinstance(value, float) and math.isnan(value):
        return 0x7F
    infinite = 0x7F if kind == "e4m3" else 0x7C
    if isinstance(value, float):
        return (0x7E if kind == "e4m3" else 0x7B) | sign if finite else infinite | sign
    form = Format(4, 3) if kind == "e4m3" else Format(5, 2)
    code = form.bits(abs(value)) if kind == "e5m2" else _e4m3(abs(value))
    if code > (0x7E if kind == "e4m3" else 0x7B):
        code = (0x7E if kind == "e4m3" else 0x7B) if finite else infinite
    return code | sign


def _e4m3(value: Fraction) -> int:
    """Beyond 448 one code more, as if exponents went on."""
    grid = [Fraction(v) for v in GRID["e4m3"][:0x7F]] + [Fraction(480)]
    for code in range(0x7F):
        middle = (grid[code] + grid[code + 1]) / 2
        if value < middle or (value == middle and code % 2 == 0):
            return code
    return 0x7F


TRIPLES = [
    (result, first, second)
    for result, first, second in itertools.product(
        ("e4m3", "e5m2"), ("e2m1", "e2m1p4", "e4m3", "e5m2", "e2m3", "e3m2"), ("e4m3", "e5m2", "ue8m0", "e2m1")
    )
]


def codes(kind: str, rng: np.random.Generator, count: int) -> tuple[NDArray[np.generic], NDArray[np.uint8]]:
    """`count` registers of four elements, and the elements."""
    name = kind.removesuffix("p4")
    elements = rng.integers(0, 1 << KINDS[name][1], (count, 4), dtype=np.uint8)
    if kind == "ue8m0":
        elements[:, :3] = rng.integers(117, 137, (count, 3), dtype=np.uint8)
    if kind == "e2m1":
        return (elements.astype(np.uint16) << np.array([0, 4, 8, 12], np.uint16)).sum(1, dtype=np.uint16), elements
    return elements.view(np.uint32).reshape(-1), elements


def exact_of(kind: str, code: int) -> Fraction | float:
    value = float(GRID[kind.removesuffix("p4")][code])
    return Fraction(value) if math.isfinite(value) else value


def product(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    if isinstance(x, float) or isinstance(y, float):
        return float(np.float64(x) * np.float64(y))
    return x * y


@pytest.mark.parametrize("result, first, second", TRIPLES)
def test_products_of_eight_bits(result: str, first: str, second: str) -> None:
    rng = np.random.default_rng(5)
    a, x = codes(first, rng, 40)
    b, y = codes(second, rng, 40)
    c, z = codes(result, rng, 40)
    negative = [float(np.copysign(1, GRID[k.removesuffix("p4")])[0]) for k in (first, second)]
    assert negative == [1.0, 1.0]
    for finite in (False, True):
        tail = f"{'.satfinite' if finite else ''}.{result}x4.{first}x4.{second}x4"
        multiplied, fused = np.zeros((40, 4), np.uint8), np.zeros((40, 4), np.uint8)
        with np.errstate(invalid="ignore"):
            for place in itertools.product(range(40), range(4)):
                p, q, r = (exact_of(k, int(v[place])) for k, v in ((first, x), (second, y), (result, z)))
                signs = [
                    bool(np.signbit(GRID[k.removesuffix("p4")][v[place]]))
                    for k, v in ((first, x), (second, y), (result, z))
                ]
                value = product(p, q)
                multiplied[place] = nearest(result, value, signs[0] != signs[1], finite)
                if isinstance(value, float) or isinstance(r, float):
                    total: Fraction | float = float(np.float64(value) + np.float64(r))
                    below = total < 0
                else:
                    total = value + r
                    below = total < 0 or (total == 0 and signs[2] and signs[0] != signs[1])
                fused[place] = nearest(result, total, below, finite)
        for rn in ("", ".rn"):
            got = apply(f"mul{rn}{tail} D, A, B", "uint32", a, b, target="sm_100a")
            np.testing.assert_array_equal(got.view(np.uint8).reshape(-1, 4), multiplied, tail)
        got = apply(f"fma.rn{tail} D, A, B, C", "uint32", a, b, c, target="sm_100a")
        np.testing.assert_array_equal(got.view(np.uint8).reshape(-1, 4), fused, tail)


@pytest.mark.parametrize("result", ["e4m3", "e5m2"])
@pytest.mark.parametrize("first", ["e2m1", "e2m1p4", "e4m3", "e5m2", "e2m3", "e3m2"])
def test_sums_of_eight_bits(first: str, result: str) -> None:
    rng = np.random.default_rng(6)
    a, x = codes(first, rng, 60)
    b, y = codes(result, rng, 60)
    for name, turn in (("add", 1), ("sub", -1)):
        expected = np.zeros((60, 4), np.uint8)
        for place in itertools.product(range(60), range(4)):
            p, q = exact_of(first, int(x[place])), exact_of(result, int(y[place]))
            signs = [bool(np.signbit(GRID[k.removesuffix("p4")][v[place]])) for k, v in ((first, x), (result, y))]
            with np.errstate(invalid="ignore"):
                total = float(np.float64(p) + turn * np.float64(q)) if float in (type(p), type(q)) else p + turn * q
            below = total < 0 or (total == 0 and signs[0] and signs[1] == (turn > 0))
            expected[place] = nearest(result, total, below, True)
        got = apply(f"{name}.rn.satfinite.{result}x4.{first}x4 D, A, B", "uint32", a, b, target="sm_100a")
        np.testing.assert_array_equal(got.view(np.uint8).reshape(-1, 4), expected, name)


# ---- conversions of the small formats

WIDE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def paired(field: int, high: NDArray[np.generic], low: NDArray[np.generic]) -> NDArray[np.uint32]:
    return high.astype(np.uint32) << field | low.astype(np.uint32)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("to", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_small_to_sixteen(kind: str, to: str, relu: str) -> None:
    field = 4 if kind == "e2m1" else 8
    bits = KINDS[kind][1]
    every = np.arange(1 << bits, dtype=np.uint16)
    values = GRID[kind].astype(WIDE[to])
    if relu:
        values = np.where(values <= 0, WIDE[to](0), values)
    expected = np.where(np.isnan(GRID[kind]), np.uint16(0x7FFF), values.view(np.uint16))
    given = paired(field, every[::-1], every)
    if field == 8:
        got = apply(f"cvt.rn{relu}.{to}x2.{kind}x2 D, A", "uint32", given.astype(np.uint16), target="sm_100a")
    else:
        text = f"mov.b16 {{%b1, %b2}}, A ; cvt.rn{relu}.{to}x2.{kind}x2 D, %b1"
        got = apply(text, "uint32", given.astype(np.uint16), target="sm_100a")
    np.testing.assert_array_equal(got, paired(16, expected[::-1], expected))


@pytest.mark.parametrize("relu", ["", ".relu"])
# E4M3 and E5M2 from the other sources are in test_convert_narrow.py.
@pytest.mark.parametrize(
    ("kind", "source"),
    [(kind, "bf16x2") for kind in MOST]
    + [(kind, source) for kind in ("e2m3", "e3m2", "e2m1") for source in ("f32", "f16x2", "bf16x2")],
)
def test_to_small(kind: str, source: str, relu: str) -> None:
    grid = GRID[kind][np.isfinite(GRID[kind])]
    grid = np.sort(grid)
    middle = (grid[1:] + grid[:-1]) / 2
    values = np.concatenate(
        [grid, middle, middle * 1.001, middle * 0.999, [1e30, -1e30, np.inf, -np.inf, np.nan, -0.0, 1e-30]]
    )
    with np.errstate(over="ignore"):
        held = values.astype(np.float32 if source == "f32" else WIDE[source.removesuffix("x2")])
    x = held.astype(np.float64)
    if relu:
        x = np.where(x <= 0, 0.0, x)
    clipped = np.clip(x, grid[0], grid[-1]).astype(KINDS[kind][0]).view(np.uint8)
    nan = 0x7F if kind in MOST else (1 << (KINDS[kind][1] - 1)) - 1
    expected = np.where(np.isnan(x), nan, clipped)
    field = 4 if kind == "e2m1" else 8
    if source == "f32":
        given = [held, held[::-1].copy()]
        expected = paired(field, expected, expected[::-1])
    else:
        bits = held.view(np.uint16)
        given = [paired(16, bits, bits[::-1])]
        expected = paired(field, expected, expected[::-1])
    letters = ", ".join("AB"[: len(given)])
    if field == 8:
        got = apply(f"cvt.rn.satfinite{relu}.{kind}x2.{source} D, {letters}", "uint16", *given, target="sm_100a")
    else:
        text = f"cvt.rn.satfinite{relu}.{kind}x2.{source} %b1, {letters} ; mov.b32 D, {{%b1, %b1, %b1, %b1}}"
        got = apply(text, "uint32", *given, target="sm_100a") & 0xFF
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("finite", ["", ".satfinite"])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_powers_of_two(rounding: str, finite: str) -> None:
    (a,) = exact.operands(F32, 1, size=300)

    def one(bits: int) -> int:
        magnitude = bits & 0x7FFFFFFF
        if magnitude > 0x7F800000:
            return 0xFF
        field = magnitude >> 23
        if rounding == "rp" and magnitude & 0x7FFFFF and magnitude > 0x400000:
            field += 1
        return 0xFE if finite and field == 0xFF else field

    expected = column(one, a)
    got = apply(f"cvt.{rounding}{finite}.ue8m0x2.f32 D, A, B", "uint16", a, a[::-1].copy(), target="sm_100a")
    np.testing.assert_array_equal(got, paired(8, expected, expected[::-1]))
    brains = (a >> 16).astype(np.uint16)
    expected = column(lambda bits: one(bits << 16), brains)
    given = paired(16, brains, brains[::-1])
    got = apply(f"cvt.{rounding}{finite}.ue8m0x2.bf16x2 D, A", "uint16", given, target="sm_100a")
    np.testing.assert_array_equal(got, paired(8, expected, expected[::-1]))


def test_back_from_powers_of_two_and_ue5m3() -> None:
    every = np.arange(256, dtype=np.uint16)
    with np.errstate(under="ignore"):
        powers = GRID["ue8m0"].astype(np.float32).view(np.uint32) >> 16
    powers = np.where(every == 255, 0x7FFF, powers)
    got = apply(
        "cvt.rn.bf16x2.ue8m0x2 D, A", "uint32", paired(8, every[::-1], every).astype(np.uint16), target="sm_100a"
    )
    np.testing.assert_array_equal(got, paired(16, powers[::-1], powers))
    field, fraction = every >> 3, every & 7
    values = np.where(field == 0, fraction * 2.0**-17, (8 + fraction) * 2.0 ** (field.astype(np.float64) - 18))
    for to, dtype in WIDE.items():
        with np.errstate(over="ignore"):
            bits = np.where(every == 255, np.uint16(0x7FFF), values.astype(dtype).view(np.uint16))
        given = paired(8, every[::-1], every).astype(np.uint16)
        got = apply(f"cvt.rn.{to}x2.ue5m3x2 D, A", "uint32", given, target="sm_107a")
        np.testing.assert_array_equal(got, paired(16, bits[::-1], bits), to)


# ---- extremes of three, and what a target lacks


@pytest.mark.parametrize("absolute", ["", ".abs"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_three(name: str, ftz: str, nan: str, absolute: str) -> None:
    arrays = exact.operands(F32, 3, size=200)

    def key(bits: int) -> int:
        return -1 - (bits & (F32.sign_bit - 1)) if bits & F32.sign_bit else bits

    def function(*operands: int) -> int:
        values = [F32.flushed(v) if ftz else v for v in operands]
        values = [v & (F32.sign_bit - 1) if absolute else v for v in values]
        numbers = [v for v in values if not F32.is_nan(v)]
        if not numbers or (nan and len(numbers) < 3):
            return F32.nan
        return (min if name == "min" else max)(numbers, key=key)

    got = apply(f"{name}{ftz}{nan}{absolute}.f32 D, A, B, C", "uint32", *arrays, target="sm_100a")
    np.testing.assert_array_equal(got, column(function, *arrays))


@pytest.mark.parametrize(
    "instruction, target",
    [
        ("add.rn.f32x2 D, A, B", "sm_90a"),
        ("mul.rn.satfinite.e4m3x4.e4m3x4.e4m3x4 D, A, B", "sm_107a"),
        ("mul.rn.satfinite.e4m3x4.e4m3x4.e4m3x4 D, A, B", "sm_90a"),
        ("add.rn.f32x2.f16x2.f32x2 D, A, B", "sm_100a"),
        ("max.f32 D, A, B, B", "sm_90a"),
    ],
)
def test_target_lacks_it(instruction: str, target: str) -> None:
    size = np.uint64 if "f32x2 D" in instruction else np.uint32
    with pytest.raises(PtxError, match=r"is not supported on \.target"):
        apply(instruction, np.dtype(size).name, np.zeros(32, size), np.zeros(32, size), target=target)


def test_all_combinations_are_there() -> None:
    names = set(opcodes())
    assert {f"mul.{d}x4.{a}x4.{b}x4" for d, a, b in TRIPLES} <= names
