"""Groups of 16-bit values, two a register: maximum, NaN test, and E2M1 codes without division.

For x in bf16 or fp16 and a step with the four significant bits of an E4M3 scale, a multiplication by the reciprocal
and one Newton correction give the code that IEEE division gives, for every x and every scale (checked exhaustively).
"""

from cutlass import Float32, Uint32
from msa_ops.cute.common.asm import asm

INFINITY = {"bf16x2": 0x7F80, "f16x2": 0x7C00}


def abs_pair(pair: Uint32) -> Uint32:
    return asm("and.b32 $0, $1, 0x7fff7fff;", [Uint32], [pair], pure=True)


def max_pair(a: Uint32, b: Uint32, kind: str) -> Uint32:
    """Lane-wise maximum, the number if one operand is NaN."""
    return asm(f"max.{kind} $0, $1, $2;", [Uint32], [a, b], pure=True)


def max_pair_nan(a: Uint32, b: Uint32, kind: str) -> Uint32:
    """Lane-wise maximum, NaN if one operand is NaN."""
    return asm(f"max.NaN.{kind} $0, $1, $2;", [Uint32], [a, b], pure=True)


def has_nan(pair: Uint32, kind: str) -> Uint32:
    """Not zero if a half of a non-negative pair is NaN, which as an integer lies above infinity."""
    return asm(
        "{ .reg .pred p, q; .reg .b32 a, b; and.b32 a, $1, 0xffff; shr.u32 b, $1, 16;"
        f" setp.gt.u32 p, a, {INFINITY[kind]}; setp.gt.or.u32 q, b, {INFINITY[kind]}, p; selp.b32 $0, 1, 0, q; }}",
        [Uint32],
        [pair],
        pure=True,
    )


def without_nan(pair: Uint32, kind: str) -> Uint32:
    """NaN halves become 0."""
    limit = INFINITY[kind]
    return asm(
        "{ .reg .pred p; .reg .b32 r, t; mov.b32 r, $1;"
        f" and.b32 t, r, 0x7fff; setp.gt.u32 p, t, {limit}; @p and.b32 r, r, 0xffff0000;"
        f" shr.u32 t, r, 16; and.b32 t, t, 0x7fff; setp.gt.u32 p, t, {limit}; @p and.b32 r, r, 0x0000ffff;"
        " mov.b32 $0, r; }",
        [Uint32],
        [pair],
        pure=True,
    )


def low(pair: Uint32, kind: str) -> Float32:
    """fp32 value of the lower half."""
    if kind == "bf16x2":
        return asm("shl.b32 $0, $1, 16;", [Float32], [pair], pure=True)
    return asm("{ .reg .b16 a, b; mov.b32 {a, b}, $1; cvt.f32.f16 $0, a; }", [Float32], [pair], pure=True)


def high(pair: Uint32, kind: str) -> Float32:
    """fp32 value of the upper half."""
    if kind == "bf16x2":
        return asm("and.b32 $0, $1, 0xffff0000;", [Float32], [pair], pure=True)
    return asm("{ .reg .b16 a, b; mov.b32 {a, b}, $1; cvt.f32.f16 $0, b; }", [Float32], [pair], pure=True)


BIAS = 254
"""What `magnitude_code` adds to a code, so that a caller can take it off eight codes at once."""


def magnitude_code(x: Float32, step: Float32, reciprocal: Float32, limit: Float32) -> Uint32:
    """E2M1 code of |x| / step, plus BIAS; `limit` is 6 step. x must not be NaN.

    Adding 2^22 times the power of two below the quotient (at least 1) leaves the quotient rounded to one mantissa bit,
    ties to even, in the low bits of the sum; their difference to the addend plus twice the exponent is the code.
    """
    return asm(
        "{ .reg .f32 m, q, e, big, y; .reg .b32 b, k, s;"
        " abs.f32 m, $1; min.f32 m, m, $4;"
        " mul.rn.f32 q, m, $3; neg.f32 e, $2; fma.rn.f32 e, q, e, m; fma.rn.f32 q, e, $3, q;"
        " mov.b32 b, q; and.b32 b, b, 0x7f800000; max.s32 b, b, 0x3f800000;"
        " add.s32 k, b, 0x0b000000; mov.b32 big, k; add.rn.f32 y, q, big;"
        " mov.b32 s, y; sub.s32 k, s, k; shr.u32 b, b, 22; add.s32 $0, k, b; }",
        [Uint32],
        [x, step, reciprocal, limit],
        pure=True,
    )


def signed(codes: Uint32, signs: Uint32) -> Uint32:
    """Eight codes of magnitudes with the sign bits 0x88888888 of `signs`, but for codes that are zero."""
    return asm(
        "{ .reg .b32 a, b, c; shl.b32 a, $1, 1; shl.b32 b, $1, 2; shl.b32 c, $1, 3; or.b32 a, a, b; or.b32 a, a, c;"
        " and.b32 a, a, $2; and.b32 a, a, 0x88888888; or.b32 $0, $1, a; }",
        [Uint32],
        [codes, signs],
        pure=True,
    )


def sign_bits(pair: Uint32) -> Uint32:
    """Signs of the halves at bits 3 and 7."""
    return asm(
        "{ .reg .b32 a, b; shr.u32 a, $1, 12; and.b32 a, a, 8; shr.u32 b, $1, 24; and.b32 b, b, 0x80;"
        " or.b32 $0, a, b; }",
        [Uint32],
        [pair],
        pure=True,
    )
