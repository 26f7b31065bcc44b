"""Configuration of the Hopper kernel that fills scores with -inf before those of visible blocks are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform


@dataclass(frozen=True)
class Config:
    """threads: of a block, which fills one row."""

    threads: int = 128

    @property
    def name(self) -> str:
        return "clear"


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


CONFIG = Config()

FAMILY = Family(
    op="indexer_scores",
    module="msa_ops.cute.indexer_prefill.sm90_clear",
    archs=("sm_90a",),
    arguments=("scores", "token_stride", "head_stride", "num_tokens", "num_heads", "width"),
    configs=(CONFIG,),
    supports=supports,
    shared_memory=lambda config: 0,
)
