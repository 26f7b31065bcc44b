"""Floats as unsigned integers of the same order, so that an atomic maximum in shared memory compares them."""

from cutlass import Float32, Int32, Uint32
from msa_ops.cute.common.asm import asm


def key(value: Float32) -> Uint32:
    """Of a number; more than 0."""
    return asm(
        "{ .reg .b32 bits, flip; mov.b32 bits, $1; shr.s32 flip, bits, 31; or.b32 flip, flip, 0x80000000;"
        " xor.b32 $0, bits, flip; }",
        [Uint32],
        [value],
        pure=True,
    )


def value(key: Uint32) -> Float32:
    """The number of a key."""
    return asm(
        "{ .reg .b32 bits, flip; not.b32 flip, $1; shr.s32 flip, flip, 31; or.b32 flip, flip, 0x80000000;"
        " xor.b32 bits, $1, flip; mov.b32 $0, bits; }",
        [Float32],
        [key],
        pure=True,
    )


def max_shared(address: Int32, key: Uint32) -> None:
    """Shared memory keeps the larger key; the order of callers does not matter."""
    asm("red.shared.max.u32 [$0], $1;", [], [address, key])
