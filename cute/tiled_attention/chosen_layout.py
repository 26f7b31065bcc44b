"""sparse_attention of a few query tokens a request on Hopper: configuration and shared memory. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass

from msa_ops.cute.sparse_attention import sm90_pages_configs as pages
from msa_ops.cute.tiled_attention import layout
from msa_ops.cute.tiled_attention.layout import HEAD_DIM, HEADS, MAX_TOPK, OPERAND_BYTES, STAGES

TOKENS = 8
"""Query tokens of a tile: four for each of two warpgroups."""
MAX_CLUSTER = 8
BRINGERS = 256
"""Threads that list pages and bring them in: four warps for K, four for V."""
BRINGER_REGISTERS, MULTIPLIER_REGISTERS = 56, 200
TURNS = TOKENS * MAX_TOPK // BRINGERS
"""Ids that a thread looks at."""
ENTRY_BYTES = 16
"""Of the list of pages: block, a bit for each token of the tile that chose it, page."""
IDS_ROW = 4 * MAX_TOPK
COUNTS_IN_IDS = TOKENS * IDS_ROW
"""From where the ids are: how many entries of the list each warp makes of its first 32 ids, and of the rest."""

LENGTH_AT, SEEN_AT = 96, 100
"""Entries of the list; pages that the tokens see, counted for each token."""
EXCHANGE_AT = 104
"""Barrier for what other blocks of the cluster send."""
TOKEN_BYTES = 4 * HEADS * HEAD_DIM
STATISTICS_BYTES = 8 * HEADS
"""What a block sends of a token: sums; maximum and weight of each row."""

APART = 3
"""If more than one in three of the pages that the tokens see are different ones, each token is worked on alone."""

# Shared memory where tokens are worked on alone: how many pages each of the block's tokens sees; for each team of four
# warps what msa_ops.cute.sparse_attention.page_walk needs, with the list of pages of its first token; the lists of the
# teams' second tokens.
TEAMS = 4
COUNTS_AT = 112
TEAMS_AT = 1024
LATER_LISTS_AT = TEAMS_AT + TEAMS * pages.SHARED_MEMORY
LIST_BYTES = 16 * MAX_TOPK
APART_BYTES = LATER_LISTS_AT + (TOKENS - TEAMS) * LIST_BYTES


@dataclass(frozen=True)
class Config(layout.Config):
    @property
    def name(self) -> str:
        return f"chosen_{self.kv_format}"

    @property
    def way(self) -> str:
        """By bulk copies, two pages ahead."""
        return "bulk"

    @property
    def threads(self) -> int:
        return BRINGERS + 128 * self.groups

    @property
    def list_at(self) -> int:
        return layout.shared_memory(self)

    @property
    def ids_at(self) -> int:
        """Ids while the list is made: where K will be."""
        return self.k_at

    @property
    def received_at(self) -> int:
        """Where K was."""
        return self.k_at

    @property
    def statistics_at(self) -> int:
        return self.received_at + STAGES * OPERAND_BYTES


def shared_memory(config: Config) -> int:
    return max(config.list_at + TOKENS * MAX_TOPK * ENTRY_BYTES, APART_BYTES)
