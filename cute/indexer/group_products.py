"""Products of a warpgroup, m64nNk16 with fp32 sums: keys in registers, queries in shared memory.

Queries of N columns (a multiple of 8) are the second operand without a swizzle: for each step of 16 dims and each 8
columns two blocks of 128 bytes, dims 0 to 7 of the step and dims 8 to 15, in which a column takes 16 bytes. Lane
4 g + t's word of column g, as the product of a warp m16n8k16 has it, so lies at 4 x lane of a block.

Sums: number 4 j + 2 i + k of lane 4 r + c of warp w is row 16 w + r + 8 i, column 8 j + 2 c + k. What a product reads
and writes must not be touched before `finish`.
"""

from collections.abc import Sequence

from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common.warpgroup_asm import descriptor, on_sums

STEPS = 8
BLOCK = 128
"""Bytes of 8 dims of 8 columns."""


def bytes_of(columns: int) -> int:
    return columns * 256


def offset(columns: int, step: int, tile: int, half: int) -> int:
    """Of the block with 8 dims of 8 columns."""
    return step * (columns * 32) + tile * (2 * BLOCK) + half * BLOCK


def operand(upper: Sequence[Uint32], lower: Sequence[Uint32]) -> list[Uint32]:
    """The first operand's registers from those of a lane's two keys, two a step each."""
    words = []
    for step in range(STEPS):
        words += [upper[2 * step], lower[2 * step], upper[2 * step + 1], lower[2 * step + 1]]
    return words


def descriptors(address: Int32, columns: int) -> list[Int64]:
    """Of each step's queries: blocks of the same columns 128 bytes apart, of the next 8 columns 256."""
    first = descriptor(address, BLOCK, 2 * BLOCK)
    return [first + Int64(offset(columns, step, 0, 0) // 16) for step in range(STEPS)]


def start(kind: str, columns: int, keys: Sequence[Uint32], queries: Sequence[Int64]) -> tuple:
    """Starts the product of 64 keys (4 registers a step) with the queries of a descriptor. Gives the N / 2 sums."""
    sums = columns // 2
    of_sums = "{" + ", ".join(f"${i}" for i in range(sums)) + "}"
    at_queries = sums + 4 * STEPS
    opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}"
    text = ["{ .reg .b64 b; .reg .pred more, first; setp.eq.b32 more, 0, 0; setp.ne.b32 first, 0, 0;"]
    text.append("wgmma.fence.sync.aligned;")
    for step in range(STEPS):
        words = ", ".join(f"${sums + 4 * step + i}" for i in range(4))
        text.append(f"{opcode} {of_sums}, {{{words}}}, ${at_queries + step}, {'more' if step else 'first'}, 1, 1, 0;")
    text.append("wgmma.commit_group.sync.aligned; }")
    return on_sums(" ".join(text), sums, [*keys, *queries])


def finish(sums: Sequence[Float32], newer: int = 0) -> tuple:
    """Waits for all products but the `newer` newest; the sums as they are then."""
    return on_sums(f"wgmma.wait_group.sync.aligned {newer};", sums)
