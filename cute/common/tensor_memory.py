"""Tensor memory and the matrix instructions of Blackwell (tcgen05), by name. Addresses are integers.

An address in tensor memory has the lane in its upper and the column in its lower half. Each warp of four reaches the
32 lanes of its place, warp index modulo four.
"""

from cutlass import Int32, Int64, Uint32
from msa_ops.cute.common.asm import asm

ROW_OF_8 = 8 * 128
"""Bytes of eight rows of 128 bytes, the unit in which rows are swizzled."""


def allocate(target: Int32, columns: int) -> None:
    """All lanes of one warp; the address comes to shared memory at `target`."""
    asm(f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], {columns};", [], [target])


def allocate_no_more() -> None:
    asm("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", [])


def free(address: Int32, columns: int) -> None:
    asm(f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, {columns};", [], [address])


def fence_before_sync() -> None:
    """Before a barrier by which other threads learn of this thread's accesses to tensor memory."""
    asm("tcgen05.fence::before_thread_sync;", [])


def fence_after_sync() -> None:
    """After such a barrier."""
    asm("tcgen05.fence::after_thread_sync;", [])


def store(address: Int32, words) -> None:
    """32-bit words of each lane to columns from `address` on; complete when it returns."""
    count = len(words)
    registers = ", ".join(f"${i + 1}" for i in range(count))
    asm(f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [$0], {{{registers}}};", [], [address, *words])
    asm("tcgen05.wait::st.sync.aligned;", [])


def load(address: Int32, count: int):
    """`count` columns of each lane, as words that are there when it returns."""
    registers = ", ".join(f"${i}" for i in range(count))
    return asm(
        f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{registers}}}, [${count}]; tcgen05.wait::ld.sync.aligned;",
        [Uint32] * count,
        [address],
    )


def instruction_e4m3(rows: int, columns: int) -> int:
    """Descriptor of a product of E4M3 operands, both with the summed dimension last, to fp32."""
    return 1 << 4 | columns // 8 << 17 | rows // 16 << 24


def matrix_swizzled(address: Int32) -> Int64:
    """Descriptor of rows of 128 bytes in shared memory, swizzled by 128 bytes; `address` a multiple of 1,024."""
    constant = 1 << 16 | ROW_OF_8 // 16 << 32 | 1 << 46 | 2 << 61
    return Int64((address >> 4) & 0x3FFF) | Int64(constant)


def multiply_e4m3(sums: Int32, left: Int32, right: Int64, instruction: int, add: bool) -> None:
    """sums (+)= left right^T over 32 dims; left in tensor memory. By one thread; the result comes later."""
    asm(
        "{ .reg .pred add; setp.ne.b32 add, $4, 0; tcgen05.mma.cta_group::1.kind::f8f6f4 [$0], [$1], $2, $3, add; }",
        [],
        [sums, left, right, Int32(instruction), Int32(add)],
    )


def commit(barrier: Int32) -> None:
    """The barrier in shared memory gets an arrival when all products issued by this thread are done."""
    asm("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];", [], [barrier])
