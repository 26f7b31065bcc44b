"""Arithmetic on pairs of 16-bit floats in one register, and the formats that become such pairs."""

from cutlass import Float32, Int32, Uint32
from msa_ops.cute.common.asm import asm


def prmt(a: Uint32, b: Uint32, selector: int) -> Uint32:
    """Bytes of (b, a): each hexadecimal digit of the selector, lowest first, names one; 0 to 3 are those of a."""
    return asm("prmt.b32 $0, $1, $2, " + hex(selector) + ";", [Uint32], [a, b], pure=True)


def mul_f16x2(a: Uint32, b: Uint32) -> Uint32:
    return asm("mul.rn.f16x2 $0, $1, $2;", [Uint32], [a, b], pure=True)


def both_low(pair: Uint32) -> Uint32:
    """The low half twice."""
    return asm("{ .reg .b16 low, high; mov.b32 {low, high}, $1; mov.b32 $0, {low, low}; }", [Uint32], [pair], pure=True)


def both_high(pair: Uint32) -> Uint32:
    """The high half twice."""
    return asm(
        "{ .reg .b16 low, high; mov.b32 {low, high}, $1; mov.b32 $0, {high, high}; }", [Uint32], [pair], pure=True
    )


def pack_f16x2(low: Float32, high: Float32) -> Uint32:
    return asm("cvt.rn.f16x2.f32 $0, $2, $1;", [Uint32], [low, high], pure=True)


def pack_bf16x2(low: Float32, high: Float32) -> Uint32:
    return asm("cvt.rn.bf16x2.f32 $0, $2, $1;", [Uint32], [low, high], pure=True)


def e4m3x2_to_f16x2(pair: Uint32) -> Uint32:
    """The two E4M3 bytes in the low half, exactly."""
    return asm(
        "{ .reg .b16 low, high; mov.b32 {low, high}, $1; cvt.rn.f16x2.e4m3x2 $0, low; }", [Uint32], [pair], pure=True
    )


def e4m3x4_to_f16x2(word: Uint32) -> tuple:
    """Bytes (0, 1) and bytes (2, 3), exactly."""
    return asm(
        "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high; }",
        [Uint32, Uint32],
        [word],
        pure=True,
    )


def e4m3x4_to_bf16x2(word: Uint32) -> tuple:
    """Bytes (0, 1) and bytes (2, 3), exactly."""
    return asm(
        "{ .reg .b16 low, high, a, b, c, d; .reg .b32 x, y; .reg .f32 p, q, r, s; mov.b32 {low, high}, $2;"
        " cvt.rn.f16x2.e4m3x2 x, low; cvt.rn.f16x2.e4m3x2 y, high; mov.b32 {a, b}, x; mov.b32 {c, d}, y;"
        " cvt.f32.f16 p, a; cvt.f32.f16 q, b; cvt.f32.f16 r, c; cvt.f32.f16 s, d;"
        " cvt.rn.bf16x2.f32 $0, q, p; cvt.rn.bf16x2.f32 $1, s, r; }",
        [Uint32, Uint32],
        [word],
        pure=True,
    )


E2M1_SHIFT = 14
"""`e2m1x8_to_f16x2` gives values times 2^-14."""


def e2m1x8_to_f16x2(word: Uint32) -> tuple:
    """Codes (0, 4), (1, 5), (2, 6), (3, 7) of a word as FP16 pairs, times 2^-14.

    The three magnitude bits of a code, put at the lowest exponent bits and the highest mantissa bit of an FP16 number,
    are 2^-14 times its value, also where that is 0.5 and the FP16 number subnormal. First all bytes that hold these
    bits and the sign are made, four at once, then each is put at the top of a half.
    """
    even = ((word << Uint32(1)) & Uint32(0x0E0E0E0E)) | ((word << Uint32(4)) & Uint32(0x80808080))
    odd = ((word >> Uint32(3)) & Uint32(0x0E0E0E0E)) | (word & Uint32(0x80808080))
    zero = Uint32(0)
    return prmt(even, zero, 0x2404), prmt(odd, zero, 0x2404), prmt(even, zero, 0x3414), prmt(odd, zero, 0x3414)


def e2m1x8_to_f16x2_by_products(word: Uint32, two: Int32, high_byte: Int32) -> tuple:
    """The same, with shifts as products by factors that the compiler does not know: they run beside the logic unit.

    two, high_byte: 2 and 256. Adding 0x70 to a doubled low code carries its sign from bit 4 into bit 7, where that of
    a high code stands already.
    """
    low = asm("mad.lo.u32 $0, $1, $2, 0x70707070;", [Uint32], [word & Uint32(0x0F0F0F0F), two], pure=True)
    high = word & Uint32(0xF0F0F0F0)
    shifted = high >> Uint32(3)
    first = asm("mul.lo.u32 $0, $1, $2;", [Uint32], [low, high_byte], pure=True) & Uint32(0x8E008E00)
    second = _bits_of_either(high, shifted, 0x008E008E)
    second = asm("mul.lo.u32 $0, $1, $2;", [Uint32], [second, high_byte], pure=True)
    return first, second, low & Uint32(0x8E008E00), _bits_of_either(high, shifted, 0x8E008E00)


def _bits_of_either(a: Uint32, b: Uint32, mask: int) -> Uint32:
    """(a | b) & mask in one instruction."""
    return asm("lop3.b32 $0, $1, $2, " + hex(mask) + ", 0xA8;", [Uint32], [a, b], pure=True)


def exp2(value: Float32) -> Float32:
    return asm("ex2.approx.ftz.f32 $0, $1;", [Float32], [value], pure=True)


def fma_f32(a: Float32, b: Float32, c: Float32) -> Float32:
    return asm("fma.rn.f32 $0, $1, $2, $3;", [Float32], [a, b, c], pure=True)


def log2(value: Float32) -> Float32:
    return asm("lg2.approx.f32 $0, $1;", [Float32], [value], pure=True)


def max_f32(a: Float32, b: Float32) -> Float32:
    """The number if one operand is NaN."""
    return asm("max.f32 $0, $1, $2;", [Float32], [a, b], pure=True)


def float_of_bits(bits: Int32) -> Float32:
    return asm("mov.b32 $0, $1;", [Float32], [bits], pure=True)


def bits_of_float(value: Float32) -> Uint32:
    return asm("mov.b32 $0, $1;", [Uint32], [value], pure=True)


def max_u16x2(a: Uint32, b: Uint32) -> Uint32:
    """Of unsigned 16-bit integers, half by half."""
    return asm("max.u16x2 $0, $1, $2;", [Uint32], [a, b], pure=True)
