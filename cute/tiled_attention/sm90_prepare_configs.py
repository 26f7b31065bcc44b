"""First step of sparse_attention block by block on Hopper."""

from __future__ import annotations

from dataclasses import dataclass

from msa_ops.cute.tiled_attention.by_block_layout import supports
from msa_ops.cute.tiled_attention.layout import MAX_BLOCKS

from msa_ops.build.unit import Family

# Shared memory: counts of warps; header of the tile; blocks that the tokens chose; valid ids; the tile's place in the
# list of tiles; a byte for each block.
SCAN_AT = 0
UNIQUE_AT = 96
VALID_AT = 100
PLACE_AT = 104
SCRATCH_AT = 128

ARGUMENTS = (
    "q",
    "block_ids",
    "block_table",
    "seq_lens",
    "cu_seqlens_q",
    "k_scale",
    "counters",
    "counts",
    "ways",
    "keys",
    "ranks",
    "tiles",
    "lists",
    "queries",
    "factors",
    "logs",
    "q_token_stride",
    "q_head_stride",
    "ids_token_stride",
    "ids_head_stride",
    "table_stride",
    "tokens",
    "batch",
    "num_kv_heads",
    "head_begin",
    "all_kv_heads",
    "group",
    "topk",
    "num_pages",
    "max_blocks",
    "tiles_wanted",
    "pairs_of_a_block",
    "softmax_scale",
)


@dataclass(frozen=True)
class Config:
    """capacity: blocks of a block table, of which each takes a byte of shared memory. q_dtype: bf16 or e4m3."""

    kv_format: str
    capacity: int
    q_dtype: str = "bf16"

    @property
    def name(self) -> str:
        return f"prepare_{self.kv_format}_{self.capacity}" + ("_e4m3" if self.q_dtype == "e4m3" else "")

    @property
    def q_bytes(self) -> int:
        """Of an element of q."""
        return 1 if self.q_dtype == "e4m3" else 2

    @property
    def mma(self) -> str:
        """Type of the operands of matrix products."""
        return "bf16" if self.kv_format == "bf16" else "f16"


CAPACITIES = (4096, MAX_BLOCKS)


def shared_memory(config: Config) -> int:
    return SCRATCH_AT + config.capacity


FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.tiled_attention.sm90_prepare",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=tuple(
        Config(kv_format, capacity, q_dtype)
        for kv_format in ("nvfp4", "fp8", "bf16")
        for capacity in CAPACITIES
        for q_dtype in ("bf16", "e4m3")
    ),
    supports=supports,
    shared_memory=shared_memory,
)
