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
    def mma(self) -> str:
        """Type of the operands of matrix products."""
        return "bf16" if self.kv_format == "bf16" else "f16"

    @property
    def row_bytes(self) -> int:
        """Of a token of K, or of V."""
        return ROW_BYTES[self.kv_format]

    @property
    def token_stride(self) -> int:
        """Bytes between tokens of K, and of V."""
        return self.row_bytes * (2 if self.packed else 1)

    @property
    def scale_bytes(self) -> int:
        """Of a token of K, or of V."""
        return SCALE_BYTES[self.kv_format]

    @property
    def v_at(self) -> int:
        """Where V begins in a chunk in shared memory. Behind it come the scales of K and of V."""
        return self.row_bytes if self.packed else self.chunk * self.row_bytes

    @property
    def k_scale_at(self) -> int:
        return 2 * self.chunk * self.row_bytes

    @property
    def v_scale_at(self) -> int:
        return self.k_scale_at + self.chunk * self.scale_bytes

    @property
    def stage_bytes(self) -> int:
        return self.chunk * 2 * (self.row_bytes + self.scale_bytes)

    @property
    def ring_bytes(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def chunks_of_a_warp(self) -> int:
        """Chunks of a page that fall to one warp."""
        return PAGE // (self.chunk * self.warps)


# Shared memory of a block. In the list, an entry is the address of a page (of its K and this head) and the number of
# its tokens that are visible, 8 bytes each. Of 16 rows each: maximum and sum of the weights, of a warp or of the block.
BARRIERS_AT = 0
COUNT_AT = 384
FACTORS_AT = 400  # of the rows' scores
LIST_AT = FACTORS_AT + 4 * ROWS + 48
QUERIES_AT = LIST_AT + 16 * MAX_TOPK
STATISTICS_BYTES = 2 * ROWS * 4
SUMS_BYTES = ROWS * HEAD_DIM * 4
STATISTICS_AT = QUERIES_AT + ROWS * HEAD_DIM * 2
SUMS_AT = STATISTICS_AT + STATISTICS_BYTES


def warp_statistics_at(warp: int) -> int:
    return SUMS_AT + SUMS_BYTES + warp * STATISTICS_BYTES


def rings_at(config: Config) -> int:
    return warp_statistics_at(config.warps)


def shared_memory(config: Config) -> int:
    return rings_at(config) + config.warps * config.ring_bytes


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    if config.ring_bytes < SUMS_BYTES:
        yield Refusal(Code.ARGUMENT, f"a warp's ring is smaller than its sums, {SUMS_BYTES} bytes", "use more stages")


CONFIGS = (
    Config("nvfp4", False, warps=4, chunk=32, stages=2, blocks=4),
    Config("nvfp4", False, warps=8, chunk=16, stages=4, blocks=2),
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
