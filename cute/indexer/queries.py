"""Index queries as the second operand of the matrix products: 8 columns of (query token, head) pairs each.

Lane 4 g + t holds column g, and of each step the dims that keys.dims names for t.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from msa_ops.cute.indexer import atoms, keys


def first_dim(index_format: str, t: Int32, group: int) -> Int32:
    """The first of the eight consecutive dims that lane t holds for steps 2 group and 2 group + 1."""
    if index_format == "nvfp4":
        return t * 32 + 8 * group
    if index_format == "fp8":
        return t * 16 + (64 * (group // 2) + 8 * (group % 2))
    return t * 8 + 32 * group


@cute.jit
def load_eight(address: Int64, dim: Int32, is_fp8: Int32, into: cute.Tensor):
    """Eight consecutive values of a query as four registers of bf16."""
    if is_fp8 != 0:
        low, high = atoms.ldg_constant_u32x2(address + Int64(dim))
        into[0], into[1] = keys.decode_e4m3(low)
        into[2], into[3] = keys.decode_e4m3(high)
    else:
        into[0], into[1], into[2], into[3] = atoms.ldg_constant_u32x4(address + Int64(dim) * 2)


@cute.jit
def load_column(
    index_format: cutlass.Constexpr,
    address: Int64,
    is_fp8: Int32,
    t: Int32,
    operand: cute.Tensor,
    at: cutlass.Constexpr,
):
    """Fills operand[at : at + 16] with a lane's share of the query at `address`; zeros if that is 0."""
    four = cute.make_rmem_tensor(cute.make_layout((4,)), Uint32)
    for group in cutlass.range_constexpr(keys.STEPS // 2):
        for i in cutlass.range_constexpr(4):
            four[i] = Uint32(0)
        if address != Int64(0):
            load_eight(address, first_dim(index_format, t, group), is_fp8, four)
        into = at + 4 * group
        if cutlass.const_expr(index_format == "nvfp4"):
            # Of dims 0 to 7: (0, 4), (1, 5), then (2, 6), (3, 7), the order in which codes leave their word.
            for pair in cutlass.range_constexpr(2):
                operand[into + 2 * pair] = atoms.permute(four[pair], four[pair + 2], 0x5410)
                operand[into + 2 * pair + 1] = atoms.permute(four[pair], four[pair + 2], 0x7632)
        else:
            for i in cutlass.range_constexpr(4):
                operand[into + i] = four[i]
