"""Configurations of the Hopper kernel that merges the candidates of requests that several thread blocks scanned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

GROUPS_A_WARP = 4


@dataclass(frozen=True)
class Config:
    """topk: the most that is chosen. per_lane: candidates that a lane holds."""

    topk: int
    warps: int
    per_lane: int

    @property
    def name(self) -> str:
        return f"merge_{self.topk}"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def blocks(self) -> int:
        """Of a multiprocessor, at least. One merge of few must fit beside the scan's block; of five, 640 rows are one
        round.
        """
        return 5 if self.topk <= 16 else 1

    @property
    def candidates(self) -> int:
        """The most candidates that it can merge for a column."""
        return self.threads * self.per_lane

    @property
    def groups(self) -> int:
        """Of threads; of each group the largest key is found. At least topk of them."""
        return GROUPS_A_WARP * self.warps

    @property
    def gathered(self) -> int:
        """The most candidates that are compared with each other; the choices of all warps fit in the same room."""
        return max(self.threads, self.warps * self.topk)

    @property
    def shared_memory(self) -> int:
        """Sums of warps, facts of the request, a counter, groups, ids that are chosen, and candidates."""
        return 4 * 32 + 4 * 8 + 4 * self.groups + 4 * self.topk + 8 * self.gathered


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="indexer",
    module="msa_ops.cute.indexer.sm90_merge",
    archs=("sm_90a", "sm_100a", "sm_103a"),
    arguments=(
        "seq_lens",
        "cu_seqlens_q",
        "block_ids",
        "workspace",
        "out_token_stride",
        "out_head_stride",
        "heads_magic",
        "blocks_magic",
        "num_tokens",
        "batch",
        "q_len",
        "num_heads",
        "max_blocks",
        "topk",
        "tile_shift",
        "num_blocks",
    ),
    configs=(Config(16, warps=8, per_lane=9), Config(64, warps=16, per_lane=17)),
    supports=supports,
    shared_memory=lambda config: config.shared_memory,
)


def config_for(topk: int) -> Config:
    return next(config for config in FAMILY.configs if topk <= config.topk)


MAX_BLOCKS = min(config.candidates // config.topk for config in FAMILY.configs)
"""The most thread blocks whose candidates can be merged."""
