"""fp32 and fp64 under every rounding, against exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulator import exact
from tests.emulator.exact import F32, F64, Format
from tests.emulator.programs import apply

FORMATS = {"f32": F32, "f64": F64}
ROUNDINGS = ("rn", "rz", "rm", "rp")


def divide(form: Format, a: int, b: int, rounding: str) -> int:
    x, y = form.value(a), form.value(b)
    negative = (a ^ b) & form.sign_bit != 0
    if isinstance(x, float) or isinstance(y, float) or y == 0:
        if form.is_nan(a) or form.is_nan(b) or (x == 0 and y == 0) or (isinstance(x, float) and isinstance(y, float)):
            return form.nan
        zero = isinstance(y, float)
        return (0 if zero else form.infinity) | (form.sign_bit if negative else 0)
    return form.bits(x / y, rounding, negative)


def root(form: Format, a: int, rounding: str) -> int:
    x = form.value(a)
    if form.is_nan(a) or (a & form.sign_bit and a != form.sign_bit):
        return form.nan
    if isinstance(x, float) or x == 0:
        return a
    # An integer root with enough digits, and a sticky one below them.
    shift = 2 * (form.mantissa + 4) + 2 * form.bias + 2 * form.mantissa
    whole = x * Fraction(2) ** shift
    found = math.isqrt(whole.numerator // whole.denominator)
    value = Fraction(found) / Fraction(2) ** (shift // 2)
    if value * value != x:
        value += Fraction(1, 2 ** (shift // 2 + 1))
    return form.bits(value, rounding)


def check(opcode: str, form: Format, function: Callable[..., int], arrays: list[NDArray[np.generic]]) -> None:
    letters = ", ".join("ABC"[: len(arrays)])
    expected = np.array([function(*map(int, row)) for row in zip(*arrays, strict=True)], form.dtype)
    got = apply(f"{opcode} D, {letters}", form.dtype.name, *arrays)
    if form is F64:  # payloads of NaN: tests/emulator/silicon
        got = np.where(np.isnan(got.view(np.float64)), np.uint64(form.nan), got)
    np.testing.assert_array_equal(got, expected, opcode)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("type_", FORMATS)
def test_arithmetic(type_: str, rounding: str) -> None:
    form = FORMATS[type_]
    a, b, c = exact.operands(form, 3, size=250)
    sign = form.sign_bit
    tail = f".{rounding}.{type_}"
    check(f"add{tail}", form, lambda x, y: exact.add(form, x, y, rounding), [a, b])
    check(f"sub{tail}", form, lambda x, y: exact.add(form, x, y ^ sign, rounding), [a, b])
    check(f"mul{tail}", form, lambda x, y: exact.mul(form, x, y, rounding), [a, b])
    check(f"fma{tail}", form, lambda x, y, z: exact.fma(form, x, y, z, rounding), [a, b, c])
    check(f"mad{tail}", form, lambda x, y, z: exact.fma(form, x, y, z, rounding), [a, b, c])
    one = form.bits(Fraction(1))
    check(f"div{tail}", form, lambda x, y: divide(form, x, y, rounding), [a, b])
    check(f"rcp{tail}", form, lambda x: divide(form, one, x, rounding), [a])
    check(f"sqrt{tail}", form, lambda x: root(form, x, rounding), [a])


@pytest.mark.parametrize("tail", [".ftz", ".sat", ".ftz.sat"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_modifiers(rounding: str, tail: str) -> None:
    a, b, c = exact.operands(F32, 3, size=150, seed=1)
    one = F32.bits(Fraction(1))

    def wrapped(function: Callable[..., int]) -> Callable[..., int]:
        def of(*operands: int) -> int:
            if ".ftz" in tail:
                operands = tuple(map(F32.flushed, operands))
            result = function(F32, *operands, rounding, ".ftz" in tail)
            if ".sat" in tail:
                result = 0 if F32.is_nan(result) or result & F32.sign_bit else min(result, one)
            return result

        return of

    check(f"add.{rounding}{tail}.f32", F32, wrapped(exact.add), [a, b])
    check(f"mul.{rounding}{tail}.f32", F32, wrapped(exact.mul), [a, b])
    check(f"fma.{rounding}{tail}.f32", F32, wrapped(exact.fma), [a, b, c])


def test_signs_and_extremes_of_fp64() -> None:
    a, b = exact.operands(F64, 2, seed=2)
    check("abs.f64", F64, lambda x: F64.nan if F64.is_nan(x) else x & (F64.sign_bit - 1), [a])
    check("neg.f64", F64, lambda x: F64.nan if F64.is_nan(x) else x ^ F64.sign_bit, [a])

    def key(bits: int) -> int:
        return -1 - (bits & (F64.sign_bit - 1)) if bits & F64.sign_bit else bits

    def extreme(choose: Callable[..., int], x: int, y: int) -> int:
        if F64.is_nan(x) or F64.is_nan(y):
            return F64.nan if F64.is_nan(x) and F64.is_nan(y) else y if F64.is_nan(x) else x
        return choose(x, y, key=key)

    check("min.f64", F64, lambda x, y: extreme(min, x, y), [a, b])
    check("max.f64", F64, lambda x, y: extreme(max, x, y), [a, b])
