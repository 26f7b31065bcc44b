"""Ends a block that went from page to page: merges the sums of a cluster's blocks in ascending order, and writes.

Lane 4 r + c of warp w has rows r and r + 8 and dims 32 w + 8 c to + 7: two pieces of four dims a row.
Piece ((2 i + j) 4 + w) 32 + lane is of row r + 8 i, dims from 32 w + 8 c + 4 j on.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.sparse_attention.combine import log_sum, normalised, pack_out, shares_of, weighted
from msa_ops.cute.sparse_attention.sm90_configs import HEAD_DIM, MAX_CLUSTER, ROWS
from msa_ops.cute.sparse_attention.sm90_pages_configs import EXCHANGE_AT, RECEIVED_AT, STATES_AT, TOTALS_AT, WARPS

INFINITY = float("inf")
PIECES = ROWS * HEAD_DIM // 4
STATISTICS_BYTES = 8 * ROWS


def expected_bytes(cluster: Int32) -> Int32:
    """What a block of a cluster receives: statistics of all rows from each block, and its share of the sums."""
    return cluster * STATISTICS_BYTES + 16 * PIECES


@cute.jit
def finish(
    shared: Int32,
    warp: Int32,
    lane: Int32,
    rank: Int32,
    cluster: Int32,
    first_row: Int32,
    group: Int32,
    sums: cute.Tensor,
    weights: cute.Tensor,
    v_scale: Int64,
    out: Int64,
    lse: Int64,
    q_dtype: Int32,
):
    """first_row: of the KV head in out and lse; group: its query heads."""
    store_totals(shared, warp, lane, weights)
    cute.arch.barrier()
    if cluster == 1:
        write_rows(shared, warp, lane, first_row, group, sums, v_scale, out, lse, q_dtype)
    else:
        bulk_copy.order_before_copies()
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()  # all blocks are done with what the others write over
        _send(shared, warp, lane, rank, cluster, sums)
        scale = _scale_of_values(v_scale)
        for index in cutlass.range(warp * 32 + lane, PIECES // cluster, 32 * WARPS, unroll=1):
            bulk_copy.barrier_wait(shared + EXCHANGE_AT, Int32(0))
            _finish_piece(shared, index, rank, cluster, first_row, group, scale, out, lse, q_dtype)


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
    """Writes the warp's dims of rows whose pages were all this block's."""
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


@cute.jit
def _send(shared: Int32, warp: Int32, lane: Int32, rank: Int32, cluster: Int32, sums: cute.Tensor):
    """Sends each block of the cluster its share of the sums, and the statistics."""
    received = shared + RECEIVED_AT
    exchange = shared + EXCHANGE_AT
    each = PIECES // cluster  # pieces that a block finishes
    for i in cutlass.range_constexpr(2):
        row = lane // 4 + 8 * i
        top, total = _statistics(shared, row)
        if Boolean(lane % 4 == 0) & Boolean(warp == 0):
            for r in cutlass.range(cluster, unroll=1):
                there = memory.map_to_rank(received + rank * STATISTICS_BYTES + row * 8, r)
                memory.send_f32x2(there, memory.map_to_rank(exchange, r), (top, total))
        for j in cutlass.range_constexpr(2):
            piece = ((2 * i + j) * WARPS + warp) * 32 + lane
            owner = piece // each
            place = received + STATISTICS_BYTES * MAX_CLUSTER + (rank * each + piece % each) * 16
            there = memory.map_to_rank(place, owner)
            memory.send_f32x4(there, memory.map_to_rank(exchange, owner), tuple(_piece(sums, i, j)))


@cute.jit
def _finish_piece(
    shared: Int32,
    index: Int32,
    rank: Int32,
    cluster: Int32,
    first_row: Int32,
    group: Int32,
    scale: Float32,
    out: Int64,
    lse: Int64,
    q_dtype: Int32,
):
    """Merges what the blocks of the cluster sent of one piece and writes it."""
    received = shared + RECEIVED_AT
    each = PIECES // cluster
    piece = rank * each + index
    lane = piece % 32
    row = lane // 4 + piece // 256 * 8
    tops, weights, parts = [], [], []
    for r in cutlass.range_constexpr(MAX_CLUSTER):
        exists = Int32(Int32(r) < cluster)
        place = received + r * STATISTICS_BYTES + row * 8
        top, weight = memory.load_shared_f32x2_if(place, exists, (Float32(-INFINITY), Float32(0.0)))
        tops.append(top)
        weights.append(weight)
        place = received + STATISTICS_BYTES * MAX_CLUSTER + (r * each + index) * 16
        parts.append(memory.load_shared_f32x4_if(place, exists))
    most, shares = shares_of(tops)
    total = weighted(shares, weights)
    if row < group:
        merged = [weighted(shares, [part[n] for part in parts]) for n in range(4)]
        dim = 32 * (piece // 32 % WARPS) + 8 * (lane % 4) + piece // 128 % 2 * 4
        _write(first_row + row, dim, merged, most, total, scale, out, lse, q_dtype)


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
