"""Fills rows of scores with -inf, a thread block a row."""

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import streaming
from msa_ops.cute.indexer_prefill.sm90_clear_configs import Config

NOTHING = 0xFF800000
"""-inf in fp32."""


class ClearScoresSm90:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        scores: cute.Pointer,
        token_stride: Int64,
        head_stride: Int64,
        num_tokens: Int32,
        num_heads: Int32,
        width: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(scores, token_stride, head_stride, num_heads, width).launch(
            grid=(num_tokens * num_heads, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.threads, 1, 1),
            stream=stream,
        )

    @cute.kernel
    def kernel(self, scores: cute.Pointer, token_stride: Int64, head_stride: Int64, num_heads: Int32, width: Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        token = block // num_heads
        head = block - token * num_heads
        row = scores.toint() + (Int64(token) * token_stride + Int64(head) * head_stride) * 4
        nothing = Uint32(NOTHING)
        if (row & Int64(15)) == Int64(0) and width % 4 == 0:
            at = thread * 4
            while at < width:
                streaming.store_128(row + Int64(at) * 4, (nothing, nothing, nothing, nothing))
                at = at + 4 * self.config.threads
        else:
            at = thread + 0
            while at < width:
                streaming.store_32(row + Int64(at) * 4, nothing)
                at = at + self.config.threads


def trace(config: Config):
    """The launcher and what to trace it with."""
    pointer = make_ptr(Uint8, 16, cute.AddressSpace.gmem, assumed_align=4)
    return ClearScoresSm90(config), (pointer, Int64(0), Int64(0), Int32(0), Int32(0), Int32(0), make_fake_stream())
