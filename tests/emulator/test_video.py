"""Video instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from msa_ops.emulator import PtxError
from tests.emulator.programs import apply, run

RNG = np.random.default_rng(8)
A, B, C = (RNG.integers(0, 2**32, 96, dtype=np.uint32) for _ in range(3))
TYPES = "u32", "s32"
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}
VECTORS = ARITHMETIC | {"vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1}


def field(value: int, bits: int, index: int, type_: str) -> int:
    found = value >> bits * index & 2**bits - 1
    return found - (found >> bits - 1 << bits) if type_ == "s32" else found


def clamped(value: int, bits: int, type_: str) -> int:
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type_ == "s32" else (0, 2**bits - 1)
    return min(max(value, least), greatest)


def rows() -> list[tuple[int, int, int]]:
    return [(int(a), int(b), int(c)) for a, b, c in zip(A, B, C, strict=True)]


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("a_type", TYPES)
@pytest.mark.parametrize("b_type", TYPES)
def test_parts_of_registers(name: str, a_type: str, b_type: str) -> None:
    for (bits, index), (b_bits, b_index) in (((32, 0), (32, 0)), ((8, 3), (16, 1)), ((16, 0), (8, 1))):
        part, b_part = (
            "" if n == 32 else f".{'b' if n == 8 else 'h'}{i}" for n, i in ((bits, index), (b_bits, b_index))
        )
        wanted = [
            ARITHMETIC[name](field(a, bits, index, a_type), field(b, b_bits, b_index, b_type)) for a, b, _ in rows()
        ]
        text = f"{name}.s32.{a_type}.{b_type} %r8, %r1{part}, %r2{b_part} ; mov.b32 D, %r8"
        np.testing.assert_array_equal(apply(text, "uint32", A, B), [v % 2**32 for v in wanted])
        text = f"{name}.u32.{a_type}.{b_type}.add %r8, %r1{part}, %r2{b_part}, %r3 ; mov.b32 D, %r8"
        sums = [(v + c) % 2**32 for v, (_, _, c) in zip(wanted, rows(), strict=True)]
        np.testing.assert_array_equal(apply(text, "uint32", A, B, C), sums)


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("name", VECTORS)
def test_several_at_once(name: str, parts: int) -> None:
    bits = 32 // parts
    letter = "h" if parts == 2 else "b"
    order = [3, 0] if parts == 2 else [7, 2, 0, 5]  # of a's and b's parts, the highest first
    for type_ in TYPES:
        for chosen, mask in ((None, None), (order, [parts - 1])):
            wanted, sums = [], []
            for a, b, c in rows():
                whole = b << 32 | a
                first = list(range(parts)) if chosen is None else chosen[::-1]
                values = [
                    VECTORS[name](field(whole, bits, first[i], type_), field(whole, bits, parts + i, type_))
                    for i in range(parts)
                ]
                kept = range(parts) if mask is None else mask
                result = c
                for i in kept:
                    result &= ~((2**bits - 1) << bits * i)
                    result |= clamped(values[i], bits, type_) % 2**bits << bits * i
                wanted.append(result)
                sums.append((c + sum(values[i] for i in kept)) % 2**32)
            select = "" if chosen is None else f".{letter}" + "".join(map(str, chosen))
            to = "" if mask is None else f".{letter}{mask[0]}"
            head = f"{name}{parts}.{type_}.{type_}.{type_}"
            text = f"{head}.sat %r8{to}, %r1{select}, %r2, %r3 ; mov.b32 D, %r8"
            np.testing.assert_array_equal(apply(text, "uint32", A, B, C), wanted)
            text = f"{head}.add %r8{to}, %r1{select}, %r2, %r3 ; mov.b32 D, %r8"
            np.testing.assert_array_equal(apply(text, "uint32", A, B, C), sums)


def test_comparisons_shifts_and_products() -> None:
    got = apply("vset.s32.u32.lt.add %r8, %r1.b0, %r2.b1, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    wanted = [(c + (field(a, 8, 0, "s32") < field(b, 8, 1, "u32"))) % 2**32 for a, b, c in rows()]
    np.testing.assert_array_equal(got, wanted)
    got = apply("vset4.u32.u32.ge %r8, %r1, %r2, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    wanted = [sum((field(a, 8, i, "u32") >= field(b, 8, i, "u32")) << 8 * i for i in range(4)) for a, b, _ in rows()]
    np.testing.assert_array_equal(got, wanted)
    got = apply("vshl.u32.s32.u32.clamp %r8, %r1.h0, %r2.b0 ; mov.b32 D, %r8", "uint32", A, B)
    wanted = [(field(a, 16, 0, "s32") << min(b & 255, 32)) % 2**32 for a, b, _ in rows()]
    np.testing.assert_array_equal(got, wanted)
    got = apply("vmad.s32.s32.u32 %r8, -%r1.b1, %r2.h1, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    wanted = [(c - field(a, 8, 1, "s32") * field(b, 16, 1, "u32")) % 2**32 for a, b, c in rows()]
    np.testing.assert_array_equal(got, wanted)


def inserted(c: int, value: int, bits: int, index: int) -> int:
    mask = (2**bits - 1) << bits * index
    return c & ~mask | value << bits * index & mask


def test_saturation_as_on_a_chip() -> None:
    """ptxas's code for sm_90 gives these; the manual says otherwise of all but the first (opcodes_video.cpp)."""
    sums = [field(a, 32, 0, "s32") + b for a, b, _ in rows()]
    got = apply("vadd.s32.s32.u32.sat %r8, %r1, %r2 ; mov.b32 D, %r8", "uint32", A, B)
    np.testing.assert_array_equal(got, [clamped(v, 32, "s32") % 2**32 for v in sums])
    sums = [a + b for a, b, _ in rows()]
    assert any(v >= 2**32 for v in sums)
    got = apply("vadd.u32.u32.u32.sat %r8, %r1, %r2 ; mov.b32 D, %r8", "uint32", A, B)
    np.testing.assert_array_equal(got, [v % 2**32 for v in sums])
    differences = [field(a, 8, 0, "u32") - field(b, 8, 1, "u32") for a, b, _ in rows()]
    assert min(differences) < 0
    got = apply("vsub.s32.u32.u32.sat %r8.b2, %r1.b0, %r2.b1, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    wanted = [inserted(c, v if 0 <= v < 128 else 127, 8, 2) for v, (_, _, c) in zip(differences, rows(), strict=True)]
    np.testing.assert_array_equal(got, wanted)
    got = apply("vadd.u32.u32.u32 %r8.h1, %r1, %r2, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    wanted = [inserted(c, v >> 16, 16, 1) for v, (_, _, c) in zip(sums, rows(), strict=True)]
    np.testing.assert_array_equal(got, wanted)


def test_the_smaller_or_greater_of_64_bits() -> None:
    signed = [field(a, 32, 0, "s32") for a, _, _ in rows()]
    others = [field(b, 32, 0, "s32") for _, b, _ in rows()]
    smaller = [min(a, b) % 2**64 for a, b in zip(signed, others, strict=True)]
    got = apply("vmin.u32.s32.s32.max %r8, %r1, %r2, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    np.testing.assert_array_equal(got, [max(v, c) % 2**32 for v, (_, _, c) in zip(smaller, rows(), strict=True)])


def test_scaled_products() -> None:
    products = [field(a, 16, 1, "s32") * field(b, 32, 0, "s32") + field(c, 32, 0, "s32") for a, b, c in rows()]
    got = apply("vmad.s32.s32.s32.sat.shr7 %r8, %r1.h1, %r2, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    np.testing.assert_array_equal(got, [clamped(v >> 7, 32, "s32") % 2**32 for v in products])
    got = apply("vmad.s32.s32.s32.po.shr15 %r8, %r1.h1, %r2, %r3 ; mov.b32 D, %r8", "uint32", A, B, C)
    np.testing.assert_array_equal(got, [(v + 1 >> 15) % 2**32 for v in products])


@pytest.mark.parametrize("instruction, message", [
    ("vadd.s32.s32.s32 %r1.b0, %r2, %r3", "too few operands"),
    ("vadd.s32.s32.s32.add %r1.b0, %r2, %r3, %r4", "writes no part"),
    ("vmad.s32.s32.s32.po %r1, -%r2, %r3, %r4", "a negative register"),
    ("vmad.s32.s32.s32 %r1.b0, %r2, %r3, %r4", "writes no part"),
    ("vadd.s32.s32.s32 %r1, %r2.b4, %r3", "a part that the register does not have"),
    ("vadd.s32.s32.s32 %r1, %r2.b10, %r3", "another number of parts"),
    ("vadd.s32.s32.s32 %r1, -%r2, %r3", "a negative register"),
    ("vadd2.s32.s32.s32 %r1, %r2.b3210, %r3, %r4", "parts of another size"),
    ("vadd4.s32.s32.s32 %r1, %r2.b32, %r3, %r4", "another number of parts"),
    ("add.s32 %r1, %r2.b1, %r3", "a part of a register, or a negative one"),
    ("add.s32 %r1, -%r2, %r3", "a part of a register, or a negative one"),
])  # fmt: skip
def test_parts_that_do_not_exist(instruction: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(f"{instruction};", np.zeros(32, np.uint32))
