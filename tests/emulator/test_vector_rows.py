"""Instructions that have a way for all lanes at once and one for some: both give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import exact
from tests.emulator.exact import BF16, F16, F32, Format
from tests.emulator.programs import run

FLOATS = [f"{op}{ftz}" for op in ("add", "sub", "mul", "fma.rn", "min", "max") for ftz in ("", ".ftz")]
PAIRS = [f"{op}.rn{ftz}" for op in ("add", "sub", "mul", "fma") for ftz in ("", ".ftz")]
HALVES = ["add", "sub", "mul", "fma.rn"]
# Opcode, operand's format, numbers in an operand's register, bytes of the result's register.
CASES = [
    *((f"{name}.f32", F32, 1, 4) for name in FLOATS),
    *((f"{name}.f32x2", F32, 2, 8) for name in PAIRS),
    *((f"{name}.f16", F16, 1, 2) for name in HALVES),
    *((f"{name}.f16x2", F16, 2, 4) for name in HALVES),
    ("cvt.f32.f16", F16, 1, 4),
    ("cvt.rn.f16.f32", F32, 1, 2),
    ("cvt.rn.bf16.f32", F32, 1, 2),
    ("ex2.approx.ftz.f32", F32, 1, 4),
    ("cvt.rn.f16x2.f32", F32, 1, 4),
    ("cvt.rn.bf16x2.f32", F32, 1, 4),
    ("cvt.rn.satfinite.e4m3x2.f32", F32, 1, 2),
]
REGISTERS = {2: "%h{}", 4: "%r{}", 8: "%rd{}"}


def count_of(opcode: str) -> int:
    if opcode.startswith("fma"):
        return 3
    return 1 if opcode.startswith("ex2") or (opcode.startswith("cvt") and "x2" not in opcode) else 2


def near_the_ends(form: Format, seed: int) -> np.ndarray:
    """Special values, and numbers whose sums and products come out around the ends of the formats."""
    rng = np.random.default_rng(seed)
    (special,) = exact.operands(form, 1, size=256)
    if form is F32:
        exponents = rng.choice([0, 1, 2, 64, 63, 101, 102, 103, 112, 113, 120, 121, 127, 134, 135, 142, 143, 254], 2048)
        numbers = exponents << 23 | rng.integers(0, 1 << 23, 2048) & rng.choice([0x7FFFFF, 0x7F0000, 0x700000, 1], 2048)
        numbers |= rng.integers(0, 2, 2048) << 31
    else:
        numbers = rng.integers(0, 1 << 16, 2048)
    return rng.permutation(np.concatenate([special, numbers.astype(special.dtype)]))[:2048]


@pytest.mark.parametrize("opcode, form, parts, out_bytes", CASES, ids=[case[0] for case in CASES])
def test_all_lanes_and_some(opcode: str, form: Format, parts: int, out_bytes: int) -> None:
    size = (2 if form in (F16, BF16) else 4) * parts
    inputs = [near_the_ends(form, seed) for seed in range(count_of(opcode))]
    lanes = len(inputs[0]) // parts
    loads, names = [], []
    for i in range(len(inputs)):
        names.append(REGISTERS[size].format(10 + i))
        loads += [
            f"mul.lo.s64 %rd20, %rd15, {size};",
            f"add.s64 %rd20, %rd20, %rd{i};",
            f"ld.global.b{8 * size} {names[-1]}, [%rd20];",
        ]
    at = len(inputs)
    whole, some = (REGISTERS[out_bytes].format(n) for n in (7, 8))
    operands = ", ".join(names)
    body = [
        "mov.u32 %r20, %ctaid.x; mad.lo.s32 %r0, %r20, 32, %r0; cvt.u64.u32 %rd15, %r0; and.b32 %r21, %r0, 31;",
        *loads,
        "setp.lt.u32 %p1, %r21, 31;",
        f"{opcode} {whole}, {operands};",
        f"@%p1 {opcode} {some}, {operands};",
        f"@!%p1 {opcode} {some}, {operands};",
        f"mul.lo.s64 %rd20, %rd15, {out_bytes};",
        f"add.s64 %rd21, %rd20, %rd{at};",
        f"add.s64 %rd22, %rd20, %rd{at + 1};",
        f"st.global.b{8 * out_bytes} [%rd21], {whole};",
        f"st.global.b{8 * out_bytes} [%rd22], {some};",
    ]
    results = [np.zeros(lanes * out_bytes, np.uint8) for _ in range(2)]
    run("\n".join(body), *inputs, *results, threads=32, blocks=lanes // 32, target="sm_100a")
    both = [result.view(f"u{out_bytes}") for result in results]
    np.testing.assert_array_equal(*both)
    assert len(np.unique(both[0])) > 100
