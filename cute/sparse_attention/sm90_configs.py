"""Configurations of the Hopper kernel of sparse_attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Code, Refusal
from msa_ops.registry.platform import Platform

PAGE = 128
HEAD_DIM = 128
ROWS = 16
"""Query heads of a KV head that one matrix product takes; fewer are padded."""
MAX_TOPK = 64
MAX_SPLITS = 8
"""Thread blocks of a cluster, the portable maximum."""
ROW_BYTES = {"nvfp4": 64, "fp8": 128, "bf16": 256}
SCALE_BYTES = {"nvfp4": 8, "fp8": 0, "bf16": 0}


@dataclass(frozen=True)
class Config:
    """packed: K and V rows of a token side by side. warps: a block's. chunk: tokens that a warp takes at a time.

    stages: chunks of a warp in shared memory. blocks: thread blocks that a multiprocessor should hold.
    """

    kv_format: str
    packed: bool
    warps: int
    chunk: int
    stages: int
    blocks: int

    @property
    def name(self) -> str:
        return f"{self.kv_format}_{'packed' if self.packed else 'planes'}_w{self.warps}"

    @property
    def token_stride(self) -> int:
        """Bytes between tokens of K, and of V."""
        return ROW_BYTES[self.kv_format] * (2 if self.packed else 1)

    @property
    def stage_bytes(self) -> int:
        return self.chunk * 2 * (ROW_BYTES[self.kv_format] + SCALE_BYTES[self.kv_format])

    @property
    def chunks_of_a_warp(self) -> int:
        """Chunks of a page that fall to one warp."""
        return PAGE // (self.chunk * self.warps)


# Shared memory of a block: barriers | page list | statistics of the warps | the block's own sums | rings of the warps.
LIST_AT = 512
COUNT_AT = LIST_AT + 8 * MAX_TOPK
STATISTICS_AT = COUNT_AT + 128
SUMS_BYTES = ROWS * HEAD_DIM * 4


def sums_at(config: Config) -> int:
    """Maxima and weights of the 16 rows, then the unnormalised output."""
    return STATISTICS_AT + config.warps * 2 * ROWS * 4


def rings_at(config: Config) -> int:
    return sums_at(config) + 2 * ROWS * 4 + SUMS_BYTES


def shared_memory(config: Config) -> int:
    return rings_at(config) + config.warps * config.stages * config.stage_bytes


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    if config.stages * config.stage_bytes < SUMS_BYTES:
        yield Refusal(Code.ARGUMENT, f"a warp's ring is smaller than its sums, {SUMS_BYTES} bytes", "use more stages")


CONFIGS = (
    Config("nvfp4", False, warps=4, chunk=32, stages=3, blocks=3),
    Config("nvfp4", False, warps=8, chunk=16, stages=4, blocks=1),
    Config("fp8", False, warps=4, chunk=32, stages=3, blocks=2),
    Config("fp8", True, warps=4, chunk=32, stages=3, blocks=2),
    Config("bf16", False, warps=4, chunk=16, stages=3, blocks=2),
    Config("bf16", True, warps=4, chunk=16, stages=3, blocks=2),
)

FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.sparse_attention.sm90",
    archs=("sm_90a",),
    arguments=(
        "q",
        "kv_cache",
        "block_ids",
        "block_table",
        "seq_lens",
        "cu_seqlens_q",
        "k_scale",
        "v_scale",
        "out",
        "lse",
        "q_token_stride",
        "q_head_stride",
        "page_stride",
        "ids_token_stride",
        "ids_head_stride",
        "table_stride",
        "cache_policy",
        "tokens",
        "batch",
        "num_kv_heads",
        "group",
        "topk",
        "num_pages",
        "max_blocks",
        "head_stride",
        "scale_head_stride",
        "k_scale_offset",
        "v_offset",
        "v_scale_offset",
        "splits",
        "softmax_scale",
    ),
    configs=CONFIGS,
    supports=supports,
    shared_memory=shared_memory,
)
