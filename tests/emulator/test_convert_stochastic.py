"""Conversions with random bits, and those to UE5M3, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from msa_ops.emulator import PtxError
from tests.emulator.programs import run

# Type, exponent and mantissa bits, elements, bits of each in the result, bits of each one's random number.
FORMATS = {
    "f16x2": (np.float16, 5, 10, 2, 16, 13),
    "bf16x2": (ml_dtypes.bfloat16, 8, 7, 2, 16, 16),
    "e4m3x4": (ml_dtypes.float8_e4m3fn, 4, 3, 4, 8, 8),
    "e5m2x4": (ml_dtypes.float8_e5m2, 5, 2, 4, 8, 8),
    "e2m3x4": (ml_dtypes.float6_e2m3fn, 2, 3, 4, 8, 8),
    "e3m2x4": (ml_dtypes.float6_e3m2fn, 3, 2, 4, 8, 8),
    "e2m1x4": (ml_dtypes.float4_e2m1fn, 2, 1, 4, 4, 8),
}
LANES = 512


def power_of(value: Fraction) -> int:
    """The greatest p with 2^p <= value."""
    p = value.numerator.bit_length() - value.denominator.bit_length()
    return p if Fraction(2) ** p <= value else p - 1


def expected(value: float, random: int, name: str, relu: bool, finite: bool) -> int:
    dtype, exponent, mantissa, _, _, bits = FORMATS[name]
    code = np.uint16 if np.dtype(dtype).itemsize == 2 else np.uint8
    small = 8 * np.dtype(dtype).itemsize if exponent + mantissa >= 7 else exponent + mantissa + 1
    sign = int(math.copysign(1, value) < 0) << (small - 1)
    if relu and value <= 0:
        return 0
    top = float(ml_dtypes.finfo(dtype).max)
    if math.isnan(value):
        nan = {"f16x2": 0x7FFF, "bf16x2": 0x7FFF, "e4m3x4": 0x7F, "e5m2x4": 0x7F}
        return nan.get(name, int(np.array(top, dtype).view(code)))
    if math.isinf(value):
        found = math.inf
    else:
        least = 2 - (1 << (exponent - 1))
        size = Fraction(abs(value))
        power = max(power_of(size), least) if size else least
        total = size + random * Fraction(2) ** (power - mantissa - bits)
        unit = Fraction(2) ** ((max(power_of(total), least) if total else least) - mantissa)
        found = float(total // unit * unit)
    if found > top:
        found = top if finite or name not in ("f16x2", "bf16x2") else math.inf
    return int(np.array(found, dtype).view(code)) | sign


def values(mantissa: int, least: int, most: int) -> np.ndarray:
    rng = np.random.default_rng(mantissa)
    made = rng.choice([-1, 1], (4, LANES)) * np.exp2(rng.uniform(least - mantissa - 3, most, (4, LANES)))
    made = made.astype(np.float32)
    made[:, :8] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1.5, 3e38]
    return made


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_random_bits(name: str, finite: bool, relu: bool) -> None:
    _, exponent, mantissa, count, field, bits = FORMATS[name]
    if not finite and count == 4:
        with pytest.raises(NotImplementedError):
            run(f"cvt.rs.{name}.f32 %r1, {{%r2, %r3, %r4, %r5}}, %r6;", np.zeros(1), target="sm_100a")
        return
    limit = 1 << (exponent - 1)
    inputs = values(mantissa, 2 - limit, min(limit, 126) + 1)
    random = np.random.default_rng(7).integers(0, 2**32, LANES, dtype=np.uint32)
    random[8:16] = [0, 2**32 - 1] * 4
    names = [f"%f{i}" for i in range(count)]
    sources = f"{{{', '.join(names)}}}" if count == 4 else ", ".join(names)
    out = "%h1" if name == "e2m1x4" else "%r1"
    size = 2 if name == "e2m1x4" else 4
    result = np.zeros(LANES, f"u{size}")
    opcode = f"cvt.rs{'.relu' if relu else ''}{'.satfinite' if finite else ''}.{name}.f32"
    body = [".reg .f32 %f<4>; mov.u32 %r20, %ctaid.x; mad.lo.s32 %r0, %r20, 32, %r0; mul.wide.u32 %rd10, %r0, 4;"]
    for i in range(count):
        body.append(f"add.s64 %rd11, %rd10, %rd{i}; ld.global.f32 {names[i]}, [%rd11];")
    body.append(f"add.s64 %rd11, %rd10, %rd{count}; ld.global.b32 %r6, [%rd11];\n{opcode} {out}, {sources}, %r6;")
    body.append(f"mul.wide.u32 %rd12, %r0, {size}; add.s64 %rd12, %rd12, %rd{count + 1};")
    body.append(f"st.global.b{8 * size} [%rd12], {out};")
    given = [np.ascontiguousarray(inputs[i]) for i in range(count)]
    run("\n".join(body), *given, random, result, blocks=LANES // 32, target="sm_100a")
    want = np.zeros(LANES, np.uint64)
    for element in range(count):
        for lane in range(LANES):
            own = int(random[lane]) >> (32 // count * element) & ((1 << bits) - 1)
            code = expected(float(given[count - 1 - element][lane]), own, name, relu, finite)
            want[lane] |= np.uint64(code << (field * element))
    np.testing.assert_array_equal(result.astype(np.uint64), want)


def test_which_chips_have_random_bits() -> None:
    with pytest.raises(PtxError, match="sm_90a"):
        run("cvt.rs.f16x2.f32 %r1, %r2, %r3, %r4;", np.zeros(1), target="sm_90a")


UE5M3 = [math.ldexp((code & 7) + 8 * (code >> 3 > 0), max(code >> 3, 1) - 18) for code in range(255)]


def to_ue5m3(value: float, mode: str, finite: bool) -> int:
    size = abs(value)
    if math.isnan(size):
        return 0xFF
    if math.isinf(size):
        return 0xFE if finite else 0xFF
    below = max(code for code in range(255) if UE5M3[code] <= size)
    step = UE5M3[254] - UE5M3[253]
    above = UE5M3[below + 1] if below < 254 else UE5M3[254] + step
    rest, half = Fraction(size) - Fraction(UE5M3[below]), (Fraction(above) - Fraction(UE5M3[below])) / 2
    up = {"rz": False, "rp": rest > 0, "rn": rest > half or (rest == half and below % 2 == 1)}[mode]
    if below == 254 and (up or rest >= 2 * half):
        return 0xFE if finite or mode == "rz" else 0xFF
    return below + up


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("mode", ["rn", "rz", "rp"])
@pytest.mark.parametrize("source", ["f32", "f16x2", "bf16x2"])
def test_to_ue5m3(source: str, mode: str, finite: bool) -> None:
    rng = np.random.default_rng(3)
    made = np.exp2(rng.uniform(-20, 18, (2, LANES))) * rng.choice([-1, 1], (2, LANES))
    made[:, 64 : 64 + 255] = UE5M3
    made[:, 320:448] = (np.array(UE5M3[100:228]) + np.array(UE5M3[101:229])) / 2
    made[:, :8] = [0, -0.0, np.inf, -np.inf, np.nan, 114688, 118784, 122880]
    dtype = {"f32": np.float32, "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}[source]
    with np.errstate(over="ignore"):
        inputs = made.astype(dtype)
    result = np.zeros(LANES, np.uint16)
    opcode = f"cvt.{mode}{'.satfinite' if finite else ''}.ue5m3x2.{source}"
    head = "mov.u32 %r20, %ctaid.x; mad.lo.s32 %r0, %r20, 32, %r0; mul.wide.u32 %rd10, %r0, 4;\n"
    tail = "mul.wide.u32 %rd12, %r0, 2; add.s64 %rd12, %rd12, %rd{}; st.global.b16 [%rd12], %h1;"
    load = "add.s64 %rd11, %rd10, %rd{}; ld.global.b32 %r{}, [%rd11];"
    if source == "f32":
        body = f"{load.format(0, 1)} {load.format(1, 2)} {opcode} %h1, %r1, %r2; {tail.format(2)}"
        run(head + body, *map(np.ascontiguousarray, inputs), result, blocks=LANES // 32, target="sm_107a")
    else:
        pairs = np.ascontiguousarray(np.stack([inputs[1], inputs[0]], 1)).view(np.uint32)[:, 0].copy()
        body = f"{load.format(0, 1)} {opcode} %h1, %r1; {tail.format(1)}"
        run(head + body, pairs, result, blocks=LANES // 32, target="sm_107a")
    want = [to_ue5m3(float(a), mode, finite) << 8 | to_ue5m3(float(b), mode, finite) for a, b in inputs.T]
    np.testing.assert_array_equal(result, np.array(want, np.uint16))
