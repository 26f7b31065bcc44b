"""Loads and stores by integer address, as wide as the name says. Shared addresses are 32 bits wide."""

from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common.asm import asm


def load_shared_128(address: Int32) -> tuple:
    return asm("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", [Uint32] * 4, [address])


def load_shared_64(address: Int32) -> tuple:
    return asm("ld.shared.v2.b32 {$0, $1}, [$2];", [Uint32] * 2, [address])


def load_shared_32(address: Int32) -> Uint32:
    return asm("ld.shared.b32 $0, [$1];", [Uint32], [address])


def load_shared_16(address: Int32) -> Uint32:
    return asm("{ .reg .b16 low; ld.shared.b16 low, [$1]; cvt.u32.u16 $0, low; }", [Uint32], [address])


def load_shared_8(address: Int32) -> Uint32:
    return asm("ld.shared.u8 $0, [$1];", [Uint32], [address])


def load_shared_f32x4(address: Int32) -> tuple:
    return asm("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", [Float32] * 4, [address])


def load_shared_128_if(address: Int32, wanted: Int32) -> tuple:
    """Four words, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $5, 0; mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
        " @p ld.shared.v4.b32 {$0, $1, $2, $3}, [$4]; }",
        [Uint32] * 4,
        [address, wanted],
    )


def load_shared_f32x2(address: Int32) -> tuple:
    return asm("ld.shared.v2.f32 {$0, $1}, [$2];", [Float32] * 2, [address])


def load_shared_f32(address: Int32) -> Float32:
    return asm("ld.shared.f32 $0, [$1];", [Float32], [address])


def store_shared_f32x4(address: Int32, a: Float32, b: Float32, c: Float32, d: Float32) -> None:
    asm("st.shared.v4.f32 [$0], {$1, $2, $3, $4};", [], [address, a, b, c, d])


def store_shared_f32(address: Int32, value: Float32) -> None:
    asm("st.shared.f32 [$0], $1;", [], [address, value])


def load_shared_i64x2(address: Int32) -> tuple:
    return asm("ld.shared.v2.b64 {$0, $1}, [$2];", [Int64] * 2, [address])


def store_shared_i64x2(address: Int32, a: Int64, b: Int64) -> None:
    asm("st.shared.v2.b64 [$0], {$1, $2};", [], [address, a, b])


def store_shared_128(address: Int32, a: Uint32, b: Uint32, c: Uint32, d: Uint32) -> None:
    asm("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", [], [address, a, b, c, d])


def store_shared_64(address: Int32, a: Uint32, b: Uint32) -> None:
    asm("st.shared.v2.b32 [$0], {$1, $2};", [], [address, a, b])


def store_shared_32(address: Int32, value: Uint32) -> None:
    asm("st.shared.b32 [$0], $1;", [], [address, value])


def store_shared_i32(address: Int32, value: Int32) -> None:
    asm("st.shared.b32 [$0], $1;", [], [address, value])


def map_to_rank(address: Int32, rank: Int32) -> Int32:
    """Address of the same place in the shared memory of another block of the cluster."""
    return asm("mapa.shared::cluster.u32 $0, $1, $2;", [Int32], [address, rank])


def send_f32x4(address: Int32, barrier: Int32, values: tuple) -> None:
    """Stores to shared memory of a block of the cluster; its barrier counts the 16 bytes when they are there."""
    asm(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [$0], {$2, $3, $4, $5}, [$1];",
        [],
        [address, barrier, *values],
    )


def send_f32x2(address: Int32, barrier: Int32, values: tuple) -> None:
    """Likewise 8 bytes."""
    asm(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [$0], {$2, $3}, [$1];",
        [],
        [address, barrier, *values],
    )


def load_shared_f32x2_if(address: Int32, wanted: Int32, otherwise: tuple) -> tuple:
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $3, 0; mov.b32 $0, $4; mov.b32 $1, $5; @p ld.shared.v2.f32 {$0, $1}, [$2]; }",
        [Float32] * 2,
        [address, wanted, *otherwise],
    )


def load_shared_f32x4_if(address: Int32, wanted: Int32) -> tuple:
    """Four values, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $5, 0; mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
        " @p ld.shared.v4.f32 {$0, $1, $2, $3}, [$4]; }",
        [Float32] * 4,
        [address, wanted],
    )


def prefetch_global(address: Int64) -> None:
    """Brings the line to the L2 cache."""
    asm("prefetch.global.L2 [$0];", [], [address])


def load_global_128_if(address: Int64, wanted: Int32) -> tuple:
    """Four words, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $5, 0;"
        " mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
        " @p ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4]; }",
        [Uint32] * 4,
        [address, wanted],
    )


def load_global_64_if(address: Int64, wanted: Int32) -> tuple:
    """Two words, or zeros where `wanted` is 0."""
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $3, 0; mov.b32 $0, 0; mov.b32 $1, 0; @p ld.global.nc.v2.b32 {$0, $1}, [$2]; }",
        [Uint32] * 2,
        [address, wanted],
    )


def load_global_i32_if(address: Int64, wanted: Int32, otherwise: Int32) -> Int32:
    return asm(
        "{ .reg .pred p; setp.ne.b32 p, $2, 0; mov.b32 $0, $3; @p ld.global.nc.b32 $0, [$1]; }",
        [Int32],
        [address, wanted, otherwise],
    )


def load_global_i32(address: Int64) -> Int32:
    return asm("ld.global.nc.b32 $0, [$1];", [Int32], [address])


def load_global_f32(address: Int64) -> Float32:
    return asm("ld.global.nc.f32 $0, [$1];", [Float32], [address])


def store_global_128(address: Int64, a: Uint32, b: Uint32, c: Uint32, d: Uint32) -> None:
    asm("st.global.v4.b32 [$0], {$1, $2, $3, $4};", [], [address, a, b, c, d])


def store_global_64(address: Int64, a: Uint32, b: Uint32) -> None:
    asm("st.global.v2.b32 [$0], {$1, $2};", [], [address, a, b])


def store_global_32(address: Int64, value: Uint32) -> None:
    asm("st.global.b32 [$0], $1;", [], [address, value])


def store_global_f32(address: Int64, value: Float32) -> None:
    asm("st.global.f32 [$0], $1;", [], [address, value])


def store_global_f32_if(address: Int64, value: Float32, wanted: Int32) -> None:
    asm("{ .reg .pred p; setp.ne.b32 p, $2, 0; @p st.global.f32 [$0], $1; }", [], [address, value, wanted])
