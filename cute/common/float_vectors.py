"""Vectors of floats in global memory, from one kernel to the next."""

from cutlass import Float32, Int32, Int64
from msa_ops.cute.common.asm import asm


def store_f32x2(address: Int64, a: Float32, b: Float32) -> None:
    asm("st.global.v2.f32 [$0], {$1, $2};", [], [address, a, b])


def store_f32x4(address: Int64, a: Float32, b: Float32, c: Float32, d: Float32) -> None:
    asm("st.global.v4.f32 [$0], {$1, $2, $3, $4};", [], [address, a, b, c, d])


def load_written_f32x2_if(address: Int64, wanted: Int32, otherwise: tuple) -> tuple:
    """Of what an earlier kernel wrote that may still have run when this one began: not from the first-level cache."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $3, 0; mov.b32 $0, $4; mov.b32 $1, $5;"
        " @p ld.relaxed.gpu.global.v2.f32 {$0, $1}, [$2]; }",
        [Float32] * 2,
        [address, wanted, *otherwise],
    )


def load_written_f32x4_if(address: Int64, wanted: Int32) -> tuple:
    """Likewise four values, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $5, 0; mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
        " @p ld.relaxed.gpu.global.v4.f32 {$0, $1, $2, $3}, [$4]; }",
        [Float32] * 4,
        [address, wanted],
    )
