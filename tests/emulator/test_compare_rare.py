"""Comparisons of fp64 and 16-bit floats, set, testp, copysign and extremes with the product's sign, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator import exact
from tests.emulator.exact import BF16, F16, F32, F64, Format
from tests.emulator.programs import apply

FLOATS: dict[str, tuple[Format, type]] = {
    "f16": (F16, np.float16),
    "bf16": (BF16, ml_dtypes.bfloat16),
    "f32": (F32, np.float32),
    "f64": (F64, np.float64),
}
JOINS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparisons_of(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore"):
        ordered = {"eq": x == y, "ne": (x < y) | (x > y), "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    unordered = np.isnan(x) | np.isnan(y)
    found = ordered | {f"{name}u": value | unordered for name, value in ordered.items()}
    return found | {"num": ~unordered, "nan": unordered}


def numbers(type_: str, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two arrays of bits, an even number of elements, and their values in fp64."""
    form, kind = FLOATS[type_]
    arrays = [array[: array.size // 2 * 2] for array in exact.operands(form, 2, size=150, seed=seed)]
    arrays[1][::3] = arrays[0][::3]
    return arrays, [array.view(kind).astype(np.float64) for array in arrays]


@pytest.mark.parametrize("type_", ["f16", "bf16", "f64"])
def test_setp(type_: str) -> None:
    (a, b), (x, y) = numbers(type_)
    third = np.resize(np.array([0, 1, 1], np.uint32), a.size)
    for name, value in comparisons_of(x, y).items():
        got = apply(f"setp.{name}.{type_} %p1, A, B ; selp.b32 D, 1, 0, %p1", "uint32", a, b)
        np.testing.assert_array_equal(got, value, name)
        for join, function in JOINS.items():
            text = f"setp.ne.b32 %p3, C, 0 ; setp.{name}.{join}.{type_} %p1, A, B, %p3 ; selp.b32 D, 1, 0, %p1"
            np.testing.assert_array_equal(apply(text, "uint32", a, b, third), function(value, third != 0), name)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_setp_of_pairs(type_: str) -> None:
    (a, b), (x, y) = numbers(type_)
    for name, value in comparisons_of(x, y).items():
        text = (
            f"setp.{name}.{type_}x2 %p1|%p2, A, B ; selp.b32 D, 1, 0, %p1 ; selp.b32 %r9, 2, 0, %p2 ; or.b32 D, D, %r9"
        )
        got = apply(text, "uint32", a.view(np.uint32), b.view(np.uint32))
        np.testing.assert_array_equal(got, value[::2] + 2 * value[1::2], name)


def test_flushing() -> None:
    a, b = np.array([[0x0001, 0x8001, 0x03FF, 0x0400, 0x0001], [0, 0, 0x8001, 0, 0x0002]], np.uint16)
    got = apply("setp.eq.ftz.f16 %p1, A, B ; selp.b32 D, 1, 0, %p1", "uint32", a, b)
    np.testing.assert_array_equal(got, [1, 1, 1, 0, 1])
    got = apply("setp.eq.f16 %p1, A, B ; selp.b32 D, 1, 0, %p1", "uint32", a, b)
    np.testing.assert_array_equal(got, [0, 0, 0, 0, 0])


ONES = {"u32": ("uint32", 2**32 - 1), "s32": ("uint32", 2**32 - 1), "f32": ("uint32", 0x3F800000)}
SIXTEEN = {"f16": ("uint16", 0x3C00), "bf16": ("uint16", 0x3F80)}
ONES_OF = {
    "f16": {"u16": ("uint16", 0xFFFF), "s16": ("uint16", 0xFFFF), **SIXTEEN},
    "bf16": {"u16": ("uint16", 0xFFFF), "s16": ("uint16", 0xFFFF), "bf16": SIXTEEN["bf16"]},
    "f32": {"f32": ONES["f32"], **SIXTEEN},
    "f64": {"f32": ONES["f32"], **SIXTEEN},
}


@pytest.mark.parametrize("type_", FLOATS)
def test_set(type_: str) -> None:
    (a, b), (x, y) = numbers(type_, seed=1)
    third = np.resize(np.array([0, 1, 1], np.uint32), a.size)
    for name, value in comparisons_of(x, y).items():
        for to, (out, one) in ({key: ONES[key] for key in ("u32", "s32")} | ONES_OF[type_]).items():
            got = apply(f"set.{name}.{to}.{type_} D, A, B", out, a, b)
            np.testing.assert_array_equal(got, value * np.dtype(out).type(one), f"{name} {to}")
        text = f"setp.ne.b32 %p3, C, 0 ; set.{name}.xor.u32.{type_} D, A, B, !%p3"
        np.testing.assert_array_equal(apply(text, "uint32", a, b, third) != 0, value ^ (third == 0), name)


@pytest.mark.parametrize("type_, one", [("f16", 0x3C00), ("bf16", 0x3F80)])
def test_set_of_pairs(type_: str, one: int) -> None:
    (a, b), (x, y) = numbers(type_, seed=2)
    for name, value in comparisons_of(x, y).items():
        got = apply(f"set.{name}.{type_}x2.{type_}x2 D, A, B", "uint32", a.view(np.uint32), b.view(np.uint32))
        np.testing.assert_array_equal(got.view(np.uint16), value * np.uint16(one), name)
        got = apply(f"set.{name}.u32.{type_}x2 D, A, B", "uint32", a.view(np.uint32), b.view(np.uint32))
        np.testing.assert_array_equal(got.view(np.uint16), value * np.uint16(0xFFFF), name)


@pytest.mark.parametrize("type_", ["s16", "u16", "s32", "u32", "s64", "u64", "b32"])
def test_set_of_integers(type_: str) -> None:
    rng = np.random.default_rng(3)
    dtype = np.dtype(("int" if type_[0] == "s" else "uint") + type_[1:])
    a, b = (rng.integers(-3, 4, 200).astype(dtype) for _ in range(2))
    names = {"eq": a == b, "ne": a != b}
    if type_[0] != "b":
        names |= {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    if type_[0] == "u":
        names |= {"lo": a < b, "ls": a <= b, "hi": a > b, "hs": a >= b}
    for name, value in names.items():
        for to, (out, one) in (ONES | SIXTEEN).items():
            got = apply(f"set.{name}.{to}.{type_} D, A, B", out, a, b)
            np.testing.assert_array_equal(got, value * np.dtype(out).type(one), name)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_kinds(type_: str) -> None:
    (a, _), (x, _) = numbers(type_)
    form, kind = FLOATS[type_]
    tiny = np.abs(x) < float(np.finfo(kind).tiny)
    for name, value in {
        "finite": np.isfinite(x),
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        "normal": np.isfinite(x) & (~tiny | (x == 0)),
        "subnormal": tiny & (a & a.dtype.type(form.sign_bit - 1) != 0),
    }.items():
        got = apply(f"testp.{name}.{type_} %p1, A ; selp.b32 D, 1, 0, %p1", "uint32", a)
        np.testing.assert_array_equal(got, value, name)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_copysign(type_: str) -> None:
    (a, b), _ = numbers(type_)
    sign = a.dtype.type(FLOATS[type_][0].sign_bit)
    np.testing.assert_array_equal(apply(f"copysign.{type_} D, A, B", a.dtype.name, a, b), (a & sign) | (b & ~sign))


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_with_the_product_s_sign(name: str, nan: str, ftz: str) -> None:
    a, b = exact.operands(F32, 2, seed=4)

    def function(x: int, y: int) -> int:
        sign, x, y = (x ^ y) & F32.sign_bit, x & (F32.sign_bit - 1), y & (F32.sign_bit - 1)
        if ftz:
            x, y = F32.flushed(x), F32.flushed(y)
        if F32.is_nan(x) or F32.is_nan(y):
            if nan or (F32.is_nan(x) and F32.is_nan(y)):
                return F32.nan
            return (y if F32.is_nan(x) else x) | sign
        return (min if name == "min" else max)(x, y) | sign

    expected = np.array([function(int(x), int(y)) for x, y in zip(a, b, strict=True)], np.uint32)
    np.testing.assert_array_equal(apply(f"{name}{ftz}{nan}.xorsign.abs.f32 D, A, B", "uint32", a, b), expected)
