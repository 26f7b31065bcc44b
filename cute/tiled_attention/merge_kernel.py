"""Merges parts of attention results, in their order: a thread block for each query token and KV head.

A part is what msa_ops.cute.tiled_attention.results.write_part writes. Parts with a logarithm of minus infinity hold
nothing and are not read.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import float_words, memory
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common.asm import asm, select
from msa_ops.cute.tiled_attention.layout import HEADS, IN_PARTS, PART_BYTES, PART_LSE_BYTES
from msa_ops.cute.tiled_attention.merge_layout import ARGUMENTS, THREADS, Config, shared_memory

INFINITY = float("inf")
AT_ONCE = 8


class Merge:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        partial_out: cute.Pointer,
        partial_lse: cute.Pointer,
        ways: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        tokens: Int32,
        num_kv_heads: Int32,
        head_begin: Int32,
        all_kv_heads: Int32,
        group: Int32,
        parts: Int32,
        stream: cuda.CUstream,
    ):
        """Parts of KV heads `head_begin` to + num_kv_heads of all_kv_heads, each with `group` query heads.

        partial_out, partial_lse: [tokens, num_kv_heads, parts, 16 rows]. ways: None, or int32 [tokens, all_kv_heads];
        then only tokens with the number IN_PARTS are merged.
        """
        self.kernel(
            partial_out,
            partial_lse,
            ways,
            v_scale,
            out,
            lse,
            num_kv_heads,
            head_begin,
            all_kv_heads,
            group,
            parts,
        ).launch(
            grid=(tokens * num_kv_heads, 1, 1),
            block=(THREADS, 1, 1),
            smem=shared_memory(self.config),
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        partial_out: cute.Pointer,
        partial_lse: cute.Pointer,
        ways: cute.Pointer,
        v_scale: cute.Pointer,
        out: cute.Pointer,
        lse: cute.Pointer,
        num_kv_heads: Int32,
        head_begin: Int32,
        all_kv_heads: Int32,
        group: Int32,
        parts: Int32,
    ):
        config = self.config
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        row = thread // 16
        column = thread % 16
        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        wanted = Boolean(True)
        token = block // num_kv_heads
        head = head_begin + block % num_kv_heads
        row_of_all = Int64(token) * Int64(all_kv_heads) + Int64(head)
        if ways.toint() != Int64(0):
            wanted = memory.load_global_i32(ways.toint() + row_of_all * 4) == IN_PARTS
        if wanted:
            logs = partial_lse.toint() + Int64(block) * Int64(parts) * PART_LSE_BYTES + Int64(row) * 4
            most = Float32(-INFINITY)
            for first in cutlass.range(0, parts, AT_ONCE, unroll=1):
                for i in cutlass.range_constexpr(AT_ONCE):
                    exists = Int32(Boolean(first + i < parts) & Boolean(row < group))
                    most = half.max_f32(most, self.log_of(logs, first + i, exists))
            source = partial_out.toint() + Int64(block) * Int64(parts) * PART_BYTES + Int64(thread * 16)
            total = Float32(0.0)
            sums = cute.make_rmem_tensor(cute.make_layout((8,)), Float32)
            sums.fill(0.0)
            for first in cutlass.range(0, parts, AT_ONCE, unroll=1):
                shares, words = [], []
                for i in cutlass.range_constexpr(AT_ONCE):
                    exists = Int32(Boolean(first + i < parts) & Boolean(row < group))
                    top = self.log_of(logs, first + i, exists)
                    nothing = top == Float32(-INFINITY)
                    share = select(top == most, Float32(1.0), half.exp2(top - most))
                    shares.append(select(nothing, Float32(0.0), share))
                    exists = select(nothing, Int32(0), exists)
                    words.append(memory.load_global_128_if(source + Int64(first + i) * PART_BYTES, exists))
                for i in cutlass.range_constexpr(AT_ONCE):
                    total = total + shares[i]
                    for j in cutlass.range_constexpr(4):
                        pair = self.unpack(words[i][j])
                        sums[2 * j] = half.fma_f32(shares[i], pair[0], sums[2 * j])
                        sums[2 * j + 1] = half.fma_f32(shares[i], pair[1], sums[2 * j + 1])
            scale = Float32(1.0)
            if cutlass.const_expr(config.kv_format == "nvfp4"):
                scale = Float32(2.0**half.E2M1_SHIFT)
            if v_scale.toint() != Int64(0):
                scale = scale * memory.load_global_f32(v_scale.toint())
            factor = select(total == Float32(0.0), Float32(0.0), scale / total)
            for j in cutlass.range_constexpr(4):
                word = half.pack_bf16x2(sums[2 * j] * factor, sums[2 * j + 1] * factor)
                at = shared + row * 256 + (column // 4 * 4 + j) * 16
                if cutlass.const_expr(config.kv_format == "nvfp4"):
                    self.store_halves(at + column % 4 * 2, word)
                else:
                    asm("st.shared.b32 [$0], $1;", [], [at + column % 4 * 4, word])
            cute.arch.barrier()
            target = row_of_all * Int64(group) + Int64(row)
            if row < group:
                words = memory.load_shared_128(shared + thread * 16)
                memory.store_global_128(out.toint() + target * 256 + Int64(column * 16), *words)
                if column == 0:
                    value = (half.log2(total) + most) * Float32(math.log(2.0))
                    value = select(total == Float32(0.0), Float32(-INFINITY), value)
                    memory.store_global_f32(lse.toint() + target * 4, value)

    def log_of(self, logs: Int64, part: Int32, exists: Int32) -> Float32:
        return asm(
            "{ .reg .pred p; setp.ne.b32 p, $2, 0; mov.b32 $0, $3; @p ld.global.nc.f32 $0, [$1]; }",
            [Float32],
            [logs + Int64(part) * PART_LSE_BYTES, exists, Float32(-INFINITY)],
        )

    def unpack(self, word: Uint32) -> tuple:
        if self.config.kv_format == "bf16":
            return float_words.bf16x2_to_f32(word)
        return float_words.f16x2_to_f32(word)

    def store_halves(self, at: Int32, word: Uint32) -> None:
        """The low half is dim c of eight, the high one dim c + 4."""
        asm(
            "{ .reg .b16 low, high; mov.b32 {low, high}, $1; st.shared.b16 [$0], low; st.shared.b16 [$0 + 8], high; }",
            [],
            [at, word],
        )


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    values = {
        "out": pointer(BFloat16, 16),
        "partial_out": pointer(Uint8, 16),
        "ways": pointer(Int32, 4),
        **{name: pointer(Float32, 4) for name in ("partial_lse", "v_scale", "lse")},
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return Merge(config), (*arguments, make_fake_stream())


assert THREADS == 16 * HEADS
