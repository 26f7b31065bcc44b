"""Matrix products of a warpgroup, m64n128k16 with fp32 sums: operands in shared memory, or A in registers.

Operands in shared memory are panels of 128-byte rows, with the 16-byte units of row r permuted by `unit ^ (r % 8)`; a
panel starts at a multiple of 1,024. A row holds 64 numbers: of A and of a K-major B along the 128 that are summed over
(panel 0 the first 64), of an N-major B along the 128 columns.

Sums: warp w holds rows 16 w to 16 w + 15 as the warp's own product m16n8k16 does: number 4 j + 2 i + k of lane 4 r + c
is row r + 8 i, column 8 j + 2 c + k. Rows of A in registers are those of that product as well, four words a step.
What a product reads and writes must not be touched before `finish`.
"""

from collections.abc import Sequence

from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common.warpgroup_asm import SWIZZLE_128, descriptor, on_sums

ROW_BYTES = 128
SUMS = 64
STEPS = 8
"""Products of 16 that make the 128 numbers summed over."""
_GROUP = 8 * ROW_BYTES


def along_rows(address: Int32) -> Int64:
    """Descriptor of an operand whose rows lie along the sum: A, or a K-major B."""
    return descriptor(address, 16, _GROUP, SWIZZLE_128)


def across_rows(address: Int32, rows: int) -> Int64:
    """Descriptor of a B of `rows` rows to be summed over, whose columns lie along the rows."""
    return descriptor(address, rows * ROW_BYTES, _GROUP, SWIZZLE_128)


def _along_step(step: int, rows: int) -> int:
    """By what the address in a descriptor grows (units of 16 bytes) from step 0, for panels of `rows` rows."""
    return (step // 4 * rows * ROW_BYTES + step % 4 * 32) // 16


_ALL_SUMS = "{" + ", ".join(f"${i}" for i in range(SUMS)) + "}"


def _opcode(kind: str) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n128k16.f32.{kind}.{kind}"


def start_product(kind: str, a: Int64, b: Int64, a_rows: int, b_rows: int) -> tuple:
    """Starts A B^T for 128 columns and a sum over 128; `kind` is "f16" or "bf16". Returns the 64 sums."""
    text = ["{ .reg .b64 a, b; .reg .pred more, first; setp.eq.b32 more, 0, 0; setp.ne.b32 first, 0, 0;"]
    text.append("wgmma.fence.sync.aligned;")
    for step in range(STEPS):
        text.append(f"add.s64 a, ${SUMS}, {_along_step(step, a_rows)};")
        text.append(f"add.s64 b, ${SUMS + 1}, {_along_step(step, b_rows)};")
        text.append(f"{_opcode(kind)} {_ALL_SUMS}, a, b, {'more' if step else 'first'}, 1, 1, 0, 0;")
    text.append("wgmma.commit_group.sync.aligned; }")
    return on_sums(" ".join(text), SUMS, [a, b])


def start_product_of_registers(kind: str, sums: Sequence[Float32] | None, a: Sequence[Uint32], b: Int64) -> tuple:
    """Starts sums + A B, or A B, for A [64, 128] in registers (4 words for each 16 columns) and 128 rows of B."""
    first_a = SUMS if sums is None else 2 * SUMS
    at_b = first_a + 4 * STEPS
    text = ["{ .reg .b64 b; .reg .pred more, first; setp.eq.b32 more, 0, 0; setp.ne.b32 first, 0, 0;"]
    text.append("wgmma.fence.sync.aligned;")
    for step in range(STEPS):
        words = ", ".join(f"${first_a + 4 * step + i}" for i in range(4))
        text.append(f"add.s64 b, ${at_b}, {step * 16 * ROW_BYTES // 16};")
        text.append(f"{_opcode(kind)} {_ALL_SUMS}, {{{words}}}, b, {'more' if step or sums else 'first'}, 1, 1, 1;")
    text.append("wgmma.commit_group.sync.aligned; }")
    return on_sums(" ".join(text), SUMS if sums is None else sums, [*a, b])


def finish(sums: Sequence[Float32], newer: int = 0) -> tuple:
    """Waits for all products but the `newer` newest; the sums as they are then."""
    return on_sums(f"wgmma.wait_group.sync.aligned {newer};", sums)
