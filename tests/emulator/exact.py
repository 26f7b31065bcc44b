"""Numbers of any small format, rounded from exact fractions: the oracle of arithmetic that must be rounded once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Format:
    """An IEEE-like format: sign, `exponent` bits, `mantissa` bits; the greatest exponent is infinity and NaN."""

    exponent: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def nan(self) -> int:
        """The one pattern that arithmetic gives."""
        return self.sign_bit - 1

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(f"uint{1 + self.exponent + self.mantissa}")

    def is_nan(self, bits: int) -> bool:
        return bits & (self.sign_bit - 1) > self.infinity

    def value(self, bits: int) -> Fraction | float:
        """A fraction, or an infinity or NaN as float."""
        sign = -1 if bits & self.sign_bit else 1
        magnitude = bits & (self.sign_bit - 1)
        if magnitude >= self.infinity:
            return math.nan if magnitude > self.infinity else sign * math.inf
        field, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if field:
            fraction |= 1 << self.mantissa
        return sign * fraction * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa)

    def bits(
        self, value: Fraction | float, rounding: str = "rn", negative_zero: bool = False, ftz: bool = False
    ) -> int:
        """Rounded to nearest even (rn), toward zero (rz), down (rm) or up (rp); overflow as IEEE 754 says.

        ftz: what is subnormal after rounding with exponents without end becomes zero.
        """
        if isinstance(value, float):
            return self.nan if math.isnan(value) else self.infinity | (self.sign_bit if value < 0 else 0)
        if value == 0:
            return self.sign_bit if negative_zero else 0
        sign, value = (self.sign_bit, -value) if value < 0 else (0, value)
        power = value.numerator.bit_length() - value.denominator.bit_length() - 1
        if value >= Fraction(2) ** (power + 1):
            power += 1
        if power < 1 - self.bias:
            if ftz and self._rounded(value, power, rounding, sign) < 1 << (self.mantissa + (-self.bias - power) + 1):
                return sign
            power = 1 - self.bias
        magnitude = self._rounded(value, power, rounding, sign) + ((power + self.bias - 1) << self.mantissa)
        if magnitude >= self.infinity:
            turns_back = rounding == "rz" or (rounding == "rm" and not sign) or (rounding == "rp" and sign != 0)
            magnitude = self.infinity - 1 if turns_back else self.infinity
        return sign | magnitude

    def _rounded(self, value: Fraction, power: int, rounding: str, sign: int) -> int:
        """The magnitude in units of 2^(power - mantissa)."""
        scaled = value / Fraction(2) ** (power - self.mantissa)
        kept = scaled.numerator // scaled.denominator
        rest = scaled - kept
        up = {
            "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept % 2 == 1),
            "rz": False,
            "rm": rest > 0 and sign != 0,
            "rp": rest > 0 and sign == 0,
        }[rounding]
        return kept + up

    def flushed(self, bits: int) -> int:
        """Subnormal numbers as zeros of their sign."""
        return bits & self.sign_bit if bits & (self.sign_bit - 1) < 1 << self.mantissa else bits


F16 = Format(5, 10)
BF16 = Format(8, 7)
F32 = Format(8, 23)
F64 = Format(11, 52)


def is_negative(form: Format, bits: int) -> bool:
    return bits & form.sign_bit != 0


def fma(form: Format, a: int, b: int, c: int, rounding: str = "rn", ftz: bool = False) -> int:
    """a * b + c, rounded once."""
    x, y, z = form.value(a), form.value(b), form.value(c)
    negative = is_negative(form, a) != is_negative(form, b)
    if any(isinstance(v, float) and math.isnan(v) for v in (x, y, z)):
        return form.nan
    product: Fraction | float
    if isinstance(x, float) or isinstance(y, float):
        product = math.nan if x == 0 or y == 0 else -math.inf if negative else math.inf
    else:
        product = x * y
    if isinstance(product, float) or isinstance(z, float):
        return form.bits(float(product if isinstance(product, float) else 0) + float(z if isinstance(z, float) else 0))
    total = product + z
    zeros_are_negative = negative and is_negative(form, c)
    zeros_differ = negative != is_negative(form, c)
    return form.bits(total, rounding, zeros_are_negative or (zeros_differ and rounding == "rm"), ftz)


def add(form: Format, a: int, b: int, rounding: str = "rn", ftz: bool = False) -> int:
    one = form.bits(Fraction(1))
    return fma(form, a, one, b, rounding, ftz)


def mul(form: Format, a: int, b: int, rounding: str = "rn", ftz: bool = False) -> int:
    zero = form.sign_bit if is_negative(form, a) != is_negative(form, b) else 0
    return fma(form, a, b, zero, rounding, ftz)


def operands(form: Format, count: int, size: int = 600, seed: int = 0) -> list[NDArray[np.generic]]:
    """`count` arrays of bits: pairs of special values, random bits, and random numbers near one another."""
    rng = np.random.default_rng(seed)
    one, least = form.bits(Fraction(1)), 1 << form.mantissa
    special = [0, 1, least - 1, least, least + 1, one, one + 1, one - 1, form.infinity - 1, form.infinity, form.nan,
               form.infinity + 1, form.bits(Fraction(3, 2)), form.bits(Fraction(1, 3))]  # fmt: skip
    special += [value | form.sign_bit for value in special]
    pairs = np.array(np.meshgrid(special, special), dtype=form.dtype).reshape(2, -1)
    arrays = []
    for i in range(count):
        anything = rng.integers(0, 2 * form.sign_bit, size, dtype=form.dtype)
        near = rng.integers(one - 6 * least, one + 6 * least, size, dtype=form.dtype)
        near |= rng.integers(0, 2, size, dtype=form.dtype) * form.dtype.type(form.sign_bit)
        arrays.append(np.concatenate([pairs[i] if i < 2 else rng.permutation(pairs[0]), anything, near]))
    return arrays
