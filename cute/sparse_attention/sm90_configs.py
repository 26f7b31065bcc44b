"""Configurations of the Hopper kernel of sparse_attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from msa_ops.build.unit import Family
from msa_ops.registry import Code, Refusal
from msa_ops.registry.platform import Platform

PAGE = 128
HEAD_DIM = 128
ROWS = 16
"""Query heads of a KV head that one matrix product takes; fewer are padded."""
MAX_TOPK = 64
MAX_CLUSTER = 8
"""Thread blocks of a cluster, the portable maximum."""
ROW_BYTES = {"nvfp4": 64, "fp8": 128, "bf16": 256}
SCALE_BYTES = {"nvfp4": 8, "fp8": 0, "bf16": 0}
BF16, FP16, E4M3 = range(3)
"""Numbers of the dtypes of q."""


@dataclass(frozen=True)
class Config:
    """packed: K and V rows of a token side by side. warps: of a block. chunk: tokens that a warp takes at a time.

    stages: chunks of a warp in shared memory. blocks: thread blocks that a multiprocessor holds.
    side: tiles of 8 tokens whose products with K are made side by side.
    parts: blocks that share a pair are no cluster; each writes its part of the sums, which sm90_merge merges.
    any_q: q may be FP16 or E4M3, too; asking for its dtype costs time in small batches.
    """

    kv_format: str
    packed: bool
    warps: int
    chunk: int
    stages: int
    blocks: int
    side: int = 2
    any_q: bool = False
    parts: bool = False

    @property
    def name(self) -> str:
        layout = "packed" if self.packed else "planes"
        kind = ("_parts" if self.parts else "") + ("_any_q" if self.any_q else "")
        return f"{self.kv_format}_{layout}_w{self.warps}{kind}"

    @property
    def chunks_of_a_page(self) -> int:
        return PAGE // self.chunk

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


# Shared memory of a block: barriers; number of pages; factors of the rows' scores; list of pages; queries; for each
# warp the state of its 16 rows; what other blocks of the cluster send; rings.
# In the list, an entry is the address of a page (of its K and this head) and the number of its visible tokens.
EXCHANGE_AT = 512
COUNT_AT = 520
FACTORS_AT = 528
LIST_AT = FACTORS_AT + 4 * ROWS
QUERIES_AT = LIST_AT + 16 * MAX_TOPK
STATES_AT = QUERIES_AT + ROWS * HEAD_DIM * 2
STATE_BYTES = 2 * ROWS * 4
SUMS_BYTES = ROWS * HEAD_DIM * 4


def received_at(config: Config) -> int:
    """Statistics from all blocks of the cluster, then this block's share of their sums."""
    return STATES_AT + config.warps * STATE_BYTES


def rings_at(config: Config) -> int:
    end = received_at(config) + MAX_CLUSTER * STATE_BYTES + SUMS_BYTES
    return (end + 127) // 128 * 128


def shared_memory(config: Config) -> int:
    return rings_at(config) + config.warps * config.ring_bytes


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    if config.ring_bytes < SUMS_BYTES:
        yield Refusal(Code.ARGUMENT, f"a warp's ring is smaller than its sums, {SUMS_BYTES} bytes", "use more stages")


BF16_CONFIGS = (
    Config("nvfp4", False, warps=4, chunk=32, stages=4, blocks=2, side=4),
    Config("nvfp4", False, warps=4, chunk=32, stages=4, blocks=2, side=4, parts=True),
    Config("nvfp4", False, warps=8, chunk=16, stages=4, blocks=2),
    *(
        config
        for packed in (False, True)
        for config in (
            Config("fp8", packed, warps=4, chunk=32, stages=3, blocks=2),
            Config("fp8", packed, warps=8, chunk=16, stages=3, blocks=2),
            Config("bf16", packed, warps=4, chunk=16, stages=3, blocks=2),
            Config("bf16", packed, warps=8, chunk=16, stages=3, blocks=1),
        )
    ),
)
CONFIGS = BF16_CONFIGS + tuple(replace(config, any_q=True) for config in BF16_CONFIGS)

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
        "cluster",
        "q_dtype",
        "code_factor",
        "softmax_scale",
    ),
    configs=CONFIGS,
    supports=supports,
    shared_memory=shared_memory,
)
