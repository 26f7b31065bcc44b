"""Configurations of the Hopper kernel of select_blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform
from msa_ops.registry.refusal import Code

MAX_TOPK = 64
ID_BITS = 14
PASSES = 6
"""Four digits of a score's key and two of an id."""
BINS = 256
LIST_AT = PASSES * BINS * 4
"""Chosen ids, in the order in which they were found; before it stand the histograms of all passes."""
STATE_AT = LIST_AT + MAX_TOPK * 4
"""Digit, what is still missing, and the size of the bin; then the number of ids in the list."""
SHARED_MEMORY = STATE_AT + 32


@dataclass(frozen=True)
class Config:
    """threads: of a thread block, which takes one row. each: scores that a thread holds in registers."""

    threads: int
    each: int

    @property
    def capacity(self) -> int:
        """Blocks of the longest row."""
        return self.threads * self.each

    @property
    def name(self) -> str:
        return f"t{self.threads}e{self.each}"


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    if config.capacity > 1 << ID_BITS:
        yield Refusal(Code.ARGUMENT, f"rows of {config.capacity} blocks; accepted: up to {1 << ID_BITS}", "use less")


CONFIGS = (Config(256, 4), Config(1024, 4), Config(1024, 16))
"""In the order of their capacities."""

FAMILY = Family(
    op="select_blocks",
    module="msa_ops.cute.select_blocks.sm90",
    archs=("sm_90a",),
    arguments=(
        "scores",
        "num_blocks",
        "block_ids",
        "count_stride",
        "token_stride",
        "head_stride",
        "ids_token_stride",
        "ids_head_stride",
        "tokens",
        "heads",
        "width",
        "topk",
        "init_blocks",
        "local_blocks",
    ),
    configs=CONFIGS,
    supports=supports,
    shared_memory=lambda config: SHARED_MEMORY,
)
