"""Configurations of the CDNA4 kernel that scans index keys and keeps each block's candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

CARRIED = 64
"""Candidates of earlier pages that a column takes along: the largest topk."""

QUERY_ROW = 144
"""Bytes of a column's query in LDS: 16 more than it has, against bank conflicts."""


@dataclass(frozen=True)
class Config:
    """columns: (query token, head) pairs a tile, a multiple of the 16 of a matrix product.

    waves: each scans pages of its own. chunks: of 64 keys from which a wave chooses at a time. pieces: most that a
    workgroup takes on average where it leaves the choice to the merge. ahead: pages that a wave holds in registers, 1
    or 2.
    """

    columns: int
    chunks: int
    pieces: int
    ahead: int
    waves: int = 8

    @property
    def name(self) -> str:
        return f"scan_nvfp4_{self.columns}"

    @property
    def columns_log2(self) -> int:
        return self.columns.bit_length() - 1

    @property
    def threads(self) -> int:
        return 64 * self.waves

    @property
    def pages(self) -> int:
        """Scored between selections: an odd number a wave, which is one page at the end and pairs before."""
        most = (64 * self.chunks - CARRIED) // self.waves
        return (most - 1 + most % 2) * self.waves

    @property
    def row(self) -> int:
        """Words of a column in the table of keys: an odd number, against bank conflicts."""
        return 64 * self.chunks + 1

    @property
    def places(self) -> dict[str, int]:
        """Where everything begins in LDS, and its end."""
        sizes = {
            "table": 2048,
            "sums": 4 * self.waves * 2,
            "place": 16,
            "queries": QUERY_ROW * self.columns,
            "begin": 4 * self.threads,
            "pages": 4 * self.threads,
            "first": 4 * self.threads,
            "tokens": 4 * self.threads,
            "length": 4 * self.threads,
            "carried": 4 * CARRIED * self.columns,
            "least": 4 * self.columns,
            "keys": 4 * self.row * self.columns,
            "end": 0,
        }
        found, at = {}, 0
        for name, size in sizes.items():
            found[name] = at
            at += -(-size // 16) * 16
        return found


ARGUMENTS = (
    "index_q",
    "index_cache",
    "block_table",
    "seq_lens",
    "cu_seqlens",
    "block_ids",
    "workspace",
    "q_token_stride",
    "q_head_stride",
    "page_stride",
    "table_stride",
    "out_token_stride",
    "out_head_stride",
    "num_pages",
    "num_tokens",
    "batch",
    "q_len",
    "num_heads",
    "heads_reciprocal",
    "max_blocks",
    "topk",
    "init_blocks",
    "local_blocks",
    "groups",
    "groups_reciprocal",
    "most_pieces",
)


def reciprocal_of(divisor: int) -> int:
    """By which work.quotient_by divides exactly, any number from 0 to 2^32 - 1."""
    return min((1 << 32) // divisor, (1 << 32) - 1)


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="indexer",
    module="msa_ops.flydsl.indexer.gfx950_scan",
    archs=("gfx950",),
    arguments=ARGUMENTS,
    configs=(Config(16, 8, 512, 2), Config(32, 8, 256, 2), Config(64, 4, 128, 1)),
    supports=supports,
    shared_memory=lambda config: 0,
)
