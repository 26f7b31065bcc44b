"""Configurations of the Hopper kernel of attention over tiles of query tokens, and its shared memory. Pure Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.registry import Code, Refusal
from msa_ops.registry.platform import Platform

PAGE = 128
HEAD_DIM = 128
HEADS = 16
"""Query heads of a KV head, rows of a token; fewer are padded."""
TOKENS_OF_GROUP = 4
"""Query tokens of a warpgroup, one for each warp."""
MAX_TOPK = 64
MAX_BLOCKS = 65_536
"""Of a block table of sparse_attention: there is a byte for each in shared memory."""
STAGES = 2
ROW_BYTES = {"nvfp4": 64, "fp8": 128, "bf16": 256}
SCALE_BYTES = {"nvfp4": 8, "fp8": 0, "bf16": 0}
WAYS = {"nvfp4": "registers", "fp8": "bulk", "bf16": "threads"}
PRODUCERS = 128
"""Threads that bring pages in."""
OPERAND_BYTES = PAGE * HEAD_DIM * 2
"""K or V of a page in 16-bit numbers."""
QUERY_BYTES = 64 * HEAD_DIM * 2
"""The rows of q of a warpgroup in 16-bit numbers."""

PART_BYTES = HEADS * HEAD_DIM * 2
"""A part of a token's result for a KV head, in 16-bit numbers."""
PART_LSE_BYTES = HEADS * 4
WHOLE, IN_PARTS = 1, 2
"""How the tokens of a tile of sparse_attention are worked on: over the tile's blocks, or block by block."""

# Shared memory: barriers; what the tile is; for each stage what the page is; factors of rows; barriers of raw bytes;
# queries; K; V; raw bytes of pages.
HEADER_AT = 64
RECORDS_AT = 128
RECORD_BYTES = 32
FACTORS_AT = 256
RAW_BARRIERS_AT = 768
TURNS_AT = 1536
QUERIES_AT = 2048


@dataclass(frozen=True)
class Config:
    """groups: warpgroups that multiply, each with tokens of its own; with `alternate` the same tokens and every second
    page.
    """

    kv_format: str
    groups: int
    alternate: bool = False

    @property
    def name(self) -> str:
        return f"tiles_{self.kv_format}_{'a' if self.alternate else 'g'}{self.groups}"

    @property
    def mma(self) -> str:
        """Type of the operands of matrix products."""
        return "bf16" if self.kv_format == "bf16" else "f16"

    @property
    def tokens(self) -> int:
        """Query tokens of a tile."""
        return TOKENS_OF_GROUP * (1 if self.alternate else self.groups)

    @property
    def threads(self) -> int:
        return PRODUCERS + 128 * self.groups

    @property
    def row_bytes(self) -> int:
        """Of a token of K, or of V."""
        return ROW_BYTES[self.kv_format]

    @property
    def way(self) -> str:
        """How raw bytes come to the threads that unpack them: see msa_ops.cute.tiled_attention.pages."""
        return WAYS[self.kv_format]

    @property
    def slot_bytes(self) -> int:
        """Bytes in shared memory for raw K or V of 32 tokens."""
        return 32 * (self.row_bytes + SCALE_BYTES[self.kv_format]) if self.way == "bulk" else 0

    @property
    def ahead(self) -> int:
        """How many items ahead bulk copies are started."""
        return 2 if self.way == "bulk" else 0

    @property
    def raw_slots(self) -> int:
        """Slots of a warp, for K and V of as many items as are under way."""
        return 2 * self.ahead

    @property
    def k_at(self) -> int:
        return QUERIES_AT + self.groups * QUERY_BYTES

    @property
    def v_at(self) -> int:
        return self.k_at + STAGES * OPERAND_BYTES

    @property
    def raw_at(self) -> int:
        return self.v_at + STAGES * OPERAND_BYTES


def shared_memory(config: Config) -> int:
    return config.raw_at + PRODUCERS // 32 * config.raw_slots * config.slot_bytes


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    if config.tokens > 8:
        yield Refusal(Code.ARGUMENT, f"{config.tokens} tokens a tile; accepted: up to 8", "use fewer warpgroups")


ARGUMENTS = (
    "q",
    "kv_cache",
    "block_table",
    "seq_lens",
    "cu_seqlens_q",
    "k_scale",
    "v_scale",
    "out",
    "lse",
    "partial_out",
    "partial_lse",
    "q_token_stride",
    "q_head_stride",
    "q_bytes",
    "page_stride",
    "table_stride",
    "tokens",
    "batch",
    "num_kv_heads",
    "group",
    "num_pages",
    "max_blocks",
    "token_stride",
    "head_stride",
    "scale_head_stride",
    "k_scale_offset",
    "v_offset",
    "v_scale_offset",
    "tiles",
    "splits",
    "softmax_scale",
)
