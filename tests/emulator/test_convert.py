"""Conversions against NumPy and ml_dtypes, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.programs import apply
from tests.emulator.test_float import NAN, flushed, operands
from tests.emulator.test_integer import operands as integers

INTEGERS = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "su"]


def dtype_of(ptx: str) -> str:
    return ("int" if ptx[0] == "s" else "uint") + ptx[1:]


@pytest.mark.parametrize("source", INTEGERS)
def test_integers(source: str) -> None:
    (a,) = integers(dtype_of(source), 1)
    stored = a.view(f"uint{source[1:]}")
    held = stored.astype(f"uint{max(16, int(source[1:]))}")  # in a register that is wide enough
    for target in INTEGERS:
        if target == source:
            continue
        out = f"{dtype_of(target)[: -len(target[1:])]}{max(16, int(target[1:]))}"
        got = apply(f"cvt.{target}.{source} D, A", out, held)
        np.testing.assert_array_equal(got, a.astype(dtype_of(target)).astype(out), target)


def test_from_a_wider_register() -> None:
    (a,) = integers("uint32", 1)
    np.testing.assert_array_equal(apply("cvt.s32.s8 D, A", "int32", a), a.astype(np.int8).astype(np.int32))
    np.testing.assert_array_equal(apply("cvt.u64.u16 D, A", "uint64", a), a.astype(np.uint16).astype(np.uint64))


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("target", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_float_to_integer(target: str, ftz: str) -> None:
    (a,) = operands(1)
    x = flushed(a) if ftz else a
    info = np.iinfo(dtype_of(target))
    for rounding, function in {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.items():
        expected = []
        for value in x:
            if np.isnan(value):
                expected.append(0 if info.bits < 64 else (info.min if target[0] == "s" else 1 << 63))
            elif np.isinf(value):
                expected.append(info.max if value > 0 else info.min)
            else:
                expected.append(min(max(int(function(np.float64(value))), info.min), info.max))
        got = apply(f"cvt.{rounding}{ftz}.{target}.f32 D, A", info.dtype.name, a)
        np.testing.assert_array_equal(got, np.array(expected, info.dtype), rounding)
        if target == "s32":
            with np.errstate(invalid="ignore"):
                whole = function(x)
            bits = np.where(np.isnan(whole), NAN, whole.view(np.uint32))
            np.testing.assert_array_equal(apply(f"cvt.{rounding}{ftz}.f32.f32 D, A", "uint32", a), bits)


@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_integer_to_float(source: str) -> None:
    (a,) = integers(dtype_of(source), 1)
    np.testing.assert_array_equal(apply(f"cvt.rn.f32.{source} D, A", "float32", a), a.astype(np.float32))


def narrowed(a: np.ndarray, dtype: type) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isnan(a), np.uint16(0x7FFF), a.astype(dtype).view(np.uint16))


def toward_zero(a: np.ndarray, dtype: type) -> np.ndarray:
    """The nearest value, or its neighbour if that lies further from zero."""
    bits = narrowed(a, dtype)
    with np.errstate(invalid="ignore"):
        away = np.abs(bits.view(dtype).astype(np.float32)) > np.abs(a)
    return np.where(np.isnan(a) | ~away, bits, bits - np.uint16(1))


@pytest.mark.parametrize("ptx, dtype", [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_sixteen_bits(ptx: str, dtype: type) -> None:
    a, b = operands(2)
    for rounding, function in {"rn": narrowed, "rz": toward_zero}.items():
        np.testing.assert_array_equal(apply(f"cvt.{rounding}.{ptx}.f32 D, A", "uint16", a), function(a, dtype))
        pair = function(a, dtype).astype(np.uint32) << 16 | function(b, dtype)
        np.testing.assert_array_equal(apply(f"cvt.{rounding}.{ptx}x2.f32 D, A, B", "uint32", a, b), pair)
    every = np.arange(2**16, dtype=np.uint16)
    expected = every.view(dtype).astype(np.float32).view(np.uint32)
    if ptx == "f16":
        expected = np.where(np.isnan(every.view(dtype)), NAN, expected)
    else:
        expected = every.astype(np.uint32) << 16
    np.testing.assert_array_equal(apply(f"cvt.f32.{ptx} D, A", "uint32", every), expected)


def e4m3(a: np.ndarray) -> np.ndarray:
    """Nearest even, saturating at 448; NaN is 0x7f."""
    with np.errstate(invalid="ignore"):
        clipped = np.clip(a, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return np.where(np.isnan(a), np.uint8(0x7F), clipped).astype(np.uint16)


def test_e4m3() -> None:
    a, b = operands(2)
    grid = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    grid = np.sort(grid[np.isfinite(grid)])
    ties = (grid[:-1] + grid[1:]) / 2
    around = np.concatenate(
        [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf)), grid]
    )
    a, b = np.concatenate([a, around]), np.concatenate([b, around[::-1]])
    got = apply("cvt.rn.satfinite.e4m3x2.f32 D, A, B", "uint16", a, b)
    np.testing.assert_array_equal(got, e4m3(a) << 8 | e4m3(b))
    every = np.arange(2**16, dtype=np.uint16)
    halves = every.astype(np.uint32) << 16 | every[::-1]
    wide = every.view(np.float16).astype(np.float32)
    got = apply("cvt.rn.satfinite.e4m3x2.f16x2 D, A", "uint16", halves)
    np.testing.assert_array_equal(got, e4m3(wide) << 8 | e4m3(wide[::-1]))
    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float16)
    bits = np.where(np.isnan(values), np.uint16(0x7FFF), values.view(np.uint16)).astype(np.uint32)
    got = apply("cvt.rn.f16x2.e4m3x2 D, A", "uint32", every)
    np.testing.assert_array_equal(got, bits[every >> 8] << 16 | bits[every & 255])
