"""Arithmetic of fp16 and bf16 against exact fractions, alone and in pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulator import exact
from tests.emulator.exact import BF16, F16, Format
from tests.emulator.programs import apply

FORMATS = {"f16": F16, "bf16": BF16}
Function = Callable[..., int]


def saturated(form: Format, bits: int) -> int:
    one = form.bits(exact.Fraction(1))
    return 0 if form.is_nan(bits) or bits & form.sign_bit else min(bits, one)


def not_negative(form: Format, bits: int) -> int:
    return 0 if bits & form.sign_bit and not form.is_nan(bits) else bits


def check(opcode: str, type_: str, function: Function, arrays: list[NDArray[np.generic]]) -> None:
    """The instruction on single numbers, and its x2 form on pairs of them."""
    arrays = [array[: array.size // 2 * 2] for array in arrays]
    letters = ", ".join("ABC"[: len(arrays)])
    expected = np.array([function(*map(int, row)) for row in zip(*arrays, strict=True)], np.uint16)
    np.testing.assert_array_equal(apply(f"{opcode}.{type_} D, {letters}", "uint16", *arrays), expected, opcode)
    pairs = [array.view(np.uint32) for array in arrays]
    got = apply(f"{opcode}.{type_}x2 D, {letters}", "uint32", *pairs)
    np.testing.assert_array_equal(got.view(np.uint16), expected, f"{opcode} x2")


def wrapped(form: Format, function: Function, tail: str) -> Function:
    """The function with what the modifiers do to operands and to the result."""

    def apply_to(*operands: int) -> int:
        if ".ftz" in tail:
            operands = tuple(map(form.flushed, operands))
        result = function(form, *operands, ftz=".ftz" in tail)
        return saturated(form, result) if ".sat" in tail else not_negative(form, result) if ".relu" in tail else result

    return apply_to


# PTX has no such modifiers for bf16.
@pytest.mark.parametrize(
    ("type_", "tail"), [("bf16", ""), *(("f16", tail) for tail in ("", ".ftz", ".sat", ".ftz.sat"))]
)
def test_sums_and_products(type_: str, tail: str) -> None:
    form = FORMATS[type_]
    a, b, c = exact.operands(form, 3)
    negated = form.dtype.type(form.sign_bit)
    for rn in ("", ".rn"):
        check(f"add{rn}{tail}", type_, wrapped(form, exact.add, tail), [a, b])
        check(f"mul{rn}{tail}", type_, wrapped(form, exact.mul, tail), [a, b])
        check(
            f"sub{rn}{tail}",
            type_,
            wrapped(form, lambda f, x, y, ftz: exact.add(f, x, y ^ int(negated), ftz=ftz), tail),
            [a, b],
        )
    check(f"fma.rn{tail}", type_, wrapped(form, exact.fma, tail), [a, b, c])


@pytest.mark.parametrize("type_, tail", [("f16", ".relu"), ("bf16", ".relu"), ("f16", ".ftz.relu")])
def test_fma_relu(type_: str, tail: str) -> None:
    form = FORMATS[type_]
    check(f"fma.rn{tail}", type_, wrapped(form, exact.fma, tail), exact.operands(form, 3, seed=1))


@pytest.mark.parametrize(
    "type_, tail", [("f16", ".sat"), *((name, tail) for name in FORMATS for tail in ("", ".relu"))]
)
def test_fma_out_of_bounds(type_: str, tail: str) -> None:
    form = FORMATS[type_]
    a, b, c = exact.operands(form, 3, seed=2)
    b[::7], a[3::11] = 0x7FF7, 0xFFF7

    def function(x: int, y: int, z: int) -> int:
        return 0 if {x & 0x7FFF, y & 0x7FFF} & {0x7FF7} else wrapped(form, exact.fma, tail)(x, y, z)

    check(f"fma.rn.oob{tail}", type_, function, [a, b, c])


@pytest.mark.parametrize("tail", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"])
@pytest.mark.parametrize("type_, ftz", [("f16", ""), ("f16", ".ftz"), ("bf16", "")])
def test_extremes(type_: str, ftz: str, tail: str) -> None:
    form = FORMATS[type_]
    a, b = exact.operands(form, 2, seed=3)

    def key(bits: int) -> int:  # order of the bits as numbers, -0 below +0
        return -1 - (bits & (form.sign_bit - 1)) if bits & form.sign_bit else bits

    def function(name: str, x: int, y: int) -> int:
        if ftz:
            x, y = form.flushed(x), form.flushed(y)
        sign = 0
        if "xorsign" in tail:
            sign, x, y = (x ^ y) & form.sign_bit, x & (form.sign_bit - 1), y & (form.sign_bit - 1)
        if form.is_nan(x) or form.is_nan(y):
            if ".NaN" in tail or (form.is_nan(x) and form.is_nan(y)):
                return form.nan
            return (y if form.is_nan(x) else x) | sign
        return (min if name == "min" else max)(x, y, key=key) | sign

    for name in ("min", "max"):
        check(f"{name}{ftz}{tail}", type_, lambda x, y, name=name: function(name, x, y), [a, b])


@pytest.mark.parametrize("type_, ftz", [("f16", ""), ("f16", ".ftz"), ("bf16", "")])
def test_sign(type_: str, ftz: str) -> None:
    form = FORMATS[type_]
    (a,) = exact.operands(form, 1, seed=4)
    of = form.flushed if ftz else int
    check(f"abs{ftz}", type_, lambda x: form.nan if form.is_nan(x) else of(x) & (form.sign_bit - 1), [a])
    check(f"neg{ftz}", type_, lambda x: form.nan if form.is_nan(x) else of(x) ^ form.sign_bit, [a])
