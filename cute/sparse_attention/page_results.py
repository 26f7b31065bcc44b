"""The results of four warps that went from page to page: their sums over the sums of weights, written to memory.

Lane 4 r + c of warp w has rows r and r + 8 and dims 32 w + 8 c to + 7: two pieces of four dims a row.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import memory
from msa_ops.cute.sparse_attention.combine import log_sum, normalised, pack_out
from msa_ops.cute.sparse_attention.sm90_configs import HEAD_DIM, ROWS
from msa_ops.cute.sparse_attention.sm90_pages_configs import STATES_AT, TOTALS_AT, WARPS


@cute.jit
def store_totals(shared: Int32, warp: Int32, lane: Int32, weights: cute.Tensor):
    """Puts the sums of the warp's weights where all warps find them behind a barrier."""
    for i in cutlass.range_constexpr(2):
        for offset in cutlass.range_constexpr(1, 3):
            weights[i] = weights[i] + cute.arch.shuffle_sync_bfly(weights[i], offset=offset)
        if lane % 4 == 0:
            place = shared + TOTALS_AT + warp * (4 * ROWS) + (lane // 4 + 8 * i) * 4
            memory.store_shared_f32(place, weights[i])


@cute.jit
def write_rows(
    shared: Int32,
    warp: Int32,
    lane: Int32,
    first_row: Int32,
    group: Int32,
    sums: cute.Tensor,
    v_scale: Int64,
    out: Int64,
    lse: Int64,
    q_dtype: Int32,
):
    """Writes the warp's dims. first_row: of the KV head in out and lse; group: its query heads."""
    scale = _scale_of_values(v_scale)
    for i in cutlass.range_constexpr(2):
        row = lane // 4 + 8 * i
        top, total = _statistics(shared, row)
        if row < group:
            for j in cutlass.range_constexpr(2):
                dim = 32 * warp + 8 * (lane % 4) + 4 * j
                _write(first_row + row, dim, _piece(sums, i, j), top, total, scale, out, lse, q_dtype)


@cute.jit
def _scale_of_values(v_scale: Int64) -> Float32:
    scale = Float32(2.0**half.E2M1_SHIFT)
    if v_scale != Int64(0):
        scale = scale * memory.load_global_f32(v_scale)
    return scale


def _statistics(shared: Int32, row: Int32) -> tuple:
    """What weights of the row are relative to, and their sum."""
    totals = shared + TOTALS_AT + row * 4
    of_warps = [memory.load_shared_f32(totals + 4 * ROWS * w) for w in range(WARPS)]
    _, top = memory.load_shared_f32x2(shared + STATES_AT + row * 8)
    return top, (of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3])


def _piece(sums: cute.Tensor, i: int, j: int) -> list:
    return [sums[4 * n + 2 * i + j] for n in range(4)]


def _write(row: Int32, dim: Int32, sums: list, most, total, scale, out: Int64, lse: Int64, q_dtype: Int32):
    """Writes four dims of a row of the results, and with the first ones the row's lse."""
    factor = scale / total
    values = [normalised(value, total, factor) for value in sums]
    memory.store_global_64(
        out + Int64(row) * (2 * HEAD_DIM) + Int64(2 * dim),
        pack_out(values[0], values[1], q_dtype),
        pack_out(values[2], values[3], q_dtype),
    )
    memory.store_global_f32_if(lse + Int64(row) * 4, log_sum(most, total), Int32(dim == 0))
