"""Atomic operations on types that are rare: counters, fp64, 16-bit floats, against plain numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.exact import BF16, F16, Format, add
from tests.emulator.programs import run


def spread(operation: str, size: int, register: str) -> str:
    """Lane i works on element i: p0 is the memory, p1 the operands, p2 gets what was there."""
    return (
        f"mul.wide.u32 %rd10, %r0, {size}; add.s64 %rd11, %rd0, %rd10; add.s64 %rd12, %rd1, %rd10;"
        f"add.s64 %rd13, %rd2, %rd10; ld.global.b{8 * size} {register}1, [%rd12];"
        f"atom.global.{operation} {register}2, [%rd11], {register}1; st.global.b{8 * size} [%rd13], {register}2;"
    )


@pytest.mark.parametrize("name", ["inc", "dec"])
def test_counters(name: str) -> None:
    memory = np.resize(np.array([0, 1, 5, 6, 7, 2**32 - 1], np.uint32), 32)
    bound = np.repeat(np.array([0, 6, 2**32 - 1, 1], np.uint32), 8)
    before, old = memory.copy(), np.zeros(32, np.uint32)
    run(spread(f"{name}.u32", 4, "%r"), memory, bound, old)
    if name == "inc":
        expected = np.where(before >= bound, 0, before + np.uint32(1))
    else:
        expected = np.where((before == 0) | (before > bound), bound, before - np.uint32(1))
    np.testing.assert_array_equal(memory, expected)
    np.testing.assert_array_equal(old, before)


def test_fp64() -> None:
    rng = np.random.default_rng(1)
    memory, operand, old = rng.standard_normal(32), rng.standard_normal(32) * 1e-9, np.zeros(32)
    expected = memory + operand
    run(spread("add.f64", 8, "%rd2"), memory, operand, old)
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("type_, form", [("f16", F16), ("bf16", BF16)])
def test_sixteen_bits(type_: str, form: Format) -> None:
    rng = np.random.default_rng(2)
    start, operand = (rng.integers(0, 2**16, 64, dtype=np.uint16) for _ in range(2))
    expected = np.array([add(form, int(a), int(b)) for a, b in zip(start, operand, strict=True)], np.uint16)
    memory = start.copy()
    run(spread(f"add.noftz.{type_}x2", 4, "%r"), memory, operand, np.zeros(64, np.uint16))
    np.testing.assert_array_equal(memory, expected)
    memory = start[:32].copy()
    run(spread(f"add.noftz.{type_}", 2, "%h"), memory, operand[:32].copy(), np.zeros(32, np.uint16))
    np.testing.assert_array_equal(memory, expected[:32])


def test_compare_and_swap_of_16_bits() -> None:
    memory = np.arange(32, dtype=np.uint16)
    body = (
        "mul.wide.u32 %rd10, %r0, 2; add.s64 %rd11, %rd0, %rd10; and.b32 %r1, %r0, 30; cvt.u16.u32 %h1, %r1;"
        "mov.b16 %h2, 77; atom.global.cas.b16 %h3, [%rd11], %h1, %h2;"
    )
    run(body, memory)
    np.testing.assert_array_equal(memory, [77 if i % 2 == 0 else i for i in range(32)])
