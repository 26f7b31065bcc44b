"""Integer instructions against NumPy and plain Python numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.programs import apply

TYPES = {"s16": "int16", "u16": "uint16", "s32": "int32", "u32": "uint32", "s64": "int64", "u64": "uint64"}


def operands(dtype: str, count: int, seed: int = 0) -> list[np.ndarray]:
    """`count` arrays: all pairs of special values, then random bits, of all magnitudes."""
    info = np.iinfo(dtype)
    special = np.array([0, 1, 2, 7, 31, 32, 33, info.max, info.max - 1, info.min, info.min + 1, info.max // 3], dtype)
    rng = np.random.default_rng(seed)
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    arrays = []
    for i in range(count):
        bits = rng.integers(0, 2**64, 400, dtype=np.uint64) >> rng.integers(0, 64, 400, dtype=np.uint64)
        arrays.append(np.concatenate([pairs[i % 2], bits.astype(f"uint{info.bits}").view(dtype)]))
    return arrays


def exact(function, dtype: str, *arrays: np.ndarray) -> np.ndarray:
    """`function` on Python numbers, wrapped to the type."""
    bits = np.iinfo(dtype).bits
    values = [function(*map(int, row)) % (1 << bits) for row in zip(*arrays, strict=True)]
    return np.array(values, f"uint{bits}").view(dtype)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("ptx, dtype", TYPES.items())
def test_arithmetic(ptx: str, dtype: str) -> None:
    a, b, c = operands(dtype, 3)
    bits = np.iinfo(dtype).bits
    for name, function in {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul.lo": lambda x, y: x * y,
        "mul.hi": lambda x, y: x * y >> bits,
        "min": min,
        "max": max,
    }.items():
        np.testing.assert_array_equal(apply(f"{name}.{ptx} D, A, B", dtype, a, b), exact(function, dtype, a, b), name)
    for name, function in {"lo": lambda x, y, z: x * y + z, "hi": lambda x, y, z: (x * y >> bits) + z}.items():
        got = apply(f"mad.{name}.{ptx} D, A, B, C", dtype, a, b, c)
        np.testing.assert_array_equal(got, exact(function, dtype, a, b, c), name)


@pytest.mark.parametrize("ptx, dtype", TYPES.items())
def test_division(ptx: str, dtype: str) -> None:
    a, b = operands(dtype, 2)
    b[b == 0] = 3
    np.testing.assert_array_equal(apply(f"div.{ptx} D, A, B", dtype, a, b), exact(truncated, dtype, a, b))
    got = apply(f"rem.{ptx} D, A, B", dtype, a, b)
    np.testing.assert_array_equal(got, exact(lambda x, y: x - y * truncated(x, y), dtype, a, b))


@pytest.mark.parametrize("ptx", ["s16", "u16", "s32", "u32"])
def test_wide(ptx: str) -> None:
    dtype = TYPES[ptx]
    wide = dtype.replace("32", "64").replace("16", "32")
    a, b = operands(dtype, 2)
    (c,) = operands(wide, 1, seed=1)
    np.testing.assert_array_equal(apply(f"mul.wide.{ptx} D, A, B", wide, a, b), exact(lambda x, y: x * y, wide, a, b))
    got = apply(f"mad.wide.{ptx} D, A, B, C", wide, a, b, c)
    np.testing.assert_array_equal(got, exact(lambda x, y, z: x * y + z, wide, a, b, c))


@pytest.mark.parametrize("ptx", ["s16", "s32", "s64"])
def test_sign(ptx: str) -> None:
    (a,) = operands(TYPES[ptx], 1)
    np.testing.assert_array_equal(apply(f"neg.{ptx} D, A", TYPES[ptx], a), exact(lambda x: -x, TYPES[ptx], a))
    np.testing.assert_array_equal(apply(f"abs.{ptx} D, A", TYPES[ptx], a), exact(abs, TYPES[ptx], a))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bits(bits: int) -> None:
    unsigned, signed = f"uint{bits}", f"int{bits}"
    a, b = operands(unsigned, 2)
    for name, expected in {"and": a & b, "or": a | b, "xor": a ^ b}.items():
        np.testing.assert_array_equal(apply(f"{name}.b{bits} D, A, B", unsigned, a, b), expected, name)
    np.testing.assert_array_equal(apply(f"not.b{bits} D, A", unsigned, a), ~a)
    n = np.arange(a.size, dtype=np.uint32) % 80
    n[-1] = 2**32 - 1
    np.testing.assert_array_equal(
        apply(f"shl.b{bits} D, A, B", unsigned, a, n), exact(lambda x, s: x << min(s, bits), unsigned, a, n)
    )
    for kind, dtype in {"u": unsigned, "b": unsigned, "s": signed}.items():
        got = apply(f"shr.{kind}{bits} D, A, B", dtype, a.view(dtype), n)
        np.testing.assert_array_equal(got, exact(lambda x, s: x >> min(s, bits), dtype, a.view(dtype), n))


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts(bits: int) -> None:
    (a,) = operands(f"uint{bits}", 1)
    reverse = exact(lambda x: int(f"{x:0{bits}b}"[::-1], 2), f"uint{bits}", a)
    np.testing.assert_array_equal(apply(f"brev.b{bits} D, A", f"uint{bits}", a), reverse)
    np.testing.assert_array_equal(apply(f"popc.b{bits} D, A", "uint32", a), exact(int.bit_count, "uint32", a))
    np.testing.assert_array_equal(
        apply(f"clz.b{bits} D, A", "uint32", a), exact(lambda x: bits - x.bit_length(), "uint32", a)
    )


@pytest.mark.parametrize("ptx", ["u32", "s32", "u64", "s64"])
def test_fields(ptx: str) -> None:
    bits, signed = int(ptx[1:]), ptx[0] == "s"
    dtype = TYPES[ptx]
    (a,) = operands(dtype, 1)
    rng = np.random.default_rng(2)
    start = rng.integers(0, bits + 8, a.size, dtype=np.uint32)
    length = rng.integers(0, bits + 8, a.size, dtype=np.uint32)

    def field(x: int, position: int, size: int) -> int:
        """By the pseudocode of the PTX manual, bit by bit."""
        last = bits - 1
        sign = (x >> min(position + size - 1, last)) & 1 if signed and size else 0
        return sum(
            ((x >> (position + i)) & 1 if i < size and position + i <= last else sign) << i for i in range(last + 1)
        )

    got = apply(f"bfe.{ptx} D, A, B, C", dtype, a, start, length)
    np.testing.assert_array_equal(got, exact(lambda x, p, n: field(x % (1 << bits), p, n), dtype, a, start, length))
    unsigned = f"uint{bits}"
    b = rng.permutation(a)

    def insert(x: int, y: int, position: int, size: int) -> int:
        mask = ((1 << size) - 1) << position
        return (y & ~mask | x << position & mask) % (1 << bits)

    got = apply(f"bfi.b{bits} D, A, B, C, E", unsigned, a.view(unsigned), b.view(unsigned), start, length)
    np.testing.assert_array_equal(got, exact(insert, unsigned, a.view(unsigned), b.view(unsigned), start, length))


def test_prmt_lop3_shf() -> None:
    a, b, c = operands("uint32", 3)

    def permute(x: int, y: int, selectors: int) -> int:
        both = (x | y << 32).to_bytes(8, "little")
        chosen = [both[selectors >> 4 * i & 7] for i in range(4)]
        signs = [selectors >> 4 * i & 8 for i in range(4)]
        return int.from_bytes(bytes((255 * (v >> 7)) if s else v for v, s in zip(chosen, signs, strict=True)), "little")

    np.testing.assert_array_equal(apply("prmt.b32 D, A, B, C", "uint32", a, b, c), exact(permute, "uint32", a, b, c))
    for table in (0x00, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x2D, 0xFF):
        got = apply(f"lop3.b32 D, A, B, C, {table}", "uint32", a, b, c)
        expected = np.zeros_like(a)
        for i in range(8):
            if table >> i & 1:
                expected |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        np.testing.assert_array_equal(got, expected, hex(table))
    n = np.arange(a.size, dtype=np.uint32) % 40
    for mode, limit in {"wrap": lambda s: s % 32, "clamp": lambda s: min(s, 32)}.items():
        got = apply(f"shf.l.{mode}.b32 D, A, B, C", "uint32", a, b, n)
        expected = exact(lambda x, y, s, f=limit: (y << 32 | x) << f(s) >> 32, "uint32", a, b, n)
        np.testing.assert_array_equal(got, expected)
        got = apply(f"shf.r.{mode}.b32 D, A, B, C", "uint32", a, b, n)
        expected = exact(lambda x, y, s, f=limit: (y << 32 | x) >> f(s), "uint32", a, b, n)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("bits", [32, 64])
def test_packing(bits: int) -> None:
    (a,) = operands(f"uint{bits}", 1)
    half = bits // 2
    letters = "%h1 %h2" if half == 16 else "%r1 %r2"
    first, second = letters.split()
    got = apply(f"mov.b{bits} {{{first},{second}}}, A ; mov.b{bits} D, {{{second},{first}}}", f"uint{bits}", a)
    np.testing.assert_array_equal(got, (a >> half) | (a << half))


@pytest.mark.parametrize("ptx, dtype", [("s16x2", "int16"), ("u16x2", "uint16")])
def test_pairs(ptx: str, dtype: str) -> None:
    a, b = operands(dtype, 2)
    whole = [array.view(np.uint32) for array in (a, b)]
    for name, function in {"add": lambda x, y: x + y, "min": min, "max": max}.items():
        got = apply(f"{name}.{ptx} D, A, B", "uint32", *whole)
        np.testing.assert_array_equal(got.view(dtype), exact(function, dtype, a, b), name)


def test_not_below_zero() -> None:
    for name, function in {"min": min, "max": max}.items():
        for ptx, dtype in {"s32": "int32", "s16x2": "int16"}.items():
            a, b = operands(dtype, 2)
            expected = exact(lambda x, y, function=function: max(function(x, y), 0), dtype, a, b)
            got = apply(f"{name}.relu.{ptx} D, A, B", "int32", a.view(np.int32), b.view(np.int32))
            np.testing.assert_array_equal(got.view(dtype), expected, name)
