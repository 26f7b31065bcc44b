"""Formats of 8 bits, tf32, and fp16 and bf16 with saturation or without sign, against ml_dtypes and exact fractions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator import exact
from tests.emulator.exact import BF16, F16, F32, Format
from tests.emulator.programs import apply
from tests.emulator.test_float import operands

EIGHT = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}
TF32 = Format(8, 10)


def narrowed(name: str, a: np.ndarray, relu: bool) -> np.ndarray:
    """Nearest even, saturating; NaN is 0x7f in either format."""
    dtype, most = EIGHT[name]
    with np.errstate(invalid="ignore"):
        if relu:
            a = np.where(a <= 0, np.float32(0), a)
        bits = np.clip(a, -most, most).astype(dtype).view(np.uint8)
    return np.where(np.isnan(a), np.uint8(0x7F), bits).astype(np.uint16)


def around(name: str) -> np.ndarray:
    """The format's numbers, the middles between them, and their neighbours in fp32."""
    grid = np.arange(256, dtype=np.uint8).view(EIGHT[name][0]).astype(np.float32)
    grid = np.sort(grid[np.isfinite(grid)])
    middle = (grid[:-1] + grid[1:]) / 2
    up, down = np.float32(np.inf), np.float32(-np.inf)
    return np.concatenate([grid, middle, np.nextafter(middle, up), np.nextafter(middle, down)])


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", EIGHT)
def test_eight_bits(name: str, relu: str) -> None:
    a, b = operands(2)
    extra = around(name)
    a, b = np.concatenate([a, extra]), np.concatenate([b, extra[::-1]])
    got = apply(f"cvt.rn.satfinite{relu}.{name}x2.f32 D, A, B", "uint16", a, b)
    np.testing.assert_array_equal(got, narrowed(name, a, bool(relu)) << 8 | narrowed(name, b, bool(relu)))
    every = np.arange(2**16, dtype=np.uint16)
    wide = every.view(np.float16).astype(np.float32)
    got = apply(f"cvt.rn.satfinite{relu}.{name}x2.f16x2 D, A", "uint16", every.astype(np.uint32) << 16 | every[::-1])
    np.testing.assert_array_equal(got, narrowed(name, wide, bool(relu)) << 8 | narrowed(name, wide[::-1], bool(relu)))
    halves = np.arange(256, dtype=np.uint8).view(EIGHT[name][0]).astype(np.float16)
    if relu:
        with np.errstate(invalid="ignore"):
            halves = np.where(halves <= 0, np.float16(0), halves)
    bits = np.where(np.isnan(halves), np.uint16(0x7FFF), halves.view(np.uint16)).astype(np.uint32)
    got = apply(f"cvt.rn{relu}.f16x2.{name}x2 D, A", "uint32", every)
    np.testing.assert_array_equal(got, bits[every >> 8] << 16 | bits[every & 255])


@pytest.mark.parametrize("modifiers", [".relu", ".satfinite", ".relu.satfinite"])
@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name, form", [("f16", F16), ("bf16", BF16)])
def test_sixteen_bits(name: str, form: Format, rounding: str, modifiers: str) -> None:
    a, b = exact.operands(F32, 2, size=200)

    def one(bits: int) -> int:
        result = form.bits(F32.value(bits), rounding, exact.is_negative(F32, bits))
        if form.is_nan(result):
            return result
        if "satfinite" in modifiers and result & (form.sign_bit - 1) == form.infinity:
            result -= 1
        return 0 if "relu" in modifiers and result & form.sign_bit else result

    high, low = (np.array([one(int(bits)) for bits in array], np.uint16) for array in (a, b))
    np.testing.assert_array_equal(apply(f"cvt.{rounding}{modifiers}.{name}.f32 D, A", "uint16", a), high)
    got = apply(f"cvt.{rounding}{modifiers}.{name}x2.f32 D, A, B", "uint32", a, b)
    np.testing.assert_array_equal(got, high.astype(np.uint32) << 16 | low)


@pytest.mark.parametrize("modifiers", ["rna", "rna.satfinite", "rn", "rz", "rn.relu", "rz.relu"])
def test_tf32(modifiers: str) -> None:
    (a,) = exact.operands(F32, 1, size=500)

    def one(bits: int) -> int:
        away = modifiers.startswith("rna")
        if bits & (F32.sign_bit - 1) >= F32.infinity and away:  # what an H200 does
            return (bits & 0xFFFFE000) - (0x2000 if "satfinite" in modifiers else 0)
        if F32.is_nan(bits):
            return F32.nan >> 13 << 13
        sign, magnitude = bits & F32.sign_bit, bits & (F32.sign_bit - 1)
        if magnitude < F32.infinity:
            kept, rest = magnitude >> 13 << 13, magnitude & 0x1FFF
            up = {"rna": rest >= 0x1000, "rn": rest > 0x1000 or (rest == 0x1000 and magnitude >> 13 & 1)}
            magnitude = kept + (up.get(modifiers.split(".")[0], False) << 13)
        if "satfinite" in modifiers and magnitude == F32.infinity:
            magnitude -= 1 << 13
        return 0 if "relu" in modifiers and sign else sign | magnitude

    expected = np.array([one(int(bits)) for bits in a], np.uint32)
    np.testing.assert_array_equal(apply(f"cvt.{modifiers}.tf32.f32 D, A", "uint32", a), expected)
    assert TF32.infinity


@pytest.mark.parametrize("type_", ["s16", "u16", "s8", "u8", "s4", "u4", "s2", "u2"])
def test_pack(type_: str) -> None:
    rng = np.random.default_rng(12)
    a, b = (rng.integers(-70_000, 70_000, 500).astype(np.int32) >> rng.integers(0, 16, 500) for _ in range(2))
    bits = int(type_[1:])
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type_[0] == "s" else (0, 2**bits - 1)
    x, y = (np.clip(v, least, greatest).astype(np.int64) & (2**bits - 1) for v in (a, b))
    a, b = a.astype(np.int32), b.astype(np.int32)
    if bits == 16:
        got = apply(f"cvt.pack.sat.{type_}.s32 D, A, B", "uint32", a, b)
        np.testing.assert_array_equal(got, x << 16 | y)
    else:
        c = rng.integers(0, 2**32, 500, dtype=np.uint32)
        got = apply(f"cvt.pack.sat.{type_}.s32.b32 D, A, B, C", "uint32", a, b, c)
        np.testing.assert_array_equal(got, (c.astype(np.int64) << 2 * bits & 0xFFFFFFFF) | x << bits | y)
