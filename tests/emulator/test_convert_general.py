"""Every conversion between integers and fp16, bf16, fp32, fp64, with every modifier, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from msa_ops.emulator import opcodes
from tests.emulator import exact
from tests.emulator.exact import BF16, F16, F32, F64
from tests.emulator.programs import apply

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
INTEGERS = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "su"]
TYPES = [*INTEGERS, *FORMATS]


def whole(value: Fraction, rounding: str) -> int:
    floor = math.floor(value)
    rest = value - floor
    up = {
        "rni": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1),
        "rzi": rest > 0 and value < 0,
        "rmi": False,
        "rpi": rest > 0,
    }[rounding]
    return floor + up


def limits(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


def converted(parts: list[str], to: str, source: str, bits: int) -> int:
    """The result's bits (of an integer: its value)."""
    modifiers = set(parts)
    rounding = next((p for p in parts if p[0] == "r" and p != "relu"), "rn")
    if source not in FORMATS:
        low, high = limits(source)
        value: Fraction | float = Fraction(bits - (high - low + 1) if low < 0 and bits > high else bits)
        negative = value < 0
    else:
        form = FORMATS[source]
        if "ftz" in modifiers and source == "f32" and to != "f16":  # ptxas flushes nothing there
            bits = form.flushed(bits)
        value, negative = form.value(bits), exact.is_negative(form, bits)
    if to not in FORMATS:
        low, high = limits(to)
        if isinstance(value, float):
            if math.isnan(value):
                size = int(to[1:])
                indefinite = low if low < 0 else (high + 1) // 2
                return indefinite if size == 64 or source == "f64" else 0
            return high if value > 0 else low
        return min(max(whole(value, rounding) if source in FORMATS else int(value), low), high)
    form = FORMATS[to]
    if rounding.endswith("i") and not isinstance(value, float):
        value = Fraction(whole(value, rounding))
    rounding = rounding.removesuffix("i")
    if "sat" in modifiers:
        if isinstance(value, float):
            value = Fraction(value == math.inf)
        value, negative = min(max(value, Fraction(0)), Fraction(1)), False
    if isinstance(value, float) and math.isnan(value):
        return form.nan
    if isinstance(value, float):
        return form.infinity | (form.sign_bit if negative else 0)
    result = form.bits(value, rounding, negative)
    return form.flushed(result) if "ftz" in modifiers and to == "f32" else result


def values(source: str) -> np.ndarray:
    rng = np.random.default_rng(11)
    if source not in FORMATS:
        bits = int(source[1:])
        kind = f"uint{max(16, bits)}"
        special = np.array([0, 1, 2, 3, 127, 128, 129, 255, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1], kind)
        anything = rng.integers(0, 2**64, 80, dtype=np.uint64) >> rng.integers(64 - bits, 64, 80, dtype=np.uint64)
        return np.concatenate([special, anything.astype(kind)])
    form = FORMATS[source]
    (special,) = exact.operands(form, 1, size=40)
    special = np.unique(special)
    numbers = [0.5, 1.5, 2.5, 127.5, 128.5, 255.5, 32767.5, 65535.5, 65519.0, 65520.0, 2.0**31, 2.0**32, 2.0**63,
               2.0**64, 2.0**31 - 1, 1e-5, 6e-8, 3e-8, 0.3, 0.999999]  # fmt: skip
    bits = [form.bits(Fraction(sign * number)) for number in numbers for sign in (1, -1)]
    return np.concatenate([special, np.array(bits, form.dtype)])


def of_pair(to: str, source: str) -> list[str]:
    return [name for name in opcodes() if name.startswith("cvt") and name.split(".")[-2:] == [to, source]]


def test_there_are_conversions_between_all_types() -> None:
    bytes_ = {"s8", "u8"}
    missing = {(to, source) for to in TYPES for source in TYPES if not of_pair(to, source)}
    allowed = {(t, t) for t in INTEGERS} | {(a, b) for a in bytes_ for b in ("bf16",)} | {("bf16", b) for b in bytes_}
    assert missing <= allowed, missing - allowed


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("to", TYPES)
def test_conversions(to: str, source: str) -> None:
    a = values(source)
    for name in of_pair(to, source):
        parts = name.split(".")[1:-2]
        if "pack" in parts or (not parts and to not in FORMATS):  # in other tests
            continue
        expected = [converted(parts, to, source, int(bits)) for bits in a]
        if to in FORMATS:
            out = FORMATS[to].dtype
        else:
            out = np.dtype(f"{'int' if to[0] == 's' else 'uint'}{max(16, int(to[1:]))}")
        if "relu" in parts or "satfinite" in parts:
            continue
        if name in ("cvt.f32.bf16", "cvt.f32.f32") or "f64" in (to, source):
            keep = ~np.array(
                [source in FORMATS and FORMATS[source].is_nan(int(bits)) for bits in a]
            )  # payloads may stay
        else:
            keep = np.ones(a.size, bool)
        got = apply(f"{name} D, A", out.name, a)
        wanted = np.array([v % 2 ** (8 * out.itemsize) for v in expected], f"uint{8 * out.itemsize}").view(out)
        np.testing.assert_array_equal(got[keep], wanted[keep], name)
