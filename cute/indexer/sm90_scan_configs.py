"""Configurations of the Hopper kernel that scans index keys and keeps each block's candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

PAGE_BYTES = {"nvfp4": 9216, "fp8": 16384, "bf16": 32768}


@dataclass(frozen=True)
class Config:
    """index_format: of the keys. columns: (query token, head) pairs a tile, a power of two of at least 8.

    warps: each scans pages of its own. tokens: of a page that a warp takes at a time. stages: of its ring. pages:
    scored between selections. together: tiles of 8 columns whose products are formed side by side. few: for batches of
    few requests, whose calls take as long as a merge that cannot wait beside the scan adds to them. factors: in
    registers to decode NVFP4 with, 3 or 2.

    early: pages of a thread block that a batch of few requests brings to the second-level cache while the kernel before
    still runs; 0: nothing is looked at before that has ended. later: as many again as soon as that has ended, if the
    block has LONG_RUN or more. guess: then pages are asked for as the table was before, while it is read again.
    """

    index_format: str
    columns: int
    warps: int
    tokens: int
    stages: int
    pages: int
    together: int = 4
    few: bool = False
    factors: int = 3
    early: int = 0
    later: int = 0
    guess: bool = False

    @property
    def name(self) -> str:
        return f"scan_{self.index_format}_{self.columns}" + ("_few" if self.few else "")

    @property
    def parts(self) -> int:
        """Warps that share a page."""
        return 128 // self.tokens

    @property
    def stage_bytes(self) -> int:
        return PAGE_BYTES[self.index_format] // self.parts

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def bound(self) -> int:
        """Threads that the compiler must leave registers for: with few columns also those of a merge that waits."""
        return self.threads + (96 if self.columns == 8 or self.few else 0)

    @property
    def ring_bytes(self) -> int:
        return self.warps * self.stages * self.stage_bytes

    @property
    def score_bytes(self) -> int:
        """The table of scores: a row a page, and one more against bank conflicts."""
        return 4 * self.columns * (self.pages + 1)

    @property
    def shared_memory(self) -> int:
        """Rings, scores, sums, barriers, a window of as many requests as threads or 32 a warp, and spare words."""
        return (
            self.ring_bytes
            + self.score_bytes
            + 4 * 32
            + 8 * self.warps * self.stages
            + 4 * (5 * self.threads + 34 * self.warps)
        )


LONG_RUN = 40
"""Pages of a thread block from which more of them are brought to the second-level cache."""

FEW_REQUESTS = 8
"""A configuration for few requests is taken for batches of up to as many."""


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


ARGUMENTS = (
    "index_q",
    "index_cache",
    "block_table",
    "seq_lens",
    "cu_seqlens_q",
    "block_ids",
    "workspace",
    "q_token_stride",
    "q_head_stride",
    "page_stride",
    "table_stride",
    "out_token_stride",
    "out_head_stride",
    "heads_magic",
    "blocks_magic",
    "num_pages",
    "num_tokens",
    "batch",
    "q_len",
    "num_heads",
    "max_blocks",
    "topk",
    "init_blocks",
    "local_blocks",
    "q_dtype",
    "num_blocks",
    "code_factor",
    "group_block_pages",
    "group_request_pages",
)

FAMILY = Family(
    op="indexer",
    module="msa_ops.cute.indexer.sm90_scan",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=(
        Config("nvfp4", 8, warps=16, tokens=64, stages=2, pages=512, early=5, later=8, guess=True),
        Config("nvfp4", 16, warps=16, tokens=64, stages=2, pages=512, early=4, few=True, factors=2),
        Config("nvfp4", 32, warps=12, tokens=64, stages=2, pages=256),
        Config("nvfp4", 64, warps=8, tokens=64, stages=3, pages=256, factors=2),
        Config("fp8", 8, warps=12, tokens=64, stages=2, pages=512, early=4),
        Config("fp8", 16, warps=12, tokens=64, stages=2, pages=256),
        Config("fp8", 32, warps=12, tokens=32, stages=3, pages=256),
        Config("bf16", 8, warps=12, tokens=32, stages=2, pages=512, early=4),
        Config("bf16", 16, warps=12, tokens=32, stages=2, pages=256),
        Config("bf16", 32, warps=8, tokens=32, stages=2, pages=256),
    ),
    supports=supports,
    shared_memory=lambda config: config.shared_memory,
)
