"""Configurations of the Hopper kernel of sparse_attention whose warps go from page to page together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.cute.sparse_attention import sm90_configs
from msa_ops.cute.sparse_attention.sm90_configs import HEAD_DIM, MAX_TOPK, PAGE, ROWS

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

WARPS = 4
STAGES = 2
KEYS_BYTES = PAGE * HEAD_DIM // 2
SCALES_BYTES = PAGE * HEAD_DIM // 16
WEIGHTS_ROW = 2 * PAGE + 16
"""Bytes from a row of weights to the next: 16 more than they take, so that eight rows lie in different banks."""
TABLE_GROUP, TABLE_HALF = 320, 1312
"""Bytes from the scales of V of one group of 16 dims to those of the next, of which 256 are used, and of the fourth."""
PARTS = 4
"""Of a page's V in shared memory: copies of 32 tokens."""
PART_BYTES = PAGE * HEAD_DIM // 2 // PARTS + 16
"""From one part to the next: 16 more than it takes, so that eight rows of V lie in different banks."""
WEIGHTS_BYTES = ROWS * WEIGHTS_ROW
TABLE_BYTES = 2 * TABLE_HALF
V_AT = KEYS_BYTES
K_SCALES_AT = V_AT + PARTS * PART_BYTES
V_SCALES_AT = K_SCALES_AT + SCALES_BYTES
STAGE_BYTES = V_SCALES_AT + SCALES_BYTES
"""Of a stage, from its start, where K is."""

# Shared memory of a block: barriers (K of each stage, V of each stage); number of pages; for each row its
# factor and running maximum, the maximum that is proposed, and each warp's sum of weights (in the beginning the largest
# magnitude in its portion of the queries); list of pages; queries; weights, twice; scales of V, twice; the ring of
# pages.
# In the list, an entry is the address of a page (of its K and this head) and the number of its visible tokens.
COUNT_AT = 40
STATES_AT = 64
PROPOSED_AT = STATES_AT + 8 * ROWS
TOTALS_AT = PROPOSED_AT + 4 * ROWS
LIST_AT = TOTALS_AT + 4 * ROWS * WARPS
ENTRY_BYTES = 16
QUERIES_AT = LIST_AT + ENTRY_BYTES * MAX_TOPK
WEIGHTS_AT = QUERIES_AT + 2 * ROWS * HEAD_DIM
TABLE_AT = WEIGHTS_AT + 2 * WEIGHTS_BYTES
RING_AT = (TABLE_AT + 2 * TABLE_BYTES + 127) // 128 * 128
SHARED_MEMORY = RING_AT + STAGES * STAGE_BYTES


@dataclass(frozen=True)
class Config:
    """blocks: thread blocks that a multiprocessor holds. any_q: q may be FP16 or E4M3, too."""

    blocks: int
    any_q: bool = False
    kv_format: str = "nvfp4"
    mma: str = "f16"

    @property
    def name(self) -> str:
        return f"{self.kv_format}_pages_w{WARPS}{'_any_q' if self.any_q else ''}"


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.sparse_attention.sm90_pages",
    archs=("sm_90a",),
    arguments=tuple(name for name in sm90_configs.FAMILY.arguments if name != "cluster"),
    configs=(Config(blocks=4), Config(blocks=4, any_q=True)),
    supports=supports,
    shared_memory=lambda config: SHARED_MEMORY,
)
