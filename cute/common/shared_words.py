"""Wide stores to shared memory, and loads of what they stored."""

from cutlass import Int32, Int64
from msa_ops.cute.common.asm import asm


def store_shared_i32x4(address: Int32, a: Int32, b: Int32, c: Int32, d: Int32) -> None:
    asm("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", [], [address, a, b, c, d])


def store_shared_i64x2(address: Int32, a: Int64, b: Int64) -> None:
    asm("st.shared.v2.b64 [$0], {$1, $2};", [], [address, a, b])


def load_shared_i64(address: Int32) -> Int64:
    return asm("ld.shared.b64 $0, [$1];", [Int64], [address])
