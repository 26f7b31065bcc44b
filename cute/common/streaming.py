"""Global loads of data that is read once, and stores of narrow words."""

from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common.asm import asm


def load_once_128(address: Int64) -> tuple:
    """Four words that no other thread reads: they take no place in the first-level cache."""
    return asm("ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];", [Uint32] * 4, [address])


def load_f32x4(address: Int64) -> tuple:
    return asm("ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];", [Float32] * 4, [address])


def load_f32(address: Int64) -> Float32:
    return asm("ld.global.nc.f32 $0, [$1];", [Float32], [address])


def load_u16(address: Int64) -> Uint32:
    return asm("{ .reg .b16 low; ld.global.nc.b16 low, [$1]; cvt.u32.u16 $0, low; }", [Uint32], [address])


def load_i32(address: Int64) -> Int32:
    return asm("ld.global.nc.b32 $0, [$1];", [Int32], [address])


def load_i64(address: Int64) -> Int64:
    return asm("ld.global.nc.b64 $0, [$1];", [Int64], [address])


def store_128(address: Int64, words) -> None:
    asm("st.global.v4.b32 [$0], {$1, $2, $3, $4};", [], [address, *words])


def store_64(address: Int64, words) -> None:
    asm("st.global.v2.b32 [$0], {$1, $2};", [], [address, *words])


def store_32(address: Int64, word: Uint32) -> None:
    asm("st.global.b32 [$0], $1;", [], [address, word])


def store_8(address: Int64, word: Uint32) -> None:
    """The low byte."""
    asm("{ .reg .b16 low; cvt.u16.u32 low, $1; st.global.b8 [$0], low; }", [], [address, word])
