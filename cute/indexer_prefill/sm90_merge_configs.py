"""Configuration of the Hopper kernel that merges the lists of rows whose tile several thread blocks scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform


@dataclass(frozen=True)
class Config:
    """warps: of a block, a row each. lists: of each lane, so that 32 x `lists` thread blocks may share a tile."""

    warps: int = 8
    lists: int = 5

    @property
    def name(self) -> str:
        return "prefill_merge"

    @property
    def threads(self) -> int:
        return 32 * self.warps


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


CONFIG = Config()

MAX_BLOCKS = 32 * CONFIG.lists
"""The most thread blocks whose lists can be merged."""

FAMILY = Family(
    op="indexer",
    module="msa_ops.cute.indexer_prefill.sm90_merge",
    archs=("sm_90a",),
    arguments=(
        "seq_lens",
        "cu_seqlens_q",
        "block_ids",
        "workspace",
        "out_token_stride",
        "out_head_stride",
        "num_tokens",
        "batch",
        "q_len",
        "num_heads",
        "max_blocks",
        "tile_tokens",
        "tile_rows",
        "topk",
        "init_blocks",
        "local_blocks",
        "num_blocks",
    ),
    configs=(CONFIG,),
    supports=supports,
    shared_memory=lambda config: 0,
)
