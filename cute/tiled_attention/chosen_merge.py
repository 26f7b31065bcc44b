"""Merges the sums of the blocks of a cluster, in ascending order, for tiles whose pages they divided among them.

Each block finishes some tokens of the tile and gets their sums from all. Of a token, a warp holds 16 pieces of 4 sums
for each lane 4 r + c, as the product leaves them: piece j is of rows r and r + 8, columns 8 j + 2 c and the next.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.sparse_attention.combine import shares_of, weighted
from msa_ops.cute.tiled_attention import results
from msa_ops.cute.tiled_attention.chosen_layout import (
    EXCHANGE_AT,
    MAX_CLUSTER,
    STATISTICS_BYTES,
    TOKEN_BYTES,
    TOKENS,
)

INFINITY = float("inf")
PIECES = 16
EXPECTED_BYTES = TOKENS * (TOKEN_BYTES + STATISTICS_BYTES)
"""What a block of a cluster receives: of its share of the tokens, from each block."""


@cute.jit
def send(
    config: cutlass.Constexpr,
    shared: Int32,
    slot: Int32,
    lane: Int32,
    rank: Int32,
    cluster: Int32,
    sums: cute.Tensor,
    top: cute.Tensor,
    weight: cute.Tensor,
):
    """Sends token `slot` to the block that finishes it. All blocks must be done with what is written over there."""
    each = TOKENS // cluster  # tokens that a block finishes
    owner = slot // each
    place = rank * each + slot % each
    barrier = memory.map_to_rank(shared + EXCHANGE_AT, owner)
    statistics = memory.map_to_rank(shared + config.statistics_at, owner) + place * STATISTICS_BYTES
    target = memory.map_to_rank(shared + config.received_at, owner) + place * TOKEN_BYTES + lane * 16
    for i in cutlass.range_constexpr(2):
        if lane % 4 == 0:
            memory.send_f32x2(statistics + (lane // 4 + 8 * i) * 8, barrier, (top[i], weight[i]))
    for j in cutlass.range_constexpr(PIECES):
        memory.send_f32x4(target + 512 * j, barrier, tuple(sums[4 * j + i] for i in range(4)))


@cute.jit
def finish(
    config: cutlass.Constexpr,
    shared: Int32,
    warp: Int32,
    lane: Int32,
    rank: Int32,
    cluster: Int32,
    scale: Float32,
    out: Int64,
    lse: Int64,
    token_rows: Int32,
    count: Int32,
    group: Int32,
):
    """One of 8 warps: merges some pieces of one of the block's tokens and writes them.

    out, lse: of the KV head's first row of token 0 of the tile; token_rows: rows from a token to the next; group: query
    heads.
    """
    each = TOKENS // cluster
    index = warp // cluster
    token = rank * each + index
    share = PIECES // cluster  # pieces of this warp
    begin = warp % cluster * share
    column = lane % 4
    bulk_copy.barrier_wait(shared + EXCHANGE_AT, Int32(0))
    of_token = shared + config.received_at + index * TOKEN_BYTES + lane * 16
    statistics = shared + config.statistics_at + index * STATISTICS_BYTES
    shares, totals, factors = [], [], []
    for i in cutlass.range_constexpr(2):
        tops, weights = [], []
        for r in cutlass.range_constexpr(MAX_CLUSTER):
            exists = Int32(Int32(r) < cluster)
            place = statistics + r * each * STATISTICS_BYTES + (lane // 4 + 8 * i) * 8
            top, weight = memory.load_shared_f32x2_if(place, exists, (Float32(-INFINITY), Float32(0.0)))
            tops.append(top)
            weights.append(weight)
        most, of_row = shares_of(tops)
        total = weighted(of_row, weights)
        shares.append(of_row)
        totals.append((most, total))
        factors.append(results.factor_of(scale, total))
    rows = Int32(0)
    if token < count:
        rows = group
    first = Int64(token) * Int64(token_rows)
    merged = cute.make_rmem_tensor(cute.make_layout((4,)), Float32)
    for n in cutlass.range(share, unroll=1):
        j = begin + n
        parts = []
        for r in cutlass.range_constexpr(MAX_CLUSTER):
            place = of_token + r * each * TOKEN_BYTES + j * 512
            parts.append(memory.load_shared_f32x4_if(place, Int32(Int32(r) < cluster)))
        for i in cutlass.range_constexpr(4):
            merged[i] = weighted(shares[i // 2], [part[i] for part in parts])
        for i in cutlass.range_constexpr(2):
            row = lane // 4 + 8 * i
            word, dim = results.natural_pair(config, merged, 2 * i, factors[i], column)
            if row < rows:
                memory.store_global_32(out + (first + Int64(row)) * 256 + Int64(16 * j + dim * 2), word)
    for i in cutlass.range_constexpr(2):
        row = lane // 4 + 8 * i
        if Boolean(begin == 0) & Boolean(column == 0) & Boolean(row < rows):
            value = results.log_sum(*totals[i])
            memory.store_global_f32(lse + (first + Int64(row)) * 4, value)
