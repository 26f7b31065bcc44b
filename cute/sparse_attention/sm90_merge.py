"""Merges what blocks of sm90.py wrote of the same pair of a query token and a KV head, in ascending order.

A thread has four dims of a row, a piece as combine.py divides them.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import float_vectors
from msa_ops.cute.sparse_attention.combine import PIECES, scale_of_values, shares_of, weighted, write
from msa_ops.cute.sparse_attention.sm90_configs import STATE_BYTES, SUMS_BYTES
from msa_ops.cute.sparse_attention.sm90_merge_configs import FAMILY, MAX_PARTS, THREADS, Config

INFINITY = float("inf")
BLOCKS = PIECES // THREADS
"""Of a pair."""


class MergePartsSm90:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        sums: cute.Pointer,
        statistics: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        pairs: Int32,
        parts: Int32,
        group: Int32,
        q_dtype: Int32,
        stream: cuda.CUstream,
    ):
        """sums: [pairs, parts, SUMS_BYTES]; statistics: [pairs, parts, STATE_BYTES], maximum and weight of each row.

        out, lse: rows of all pairs, `group` each.
        """
        self.kernel(sums, statistics, v_scale, out, lse, parts, group, q_dtype).launch(
            grid=(pairs * BLOCKS, 1, 1),
            block=(THREADS, 1, 1),
            preferred_smem_carveout=100,  # as the kernel before, or its multiprocessors would take no block early
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(
        self,
        sums: cute.Pointer,
        statistics: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        parts: Int32,
        group: Int32,
        q_dtype: Int32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        pair = block // BLOCKS
        piece = block % BLOCKS * THREADS + thread
        lane = piece % 32
        row = lane // 4 + piece // 256 * 8
        first = pair * parts
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        tops, weights, found = [], [], []
        for i in cutlass.range_constexpr(MAX_PARTS):
            exists = Int32(Int32(i) < parts)
            place = statistics.toint() + (Int64(first + i) * STATE_BYTES + Int64(8 * row))
            top, weight = float_vectors.load_written_f32x2_if(place, exists, (Float32(-INFINITY), Float32(0.0)))
            tops.append(top)
            weights.append(weight)
            place = sums.toint() + (Int64(first + i) * SUMS_BYTES + Int64(16 * piece))
            found.append(float_vectors.load_written_f32x4_if(place, exists))
        scale = scale_of_values(self.config.kv_format, v_scale.toint())
        most, shares = shares_of(tops)
        total = weighted(shares, weights)
        if row < group:
            merged = [weighted(shares, [part[n] for part in found]) for n in range(4)]
            row_of_all = pair * group + row
            write(row_of_all, lane, piece // 32, merged, most, total, scale, out.toint(), lse.toint(), q_dtype)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    pointers = {name: make_ptr(Uint8, 16, gmem, assumed_align=16) for name in ("sums", "statistics", "out")}
    pointers |= {name: make_ptr(Uint8, 16, gmem, assumed_align=4) for name in ("v_scale", "lse")}
    arguments = [pointers.get(name, Int32(0)) for name in FAMILY.arguments]
    return MergePartsSm90(config), (*arguments, make_fake_stream())
