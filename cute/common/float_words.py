"""Floats from and to packed words: pairs of 16-bit floats, E4M3 bytes, and eight E2M1 codes a word."""

from cutlass import Float32, Uint32
from msa_ops.cute.common.asm import asm

MAGIC = 0x4B400000
"""Bits of 1.5 * 2^23: adding that float leaves a small integer, rounded to nearest even, in the lowest bits."""


def bits_of(value: Float32) -> Uint32:
    return asm("mov.b32 $0, $1;", [Uint32], [value], pure=True)


def bf16x2_to_f32(word: Uint32) -> tuple:
    return (
        asm("{ .reg .b32 t; shl.b32 t, $1, 16; mov.b32 $0, t; }", [Float32], [word], pure=True),
        asm("{ .reg .b32 t; and.b32 t, $1, 0xffff0000; mov.b32 $0, t; }", [Float32], [word], pure=True),
    )


def f16x2_to_f32(word: Uint32) -> tuple:
    return asm(
        "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.f32.f16 $0, low; cvt.f32.f16 $1, high; }",
        [Float32, Float32],
        [word],
        pure=True,
    )


def f32_to_f32(word: Uint32) -> Float32:
    return asm("mov.b32 $0, $1;", [Float32], [word], pure=True)


def f32_to_bf16x2(low: Float32, high: Float32) -> Uint32:
    return asm("cvt.rn.bf16x2.f32 $0, $2, $1;", [Uint32], [low, high], pure=True)


def f32_to_f16x2(low: Float32, high: Float32) -> Uint32:
    return asm("cvt.rn.f16x2.f32 $0, $2, $1;", [Uint32], [low, high], pure=True)


def f32_to_e4m3x4(a: Float32, b: Float32, c: Float32, d: Float32) -> Uint32:
    """Four E4M3 bytes, `a` lowest: nearest even, saturating at 448, NaN gives 0x7F."""
    return asm(
        "{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, $2, $1; cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;"
        " mov.b32 $0, {low, high}; }",
        [Uint32],
        [a, b, c, d],
        pure=True,
    )


def fma(a: Float32, b: Float32, c: Float32) -> Float32:
    return asm("fma.rn.f32 $0, $1, $2, $3;", [Float32], [a, b, c], pure=True)


def mul(a: Float32, b: Float32) -> Float32:
    return asm("mul.rn.f32 $0, $1, $2;", [Float32], [a, b], pure=True)


def reciprocal_of_e4m3(step: Float32) -> Float32:
    """1 / step, rounded once, for a positive E4M3 number."""
    guess = asm("rcp.approx.ftz.f32 $0, $1;", [Float32], [step], pure=True)
    error = asm(
        "{ .reg .f32 t; neg.f32 t, $1; fma.rn.f32 $0, t, $2, 0f3F800000; }", [Float32], [guess, step], pure=True
    )
    return fma(guess, error, guess)


def sixth(value: Float32) -> Float32:
    """min(value, 4,096) / 6, rounded once, for a value from 0 on that is no NaN."""
    capped = asm("min.f32 $0, $1, 0f45800000;", [Float32], [value], pure=True)
    return divide_by_e4m3(capped, Float32(6.0), Float32(1 / 6))


def divide_by_e4m3(value: Float32, step: Float32, reciprocal: Float32) -> Float32:
    """|value| / step, rounded once, for a positive E4M3 number `step` and its rounded reciprocal; NaN stays NaN.

    From 4,096 on the quotient is that of 4,096, which is beyond what E2M1 holds. A quotient from a rounded reciprocal
    is made exact by its remainder (Markstein, IBM J. Res. Dev. 34, 1990). Quotients near the least normal number may
    be off; E2M1 rounds them to zero.
    """
    magnitude = asm("{ .reg .f32 t; abs.f32 t, $1; min.NaN.f32 $0, t, 0f45800000; }", [Float32], [value], pure=True)
    quotient = mul(magnitude, reciprocal)
    remainder = asm(
        "{ .reg .f32 t; neg.f32 t, $1; fma.rn.f32 $0, t, $2, $3; }",
        [Float32],
        [quotient, step, magnitude],
        pure=True,
    )
    return fma(remainder, reciprocal, quotient)


def e2m1_word(values, magnitudes) -> Uint32:
    """Eight E2M1 codes, the first in the low nibble: `magnitudes` rounded to nearest even, with the signs of `values`.

    Saturates at 6; NaN and what rounds to zero give 0, never -0. The grid is that of 1/2 below 2, of 1 below 4, of 2
    below 6, with codes that count on; on each part one of three roundings to integers is the code and the others are
    not less.
    """
    word = Uint32(0)
    signs = Uint32(0)
    for i in reversed(range(8)):
        code = asm(
            "{ .reg .f32 m, a, b, c; .reg .s32 i, j, k; max.f32 m, $1, 0f00000000; min.f32 m, m, 0f40C00000;"
            " fma.rn.f32 a, m, 0f40000000, 0f4B400000; add.rn.f32 b, m, 0f4B400002;"
            " fma.rn.f32 c, m, 0f3F000000, 0f4B400004; mov.b32 i, a; mov.b32 j, b; mov.b32 k, c;"
            " min.s32 i, i, j; min.s32 $0, i, k; }",
            [Uint32],
            [magnitudes[i]],
            pure=True,
        )
        word = word * Uint32(16) + code
        sign = bits_of(values[i]) & Uint32(0x80000000)
        signs = signs | (sign >> Uint32(28 - 4 * i))
    # Each code still holds the bits of the number that was added to round it.
    word = word - Uint32(sum(MAGIC << 4 * i for i in range(8)) & 0xFFFFFFFF)
    not_zero = (word + Uint32(0x77777777)) & Uint32(0x88888888)
    return word | (signs & not_zero)
