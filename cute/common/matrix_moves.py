"""Moves of 8 x 8 matrices of 16-bit elements between shared memory and registers, and votes of a thread block.

Four matrices at a time; lane 8 m + i gives the address of row i of matrix m, 16 bytes. Of each matrix, lane 4 r + c has
elements 2c and 2c + 1 of row r; transposed, those of rows 2c and 2c + 1 in column r.
"""

from cutlass import Boolean, Int32, Uint32
from msa_ops.cute.common.asm import asm


def load_matrices(address: Int32) -> tuple:
    return asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", [Uint32] * 4, [address])


def load_matrices_transposed(address: Int32) -> tuple:
    return asm("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];", [Uint32] * 4, [address])


def store_matrices(address: Int32, a: Uint32, b: Uint32, c: Uint32, d: Uint32) -> None:
    asm("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", [], [address, a, b, c, d])


def any_thread(condition: Boolean) -> Int32:
    """A barrier of the thread block; 1 if the condition holds for any thread, else 0."""
    return asm(
        "{ .reg .pred mine, any; setp.ne.b32 mine, $1, 0; bar.red.or.pred any, 0, mine; selp.b32 $0, 1, 0, any; }",
        [Int32],
        [Int32(condition)],
    )


def any_thread_of(condition: Boolean, barrier: Int32, threads: int) -> Int32:
    """The same for some threads of the block, which meet at a barrier of that number."""
    return asm(
        "{ .reg .pred mine, any; setp.ne.b32 mine, $1, 0; bar.red.or.pred any, $2, "
        + str(threads)
        + ", mine; selp.b32 $0, 1, 0, any; }",
        [Int32],
        [Int32(condition), barrier],
    )
