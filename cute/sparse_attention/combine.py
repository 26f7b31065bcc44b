"""Merges the sums of a block's warps and of a cluster's blocks, each in ascending order, and writes the results.

Sums lie in shared memory as they lie in registers: 16 pieces of 4 dims for each lane 4 r + c; piece 8 i + 4 j + k is of
row r + 8 i, dims 32 c + 16 j + 4 k to + 3.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import select
from msa_ops.cute.sparse_attention.sm90_configs import (
    HEAD_DIM,
    MAX_SPLITS,
    ROWS,
    STATISTICS_AT,
    SUMS_AT,
    rings_at,
    warp_statistics_at,
)

INFINITY = float("inf")


@cute.jit
def store_warp(
    config: cutlass.Constexpr,
    shared: Int32,
    ring: Int32,
    warp: Int32,
    lane: Int32,
    state: Int32,
    sums: cute.Tensor,
    weight: cute.Tensor,
):
    """Puts a warp's sums into its own ring, which nothing uses any more. state: see SparseAttentionSm90."""
    top = [memory.load_shared_f32(state + 64 * i + 4) for i in range(2)]
    cute.arch.sync_warp()
    statistics = shared + warp_statistics_at(0) + warp * (8 * ROWS)
    for i in cutlass.range_constexpr(2):
        for offset in cutlass.range_constexpr(1, 3):
            weight[i] = weight[i] + cute.arch.shuffle_sync_bfly(weight[i], offset=offset)
        if lane % 4 == 0:
            place = statistics + (lane // 4 + 8 * i) * 4
            memory.store_shared_f32(place, top[i])
            memory.store_shared_f32(place + 4 * ROWS, weight[i])
        for j in cutlass.range_constexpr(2):
            for k in cutlass.range_constexpr(4):
                piece = [sums[4 * (4 * k + n) + 2 * i + j] for n in range(4)]
                memory.store_shared_f32x4(ring + ((8 * i + 4 * j + k) * 32 + lane) * 16, *piece)


@cute.jit
def finish(
    config: cutlass.Constexpr,
    shared: Int32,
    warp: Int32,
    lane: Int32,
    rank: Int32,
    splits: Int32,
    first_row: Int32,
    group: Int32,
    v_scale: Int64,
    out: Int64,
    lse: Int64,
):
    """After a barrier behind `store_warp`. first_row: of the KV head in out and lse; group: its query heads."""
    scale = Float32(1.0)
    if cutlass.const_expr(config.kv_format == "nvfp4"):
        scale = Float32(2.0**half.E2M1_SHIFT)
    if v_scale != Int64(0):
        scale = scale * memory.load_global_f32(v_scale)

    pieces = 16 // config.warps  # of a warp, all of the same row of a lane
    mine = warp * pieces
    row = lane // 4 + mine // 8 * 8
    statistics = shared + warp_statistics_at(0) + row * 4
    tops = [memory.load_shared_f32(statistics + w * 8 * ROWS) for w in range(config.warps)]
    weights = [memory.load_shared_f32(statistics + (w * 2 + 1) * 4 * ROWS) for w in range(config.warps)]
    most, shares = _shares(tops)
    total = _weighted(shares, weights)
    rings = shared + rings_at(config) + (mine * 32 + lane) * 16
    merged = []
    for k in cutlass.range_constexpr(pieces):
        found = [memory.load_shared_f32x4(rings + (w * config.ring_bytes + k * 512)) for w in range(config.warps)]
        merged.append([_weighted(shares, [part[n] for part in found]) for n in range(4)])

    first_of_row = Boolean(lane % 4 == 0) & Boolean(mine % 8 == 0)
    if splits == 1:
        if row < group:
            factor = scale / total
            place = out + Int64(first_row + row) * (2 * HEAD_DIM)
            for k in cutlass.range_constexpr(pieces // 2):
                both = [_normalised(x, total, factor) for x in merged[2 * k] + merged[2 * k + 1]]
                dim = 32 * (lane % 4) + (mine + 2 * k) % 8 * 4
                memory.store_global_128(
                    place + Int64(2 * dim), *[half.pack_bf16x2(both[2 * n], both[2 * n + 1]) for n in range(4)]
                )
            if first_of_row:
                memory.store_global_f32(lse + Int64(first_row + row) * 4, _log_sum(most, total))
    else:
        if first_of_row:
            memory.store_shared_f32(shared + STATISTICS_AT + row * 4, most)
            memory.store_shared_f32(shared + STATISTICS_AT + (ROWS + row) * 4, total)
        for k in cutlass.range_constexpr(pieces):
            memory.store_shared_f32x4(shared + SUMS_AT + ((mine + k) * 32 + lane) * 16, *merged[k])
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        share = ROWS * HEAD_DIM // 2 // splits  # pairs of values that this block finishes
        for index in cutlass.range(warp * 32 + lane, share, 32 * config.warps, unroll=1):
            _finish_pair(rank * share + index, shared, splits, first_row, group, scale, out, lse)
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()  # nobody may leave while others read its sums


@cute.jit
def _finish_pair(
    pair: Int32,
    shared: Int32,
    splits: Int32,
    first_row: Int32,
    group: Int32,
    scale: Float32,
    out: Int64,
    lse: Int64,
):
    """Merges two neighbouring values of all blocks of the cluster and writes them."""
    piece = pair // 64
    lane = pair // 2 % 32
    row = lane // 4 + piece // 8 * 8
    dim = 32 * (lane % 4) + piece % 8 * 4 + pair % 2 * 2
    statistics = shared + STATISTICS_AT + row * 4
    ranks = range(MAX_SPLITS)
    tops = [memory.load_cluster_f32_if(statistics, r, splits, -INFINITY) for r in ranks]
    weights = [memory.load_cluster_f32_if(statistics + 4 * ROWS, r, splits, 0.0) for r in ranks]
    sums = [memory.load_cluster_f32x2_if(shared + SUMS_AT + pair * 8, r, splits) for r in ranks]
    most, shares = _shares(tops)
    total = _weighted(shares, weights)
    if row < group:
        factor = scale / total
        low, high = (_normalised(_weighted(shares, [part[n] for part in sums]), total, factor) for n in range(2))
        memory.store_global_32(
            out + Int64(first_row + row) * (2 * HEAD_DIM) + Int64(2 * dim), half.pack_bf16x2(low, high)
        )
        if dim == 0:
            memory.store_global_f32(lse + Int64(first_row + row) * 4, _log_sum(most, total))


def _shares(tops: list) -> tuple:
    """The largest maximum, and by what the sums that were taken with each are to be multiplied; 0 for sums of nothing."""
    most = tops[0]
    for top in tops[1:]:
        most = half.max_f32(most, top)
    shares = []
    for top in tops:
        share = select(top == most, Float32(1.0), half.exp2(top - most))
        shares.append(select(top == Float32(-INFINITY), Float32(0.0), share))
    return most, shares


def _weighted(shares: list, values: list) -> Float32:
    total = shares[0] * values[0]
    for share, value in zip(shares[1:], values[1:], strict=True):
        total = half.fma_f32(share, value, total)
    return total


def _normalised(value: Float32, total: Float32, factor: Float32) -> Float32:
    return select(total == Float32(0.0), Float32(0.0), value * factor)


def _log_sum(most: Float32, total: Float32) -> Float32:
    value = (half.log2(total) + most) * Float32(math.log(2.0))
    return select(total == Float32(0.0), Float32(-INFINITY), value)
