"""Scalar operations whose rounding is part of a contract, as PTX says it and not as a compiler may relax it."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Uint16, Uint32


@cute.jit
def div_rn(a: Float32, b: Float32) -> Float32:
    """IEEE division, nearest even, subnormals kept."""
    return cute.arch.inline_ptx("div.rn.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[a, b])


@cute.jit
def max_f32(a: Float32, b: Float32) -> Float32:
    """The number if one operand is NaN."""
    return cute.arch.inline_ptx("max.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[a, b])


@cute.jit
def min_f32(a: Float32, b: Float32) -> Float32:
    """The number if one operand is NaN."""
    return cute.arch.inline_ptx("min.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[a, b])


@cute.jit
def abs_f32(a: Float32) -> Float32:
    return cute.arch.inline_ptx("abs.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[a])


@cute.jit
def to_e4m3(a: Float32) -> Uint32:
    """E4M3 byte, nearest even, saturating at 448."""
    pair = cute.arch.inline_ptx(
        "cvt.rn.satfinite.e4m3x2.f32 {$w0}, {$r0}, {$r1};",
        write_only_types=[Uint16],
        read_only_args=[Float32(0.0), a],
    )
    return Uint32(pair) & Uint32(0xFF)


@cute.jit
def from_e4m3(byte: Uint32) -> Float32:
    """Value of an E4M3 byte."""
    return cute.arch.inline_ptx(
        "{ .reg .b32 pair; .reg .b16 low, high; cvt.rn.f16x2.e4m3x2 pair, {$r0}; mov.b32 {low, high}, pair;"
        " cvt.f32.f16 {$w0}, low; }",
        write_only_types=[Float32],
        read_only_args=[Uint16(byte)],
    )


@cute.jit
def to_e2m1(a: Float32) -> Uint32:
    """E2M1 code, nearest even, saturating at 6; 0 for NaN and for what rounds to zero (never -0).

    From 1 on, E2M1 keeps one mantissa bit: add just under half of what is cut off, plus the lowest kept bit. Below 1
    the grid is that of halves: twice the value, rounded to an integer.
    """
    magnitude = min_f32(abs_f32(a), Float32(6.0))  # NaN becomes 6 here, and 0 below
    bits = cute.arch.inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Uint32], read_only_args=[magnitude])
    rounded = (bits + Uint32(0x1FFFFF) + ((bits >> Uint32(22)) & Uint32(1))) >> Uint32(22)
    above_one = rounded - Uint32(252)  # 1.0 is 254 and has code 2
    below_one = cute.arch.inline_ptx(
        "cvt.rni.u32.f32 {$w0}, {$r0};", write_only_types=[Uint32], read_only_args=[magnitude * Float32(2.0)]
    )
    code = above_one if magnitude >= Float32(1.0) else below_one
    code = code if a == a else Uint32(0)
    negative = cutlass.Boolean(a < Float32(0.0)) & cutlass.Boolean(code > Uint32(0))
    return (code | Uint32(8)) if negative else code
