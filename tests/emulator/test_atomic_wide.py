"""Atomic operations on vectors and on 16 bytes."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator import exact
from tests.emulator.exact import BF16, F16, F32, Format
from tests.emulator.programs import run

RNG = np.random.default_rng(4)


def vector(register: str, count: int, start: int = 1) -> str:
    return "{" + ", ".join(f"{register}{start + i}" for i in range(count)) + "}"


def body(operation: str, bits: int, count: int, kind: str) -> str:
    """Lane i works on vector i: p0 is the memory, p1 the operands, p2 gets what was there."""
    register = "%h" if bits == 16 else "%r"
    size = bits // 8 * count
    text = f"mul.wide.u32 %rd10, %r0, {size}; " + "".join(f"add.s64 %rd1{i + 1}, %rd{i}, %rd10; " for i in range(3))
    first = 1 if bits == 16 else 2
    text += "".join(f"ld.global.b{bits} {register}{first + i}, [%rd12+{bits // 8 * i}]; " for i in range(count))
    values, old = vector(register, count, first), vector(register, count, first + count)
    if kind == "red":
        return text + f"red.relaxed.gpu.global.{operation} [%rd11], {values};"
    text += f"atom.global.{operation} {old}, [%rd11], {values}; "
    return text + "".join(
        f"st.global.b{bits} [%rd13+{bits // 8 * i}], {register}{first + count + i}; " for i in range(count)
    )


def flushed_sum(a: int, b: int) -> int:
    return exact.add(F32, F32.flushed(a), F32.flushed(b), "rn", True)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", ["atom", "red"])
def test_fp32(count: int, kind: str) -> None:
    (start,) = exact.operands(F32, 1, 200)
    start = RNG.permutation(start)[: 32 * count]
    operand = RNG.permutation(start)
    expected = np.array([flushed_sum(int(a), int(b)) for a, b in zip(start, operand, strict=True)], np.uint32)
    memory, old = start.copy(), np.zeros_like(start)
    report = run(body(f"add.v{count}.f32", 32, count, kind), memory, operand, old)
    np.testing.assert_array_equal(memory, expected)
    np.testing.assert_array_equal(old, start if kind == "atom" else 0)
    assert report.tensors["argument 0"].written == 128 * count


def extreme(form: Format, a: int, b: int, least: bool) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan if form.is_nan(a) and form.is_nan(b) else b if form.is_nan(a) else a

    def key(bits: int) -> int:
        return -1 - (bits & (form.sign_bit - 1)) if bits & form.sign_bit else bits

    return (min if least else max)(a, b, key=key)


@pytest.mark.parametrize(("type_", "form"), [("f16", F16), ("bf16", BF16)])
@pytest.mark.parametrize(("pairs", "count"), [(False, 2), (False, 4), (True, 2), (True, 4)])
@pytest.mark.parametrize("name", ["add", "min", "max"])
def test_sixteen_bits(name: str, type_: str, form: Format, pairs: bool, count: int) -> None:
    functions = {
        "add": lambda a, b: exact.add(form, a, b),
        "min": lambda a, b: extreme(form, a, b, True),
        "max": lambda a, b: extreme(form, a, b, False),
    }
    (start,) = exact.operands(form, 1, 200)
    start = np.resize(RNG.permutation(start), 32 * count * (2 if pairs else 1))
    operand = RNG.permutation(start)
    expected = [functions[name](int(a), int(b)) for a, b in zip(start, operand, strict=True)]
    memory, old = start.copy(), np.zeros_like(start)
    operation = f"{name}.noftz.v{count}.{type_}{'x2' if pairs else ''}"
    run(body(operation, 32 if pairs else 16, count, "atom"), memory, operand, old)
    np.testing.assert_array_equal(memory, np.array(expected, np.uint16))
    np.testing.assert_array_equal(old, start)


@pytest.mark.parametrize("order", ["v2.f16.add.noftz", "v2.add.noftz.f16", "add.v2.noftz.f16", "add.noftz.v2.f16"])
def test_vector_and_type_may_stand_before_the_operation(order: str) -> None:
    memory = np.array([1, 2, 3, 4], np.float16)
    run(f"mov.b16 %h1, 0x3C00;\nred.global.{order} [%rd0], {{%h1, %h1}};", memory, threads=1)
    assert memory.tolist() == [2, 3, 3, 4]


def test_eight_at_once() -> None:
    start, operand = (RNG.integers(0, 2**16, 256, dtype=np.uint16) for _ in range(2))
    memory = start.copy()
    run(body("add.noftz.v8.bf16", 16, 8, "red").replace("%h8", "%h0"), memory, operand, np.zeros(1, np.uint16))
    expected = [exact.add(BF16, int(a), int(b)) for a, b in zip(start, operand, strict=True)]
    np.testing.assert_array_equal(memory, np.array(expected, np.uint16))


def test_vectors_are_aligned_as_a_whole() -> None:
    with pytest.raises(EmulatorFault, match="misaligned"):
        run("red.global.add.v4.f32 [%rd0+8], {%r0, %r0, %r0, %r0};", np.zeros(8, np.uint32), threads=1)


def test_sixteen_bytes() -> None:
    """Every lane adds one to a 128-bit number by compare and swap, and the last value is exchanged away."""
    memory = np.array([2**64 - 16, 5, 0, 0], np.uint64)
    assert memory.ctypes.data % 16 == 0
    text = (
        ".reg .b128 %q<8>; ld.global.v2.b64 {%rd5, %rd6}, [%rd0];\n"
        "AGAIN: add.cc.u64 %rd7, %rd5, 1; addc.u64 %rd8, %rd6, 0; mov.b128 %q1, {%rd5, %rd6};\n"
        "mov.b128 %q2, {%rd7, %rd8}; atom.global.cas.b128 %q3, [%rd0], %q1, %q2; mov.b128 {%rd9, %rd10}, %q3;\n"
        "setp.ne.u64 %p1, %rd9, %rd5; setp.ne.u64 %p2, %rd10, %rd6; or.pred %p1, %p1, %p2;\n"
        "mov.b64 %rd5, %rd9; mov.b64 %rd6, %rd10; @%p1 bra AGAIN;\n"
        "bar.sync 0; setp.eq.u32 %p3, %r0, 0; @!%p3 bra DONE; mov.b64 %rd11, 7; mov.b128 %q4, {%rd11, %rd11};\n"
        "atom.global.exch.b128 %q5, [%rd0], %q4; mov.b128 {%rd12, %rd13}, %q5;\n"
        "st.global.v2.b64 [%rd0+16], {%rd12, %rd13};\nDONE:"
    )
    run(text, memory, threads=32)
    assert memory.tolist() == [7, 7, 16, 6]
    with pytest.raises(EmulatorFault, match="misaligned"):
        run(
            ".reg .b128 %q<2>; mov.b128 %q1, {%rd0, %rd0}; atom.global.exch.b128 %q0, [%rd0+8], %q1;", memory, threads=1
        )
