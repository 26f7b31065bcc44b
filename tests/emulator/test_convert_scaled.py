"""Pairs of 4, 6 and 8 bits to bf16, by powers of two in UE8M0, and S2F6, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from msa_ops.emulator import UnsupportedPtx
from tests.emulator.exact import BF16, Format
from tests.emulator.programs import apply

FORMATS = {
    "e4m3": Format(4, 3),
    "e5m2": Format(5, 2),
    "e2m3": Format(2, 3),
    "e3m2": Format(3, 2),
    "e2m1": Format(2, 1),
    "s2f6": None,
}
NAN = 0x7FFF
SCALES = np.array([0, 1, 2, 100, 120, 126, 127, 128, 133, 200, 240, 252, 253, 254, 255], np.uint16)


def value(name: str, code: int) -> Fraction | float:
    """A code's value; infinities and NaN as floats."""
    if name == "s2f6":
        return Fraction(code - 256 if code >= 128 else code, 64)
    form = FORMATS[name]
    assert form is not None
    exponent, mantissa = code >> form.mantissa & (1 << form.exponent) - 1, code & (1 << form.mantissa) - 1
    sign = -1 if code & form.sign_bit else 1
    top = (1 << form.exponent) - 1
    if name == "e4m3" and exponent == top and mantissa == 7:
        return float("nan")
    if name == "e5m2" and exponent == top:
        return float("nan") if mantissa else sign * float("inf")
    bias = (1 << (form.exponent - 1)) - 1
    significand = Fraction(mantissa, 1 << form.mantissa) + (exponent > 0)
    return sign * significand * Fraction(2) ** (max(exponent, 1) - bias)


def expected(name: str, code: int, scale: int, modifiers: str) -> int:
    """The bits of bf16 of a code times 2^(scale - 127)."""
    number = value(name, code)
    if scale == 0xFF or number != number:
        return NAN
    negative = (number < 0) or (number == 0 and name != "s2f6" and bool(code & FORMATS[name].sign_bit))  # type: ignore
    if "relu" in modifiers and negative:
        return 0
    if isinstance(number, float):
        bits = BF16.infinity | (BF16.sign_bit if negative else 0)
    else:
        bits = BF16.bits(number * Fraction(2) ** (scale - 127), "rn", negative)
    return bits - 1 if "satfinite" in modifiers and bits & 0x7FFF == BF16.infinity else bits


@pytest.mark.parametrize("modifiers", ["", ".relu", ".satfinite", ".satfinite.relu", ".relu.satfinite"])
@pytest.mark.parametrize("name", FORMATS)
def test_scaled(name: str, modifiers: str) -> None:
    form = FORMATS[name]
    bits = 8 if form is None or form.exponent + form.mantissa == 5 else 1 + form.exponent + form.mantissa
    codes = np.arange(1 << bits, dtype=np.uint16)
    code, scale = (grid.reshape(-1) for grid in np.meshgrid(codes, SCALES))
    other_code, other_scale = code[::-1], np.roll(scale, 7)
    pair = (code << bits | other_code).astype(np.uint16)
    start, source = ("mov.b16 {%b1, %b2}, A ; ", "%b1") if bits == 4 else ("", "A")
    for scaled in (False, True):
        opcode = f"{start}cvt.rn{modifiers}{'.scaled::n2::ue8m0' if scaled else ''}.bf16x2.{name}x2 D, {source}"
        scales = [scale << 8 | other_scale] if scaled else []
        got = apply(opcode + (", B" if scaled else ""), "uint32", pair, *scales, target="sm_100a")
        want = [
            expected(name, int(x), int(p) if scaled else 127, modifiers) << 16
            | expected(name, int(y), int(q) if scaled else 127, modifiers)
            for x, p, y, q in zip(code, scale, other_code, other_scale, strict=True)
        ]
        np.testing.assert_array_equal(got, np.array(want, np.uint32))


def test_integers() -> None:
    """What compilers use it for: 2^6 makes an INT8 of S2F6, and 2^2 one of INT4 that stands in the high half."""
    codes = np.arange(256, dtype=np.uint16)
    got = apply("cvt.rn.satfinite.scaled::n2::ue8m0.bf16x2.s2f6x2 D, A, B", "uint32", codes << 8 | codes,
                np.full(256, 0x8581, np.uint16), target="sm_100a")  # fmt: skip
    high = (got & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(high, codes.astype(np.uint8).view(np.int8).astype(np.float32))
    nibbles = codes & 0xF0
    got = apply("cvt.rn.satfinite.scaled::n2::ue8m0.bf16x2.s2f6x2 D, A, B", "uint32", nibbles,
                np.full(256, 0x8581, np.uint16), target="sm_100a")  # fmt: skip
    low = (got << 16).view(np.float32)
    np.testing.assert_array_equal(low, (nibbles.astype(np.uint8).view(np.int8) >> 4).astype(np.float32))


@pytest.mark.parametrize("opcode", ["cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.bf16x2 D, A, B"])
def test_unsupported(opcode: str) -> None:
    """Which way a scale goes there is not in the texts that we have."""
    with pytest.raises(UnsupportedPtx):
        apply(opcode, "uint16", np.zeros(32, np.uint32), np.zeros(32, np.uint16), target="sm_100a")
