"""Merges the sums of a block's warps and of a cluster's blocks, each in ascending order, and writes the results.

Sums lie in shared memory as they lie in registers: 16 pieces of 4 dims for each lane 4 r + c; piece 8 i + 4 j + k is of
row r + 8 i, dims 32 c + 16 j + 4 k to + 3.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32
from msa_ops.cute.common import bulk_copy, float_vectors, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common.asm import select
from msa_ops.cute.sparse_attention.sm90_configs import (
    EXCHANGE_AT,
    FP16,
    HEAD_DIM,
    MAX_CLUSTER,
    STATE_BYTES,
    STATES_AT,
    SUMS_BYTES,
    received_at,
    rings_at,
)

INFINITY = float("inf")
PIECES = SUMS_BYTES // 16


@cute.jit
def store_warp(lane: Int32, ring: Int32, state: Int32, sums: cute.Tensor, weight: cute.Tensor):
    """Puts a warp's sums into its own ring, which nothing uses any more, and its statistics into its state.

    The state of a row was (factor, maximum) and becomes (maximum, sum of weights).
    """
    place = state + lane // 4 * 8
    top = [memory.load_shared_f32(place + 64 * i + 4) for i in range(2)]
    cute.arch.sync_warp()
    for i in cutlass.range_constexpr(2):
        for offset in cutlass.range_constexpr(1, 3):
            weight[i] = weight[i] + cute.arch.shuffle_sync_bfly(weight[i], offset=offset)
        if lane % 4 == 0:
            memory.store_shared_f32(place + 64 * i, top[i])
            memory.store_shared_f32(place + 64 * i + 4, weight[i])
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
    cluster: Int32,
    pair: Int32,
    group: Int32,
    v_scale: Int64,
    out: Int64,
    lse: Int64,
    q_dtype: Int32,
):
    """After a barrier behind `store_warp`. pair: of token and KV head, in out and lse; group: query heads of it."""
    if cutlass.const_expr(not config.parts):
        scale = scale_of_values(config.kv_format, v_scale)
    share = 16 // config.warps  # pieces of a lane
    mine = warp * share
    row = lane // 4 + mine // 8 * 8
    states = shared + STATES_AT + row * 8
    statistics = [memory.load_shared_f32x2(states + w * STATE_BYTES) for w in range(config.warps)]
    most, shares = shares_of([top for top, _ in statistics])
    total = weighted(shares, [weight for _, weight in statistics])
    rings = shared + rings_at(config) + (mine * 32 + lane) * 16
    merged = []
    for k in cutlass.range_constexpr(share):
        found = [memory.load_shared_f32x4(rings + (w * config.ring_bytes + k * 512)) for w in range(config.warps)]
        merged.append([weighted(shares, [part[n] for part in found]) for n in range(4)])

    first_row = pair * group
    if cutlass.const_expr(config.parts):
        part = Int64(pair * cluster + rank)
        if Boolean(lane % 4 == 0) & Boolean(mine % 8 == 0):
            float_vectors.store_f32x2(lse + (part * STATE_BYTES + Int64(row * 8)), most, total)
        for k in cutlass.range_constexpr(share):
            float_vectors.store_f32x4(out + (part * SUMS_BYTES + Int64(((mine + k) * 32 + lane) * 16)), *merged[k])
    elif cluster == 1:
        if row < group:
            for k in cutlass.range_constexpr(share):
                write(first_row + row, lane, mine + k, merged[k], most, total, scale, out, lse, q_dtype)
    else:
        cute.arch.cluster_wait()  # for the blocks' arrival when their barriers were ready
        received = shared + received_at(config)
        barrier = shared + EXCHANGE_AT
        if Boolean(lane % 4 == 0) & Boolean(mine % 8 == 0):
            for r in cutlass.range(cluster, unroll=1):
                there = memory.map_to_rank(received + rank * STATE_BYTES + row * 8, r)
                memory.send_f32x2(there, memory.map_to_rank(barrier, r), (most, total))
        sums = received + MAX_CLUSTER * STATE_BYTES
        each = PIECES // cluster  # pieces that a block finishes
        for k in cutlass.range_constexpr(share):
            piece = (mine + k) * 32 + lane
            owner = piece // each
            there = memory.map_to_rank(sums + (rank * each + piece % each) * 16, owner)
            memory.send_f32x4(there, memory.map_to_rank(barrier, owner), tuple(merged[k]))
        for index in cutlass.range(warp * 32 + lane, each, 32 * config.warps, unroll=1):
            bulk_copy.barrier_wait(barrier, Int32(0))
            _finish_piece(received, index, rank, cluster, first_row, group, scale, out, lse, q_dtype)


def expected_bytes(cluster: Int32) -> Int32:
    """What a block of a cluster receives."""
    return cluster * STATE_BYTES + SUMS_BYTES


@cute.jit
def _finish_piece(
    received: Int32,
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
    each = PIECES // cluster
    piece = rank * each + index
    lane = piece % 32
    row = lane // 4 + piece // 256 * 8
    ranks = range(MAX_CLUSTER)
    tops, weights, parts = [], [], []
    for r in ranks:
        exists = Int32(Int32(r) < cluster)
        nothing = (Float32(-INFINITY), Float32(0.0))
        top, weight = memory.load_shared_f32x2_if(received + r * STATE_BYTES + row * 8, exists, nothing)
        tops.append(top)
        weights.append(weight)
        place = received + MAX_CLUSTER * STATE_BYTES + (r * each + index) * 16
        parts.append(memory.load_shared_f32x4_if(place, exists))
    most, shares = shares_of(tops)
    total = weighted(shares, weights)
    if row < group:
        merged = [weighted(shares, [part[n] for part in parts]) for n in range(4)]
        write(first_row + row, lane, piece // 32, merged, most, total, scale, out, lse, q_dtype)


@cute.jit
def scale_of_values(kv_format: cutlass.Constexpr, v_scale: Int64) -> Float32:
    """By what sums of products with V are to be multiplied; v_scale: 0, or the address of another factor."""
    scale = Float32(1.0)
    if cutlass.const_expr(kv_format == "nvfp4"):
        scale = Float32(2.0**half.E2M1_SHIFT)
    if v_scale != Int64(0):
        scale = scale * memory.load_global_f32(v_scale)
    return scale


def write(
    row: Int32, lane: Int32, piece: Int32, sums: list, most, total, scale, out: Int64, lse: Int64, q_dtype: Int32
):
    """Writes a piece of a row of the results, and with the first one the row's lse."""
    factor = scale / total
    values = [normalised(value, total, factor) for value in sums]
    dim = 32 * (lane % 4) + piece % 8 * 4
    memory.store_global_64(
        out + Int64(row) * (2 * HEAD_DIM) + Int64(2 * dim),
        pack_out(values[0], values[1], q_dtype),
        pack_out(values[2], values[3], q_dtype),
    )
    memory.store_global_f32_if(lse + Int64(row) * 4, log_sum(most, total), Int32(dim == 0))


def pack_out(low: Float32, high: Float32, q_dtype: Int32) -> Uint32:
    """Two results: FP16 if q is, else BF16."""
    return select(q_dtype == FP16, half.pack_f16x2(low, high), half.pack_bf16x2(low, high))


def shares_of(tops: list) -> tuple:
    """The largest maximum, and by what sums that were taken with each are to be multiplied; 0 for sums of nothing."""
    most = tops[0]
    for top in tops[1:]:
        most = half.max_f32(most, top)
    shares = []
    for top in tops:
        share = select(top == most, Float32(1.0), half.exp2(top - most))
        shares.append(select(top == Float32(-INFINITY), Float32(0.0), share))
    return most, shares


def weighted(shares: list, values: list) -> Float32:
    total = shares[0] * values[0]
    for share, value in zip(shares[1:], values[1:], strict=True):
        total = half.fma_f32(share, value, total)
    return total


def normalised(value: Float32, total: Float32, factor: Float32) -> Float32:
    return select(total == Float32(0.0), Float32(0.0), value * factor)


def log_sum(most: Float32, total: Float32) -> Float32:
    value = (half.log2(total) + most) * Float32(math.log(2.0))
    return select(total == Float32(0.0), Float32(-INFINITY), value)
