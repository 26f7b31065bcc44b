"""Configurations of the CDNA4 kernel that merges the candidates of several workgroups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

MAX_GROUPS = 256
"""Workgroups of the scan."""

MAX_BLOCKS = 8192
"""Of a row among which the merge chooses alone, without the scan's choice before it."""

SHARE = 256
"""Keys that a wave chooses from before another one gets some too."""


@dataclass(frozen=True)
class Config:
    """topk: at most. waves: each chooses among a share of the candidates, then the first among what all have chosen."""

    topk: int
    waves: int

    @property
    def name(self) -> str:
        return f"merge_{self.topk}"

    @property
    def threads(self) -> int:
        return 64 * self.waves

    @property
    def chunks(self) -> int:
        """Of 64 keys that a wave chooses from."""
        return max(MAX_GROUPS // self.waves, self.waves) * self.topk // 64

    @property
    def key_chunks(self) -> int:
        """Of 64 keys of pieces that a wave chooses from, at most."""
        return MAX_BLOCKS // self.waves // 64

    @property
    def places(self) -> dict[str, int]:
        """Where everything begins in LDS, and its end."""
        request = 16 + 8 * self.waves
        return {"request": 0, "sums": 16, "chosen": request, "end": request + 8 * self.waves * self.topk}


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="indexer",
    module="msa_ops.flydsl.indexer.gfx950_merge",
    archs=("gfx950",),
    arguments=(
        "seq_lens",
        "cu_seqlens",
        "block_ids",
        "workspace",
        "out_token_stride",
        "out_head_stride",
        "num_tokens",
        "batch",
        "q_len",
        "num_heads",
        "heads_reciprocal",
        "max_blocks",
        "topk",
        "init_blocks",
        "local_blocks",
        "columns_log2",
        "groups",
        "groups_reciprocal",
        "most_pieces",
    ),
    configs=(Config(16, 8), Config(32, 16), Config(64, 16)),
    supports=supports,
    shared_memory=lambda config: 0,
)


def config_for(topk: int) -> Config:
    """The smallest that holds `topk`."""
    return next(config for config in FAMILY.configs if topk <= config.topk)
