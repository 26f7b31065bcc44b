"""Rare integer instructions against plain Python numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.programs import apply
from tests.emulator.test_integer import TYPES, exact, operands

M32 = 2**32 - 1
WIDE = {"s32": "int32", "u32": "uint32", "s64": "int64", "u64": "uint64"}


def clamp(value: int, low: int = -(2**31), high: int = 2**31 - 1) -> int:
    return min(max(value, low), high)


@pytest.mark.parametrize("ptx, dtype", WIDE.items())
def test_carries(ptx: str, dtype: str) -> None:
    """A number of twice the width, its low half first: sums, differences, and a product with a summand."""
    size = np.iinfo(dtype).bits
    unsigned = f"uint{size}"
    a, b, c, d = (array.view(unsigned) for array in operands(dtype, 4))
    register = {32: "r", 64: "rd"}[size]
    low = f"%{register}29"
    ones = 2**size - 1
    for name in ("add", "sub"):
        turn = ones if name == "sub" else 0  # a - b is a + ~b + 1, and its carry says that nothing was borrowed

        def total(x: int, y: int, z: int, w: int, turn: int = turn) -> int:
            return (z << size) + x + ((w ^ turn) << size) + (y ^ turn) + (turn & 1)

        text = f"{name}.cc.{ptx} {low}, A, B ; {name}c.{ptx} D, C, E"
        got = apply(text, unsigned, a, b, c, d)
        np.testing.assert_array_equal(got, exact(lambda *v, total=total: total(*v) >> size, unsigned, a, b, c, d), name)
        text = f"{name}.cc.{ptx} {low}, A, B ; {name}c.cc.{ptx} {low}, C, E ; addc.{ptx} D, 0, 0"
        got = apply(text, unsigned, a, b, c, d)
        expected = exact(lambda *v, total=total: total(*v) >> 2 * size, unsigned, a, b, c, d)
        np.testing.assert_array_equal(got, expected, name)
    x, y = (array.view(dtype) for array in (a, b))
    text = f"mad.lo.cc.{ptx} {low}, A, B, C ; madc.hi.{ptx} D, A, B, E"
    got = apply(text, unsigned, x, y, c, d)
    expected = exact(lambda p, q, r, s: (p * q + r + (s << size)) >> size, unsigned, x, y, c, d)
    np.testing.assert_array_equal(got, expected)
    text = f"mad.hi.cc.{ptx} {low}, A, B, C ; madc.lo.cc.{ptx} {low}, A, B, E ; addc.{ptx} D, 0, 0"
    got = apply(text, unsigned, x, y, c, d)

    def carries(p: int, q: int, r: int, s: int) -> int:
        mask = 2**size - 1
        first = ((p * q >> size) & mask) + r
        return ((p * q & mask) + s + (first >> size)) >> size

    np.testing.assert_array_equal(got, exact(carries, unsigned, x, y, c, d))


@pytest.mark.parametrize("ptx, dtype", TYPES.items())
def test_sad(ptx: str, dtype: str) -> None:
    a, b, c = operands(dtype, 3)
    got = apply(f"sad.{ptx} D, A, B, C", dtype, a, b, c)
    np.testing.assert_array_equal(got, exact(lambda x, y, z: z + abs(x - y), dtype, a, b, c))


def test_saturation() -> None:
    a, b, c = operands("int32", 3)
    got = apply("add.sat.s32 D, A, B", "int32", a, b)
    np.testing.assert_array_equal(got, exact(lambda x, y: clamp(x + y), "int32", a, b))
    got = apply("sub.sat.s32 D, A, B", "int32", a, b)
    np.testing.assert_array_equal(got, exact(lambda x, y: clamp(x - y), "int32", a, b))
    got = apply("mad.hi.sat.s32 D, A, B, C", "int32", a, b, c)
    np.testing.assert_array_equal(got, exact(lambda x, y, z: clamp((x * y >> 32) + z), "int32", a, b, c))


@pytest.mark.parametrize("ptx, dtype", [("s32", "int32"), ("u32", "uint32")])
def test_products_of_24_bits(ptx: str, dtype: str) -> None:
    a, b, c = operands(dtype, 3)

    def low(x: int) -> int:
        x &= 0xFFFFFF
        return x - (1 << 24) if ptx == "s32" and x >> 23 else x

    def product(x: int, y: int, part: str) -> int:
        value = low(x) * low(y) >> (16 if part == "hi" else 0)
        return value & M32 if ptx == "u32" else (value + 2**31 & M32) - 2**31

    for part in ("lo", "hi"):
        got = apply(f"mul24.{part}.{ptx} D, A, B", dtype, a, b)
        np.testing.assert_array_equal(got, exact(lambda x, y, part=part: product(x, y, part), dtype, a, b), part)
        got = apply(f"mad24.{part}.{ptx} D, A, B, C", dtype, a, b, c)
        np.testing.assert_array_equal(got, exact(lambda x, y, z, part=part: product(x, y, part) + z, dtype, a, b, c))
    if ptx == "s32":
        got = apply("mad24.hi.sat.s32 D, A, B, C", dtype, a, b, c)
        np.testing.assert_array_equal(got, exact(lambda x, y, z: clamp(product(x, y, "hi") + z), dtype, a, b, c))


@pytest.mark.parametrize("a_type", ["int8", "uint8"])
@pytest.mark.parametrize("b_type", ["int8", "uint8"])
def test_dot_products(a_type: str, b_type: str) -> None:
    a, b, c = operands("uint32", 3, seed=2)
    types = "".join(".s32" if type_ == "int8" else ".u32" for type_ in (a_type, b_type))
    first, second = a.view(a_type).reshape(-1, 4).astype(np.int64), b.view(b_type).reshape(-1, 4).astype(np.int64)
    expected = ((first * second).sum(1) + c) & M32
    np.testing.assert_array_equal(apply(f"dp4a{types} D, A, B, C", "uint32", a, b, c), expected)
    halves = a.view(a_type.replace("8", "16")).reshape(-1, 2).astype(np.int64)
    for part, pair in {"lo": second[:, :2], "hi": second[:, 2:]}.items():
        got = apply(f"dp2a.{part}{types} D, A, B, C", "uint32", a, b, c)
        np.testing.assert_array_equal(got, ((halves * pair).sum(1) + c) & M32, part)


@pytest.mark.parametrize("ptx, dtype", WIDE.items())
def test_bfind(ptx: str, dtype: str) -> None:
    (a,) = operands(dtype, 1)
    bits = np.iinfo(dtype).bits

    def position(x: int) -> int:
        return (~x if x < 0 else x).bit_length() - 1

    expected = exact(position, "uint32", a)
    np.testing.assert_array_equal(apply(f"bfind.{ptx} D, A", "uint32", a), expected)
    expected = np.where(expected == M32, np.uint32(M32), np.uint32(bits - 1) - expected)
    np.testing.assert_array_equal(apply(f"bfind.shiftamt.{ptx} D, A", "uint32", a), expected)


def test_fns() -> None:
    rng = np.random.default_rng(8)
    mask = rng.integers(0, 2**32, 600, dtype=np.uint32) & rng.integers(0, 2**32, 600, dtype=np.uint32)
    base, offset = rng.integers(0, 32, 600, dtype=np.uint32), rng.integers(-8, 9, 600).astype(np.int32)

    def nth(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if mask >> base & 1 else M32
        ones = [i for i in (range(base, 32) if offset > 0 else range(base, -1, -1)) if mask >> i & 1]
        return ones[abs(offset) - 1] if abs(offset) <= len(ones) else M32

    got = apply("fns.b32 D, A, B, C", "uint32", mask, base, offset)
    np.testing.assert_array_equal(got, exact(nth, "uint32", mask, base, offset))


def test_masks_and_extension() -> None:
    start, length = np.array(np.meshgrid(np.arange(0, 40), np.arange(0, 40)), np.uint32).reshape(2, -1)
    rng = np.random.default_rng(9)
    values = rng.integers(0, 2**32, start.size, dtype=np.uint32)
    for mode, limit in (("clamp", 64), ("wrap", 32)):
        got = apply(f"bmsk.{mode}.b32 D, A, B", "uint32", start, length)
        wanted = exact(lambda s, n, limit=limit: ((1 << n % limit) - 1) << s % limit, "uint32", start, length)
        np.testing.assert_array_equal(got, wanted, mode)
        for ptx in ("u32", "s32"):

            def extended(x: int, n: int, limit: int = limit, ptx: str = ptx) -> int:
                n %= limit
                if n > 31:
                    return x
                x &= (1 << n) - 1
                return x - (1 << n) if ptx == "s32" and n and x >> (n - 1) else x

            got = apply(f"szext.{mode}.{ptx} D, A, B", "uint32", values, start)
            np.testing.assert_array_equal(got, exact(extended, "uint32", values, start), (mode, ptx))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_cnot_and_slct(bits: int) -> None:
    a, b = operands(f"uint{bits}", 2)
    np.testing.assert_array_equal(apply(f"cnot.b{bits} D, A", f"uint{bits}", a), a == 0)
    chooser = np.resize(np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32), a.size)
    for type_ in (f"b{bits}", f"u{bits}", f"s{bits}"):
        got = apply(f"slct.{type_}.s32 D, A, B, C", f"uint{bits}", a, b, chooser)
        np.testing.assert_array_equal(got, np.where(chooser >= 0, a, b))
    numbers = np.resize(np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, -1e-40], np.float32), a.size)
    for ftz in ("", ".ftz"):
        positive = (np.where(np.abs(numbers) < 2**-126, 0, numbers) if ftz else numbers) >= 0
        got = apply(f"slct{ftz}.b{bits}.f32 D, A, B, C", f"uint{bits}", a, b, numbers)
        np.testing.assert_array_equal(got, np.where(positive, a, b), ftz)


PERMUTATIONS = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}
"""Bytes of the result, the highest first, for each selector; from the tables of the PTX manual."""


@pytest.mark.parametrize("mode", PERMUTATIONS)
def test_modes_of_prmt(mode: str) -> None:
    a, b = operands("uint32", 2, seed=3)
    selector = np.resize(np.arange(4, dtype=np.uint32), a.size)
    both = np.stack([a, b], 1).view(np.uint8)
    chosen = np.array([[int(digit) for digit in reversed(text)] for text in PERMUTATIONS[mode]])[selector]
    expected = np.ascontiguousarray(np.take_along_axis(both, chosen, 1)).view(np.uint32).ravel()
    np.testing.assert_array_equal(apply(f"prmt.b32.{mode} D, A, B, C", "uint32", a, b, selector), expected)


def test_lop3_with_a_predicate() -> None:
    a, b, c = operands("uint32", 3, seed=4)
    a[::5] = b[::5] = c[::5] = 0
    given = np.resize(np.array([0, 1, 1], np.uint32), a.size)
    value = a & b & c
    for join, function in {"and": np.logical_and, "or": np.logical_or}.items():
        text = f"setp.ne.b32 %p3, E, 0 ; lop3.{join}.b32 %r9|%p1, A, B, C, 0x80, %p3 ; selp.b32 D, 1, 0, %p1"
        got = apply(text, "uint32", a, b, c, given)
        np.testing.assert_array_equal(got, function(value != 0, given != 0), join)
        text = f"setp.ne.b32 %p3, E, 0 ; lop3.{join}.b32 %r9|%p1, A, B, C, 0x80, %p3 ; mov.b32 D, %r9"
        np.testing.assert_array_equal(apply(text, "uint32", a, b, c, given), value, join)
