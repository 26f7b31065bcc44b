"""What the matrix products of a warpgroup share: descriptors of operands in shared memory, inline PTX on fp32 sums."""

from collections.abc import Sequence

from cutlass import Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

SWIZZLE_128 = 1
"""The swizzle of a descriptor: the 16-byte units of a row of 128 bytes are permuted by `unit ^ (row % 8)`."""
_CONSTRAINT = {Int64: "l", Uint32: "r", Int32: "r"}


def descriptor(address: Int32, leading_bytes: int, stride_bytes: int, swizzle: int = 0) -> Int64:
    """Of an operand at a shared address. PTX ISA, "Asynchronous warpgroup level matrix shared memory layout"."""
    fixed = swizzle << 62 | (stride_bytes >> 4) << 32 | (leading_bytes >> 4) << 16
    return Int64((address & Int32(0x3FFFF)) >> 4) | Int64(fixed)


@dsl_user_op
def on_sums(text: str, sums: Sequence[Float32] | int, operands: Sequence = (), *, loc=None, ip=None) -> tuple:
    """Inline PTX with sums $0, $1, ... that are read and written, or so many that are only written; then the operands.

    Sums that are only written share no register with an operand, which a later step of the text may need.
    """
    values: list = []
    if isinstance(sums, int):
        count = sums
        constraints = ["=&f"] * count
    else:
        count = len(sums)
        constraints = ["=f"] * count + [str(i) for i in range(count)]
        values += sums
    constraints += [_CONSTRAINT[type(operand)] for operand in operands] + ["~{memory}"]
    values += operands
    found = llvm.inline_asm(
        llvm.StructType.get_literal([T.f32()] * count),
        [value.ir_value(loc=loc, ip=ip) for value in values],
        text,
        ",".join(constraints),
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    return tuple(Float32(llvm.extractvalue(T.f32(), found, [i], loc=loc, ip=ip)) for i in range(count))
