"""Configurations of the Blackwell kernel that scans index keys and keeps each block's candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.cute.indexer.sm90_scan_configs import ARGUMENTS

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

PAGE_BYTES = 9216  # of NVFP4 index keys
KEY_COLUMNS = 32  # of tensor memory: 128 E4M3 values a lane


@dataclass(frozen=True)
class Config:
    """columns: (query token, head) pairs a tile. route: instructions that turn E2M1 codes and E4M3 scales into E4M3,
    "qmul4" or "fp16"; both give the same bits. groups: of four warps that decode, page by page in turn. copies, keys,
    sums: pages in flight as copies in shared memory, as E4M3 keys and as products in tensor memory, powers of two.
    pages: scored between selections.
    """

    columns: int
    route: str
    pages: int
    groups: int = 2
    copies: int = 8
    keys: int = 4
    sums: int = 4

    @property
    def name(self) -> str:
        return f"scan_nvfp4_{self.columns}_{self.route}"

    @property
    def warps(self) -> int:
        """Decoding warps, four that take maxima, one that multiplies, one that copies, two that bring queries."""
        return 4 * self.groups + 8

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def early(self) -> int:
        return 0

    @property
    def factors(self) -> int:
        return 2

    @property
    def bound(self) -> int:
        return self.threads

    @property
    def tensor_memory_columns(self) -> int:
        """A power of two, as they are allocated."""
        used = self.keys * KEY_COLUMNS + self.sums * self.columns
        return 1 << (used - 1).bit_length()

    @property
    def query_bytes(self) -> int:
        """Of one of the two sets of queries."""
        return self.columns * 128

    @property
    def ring_bytes(self) -> int:
        return self.copies * PAGE_BYTES

    @property
    def score_bytes(self) -> int:
        """The table of scores: a row a page, and one more against bank conflicts."""
        return 4 * self.columns * (self.pages + 1)

    @property
    def num_barriers(self) -> int:
        return 2 * (self.copies + self.keys + self.sums + 2)

    @property
    def shared_memory(self) -> int:
        """Queries, ring, scores, sums of warps, barriers, whether pages exist, and a window of requests."""
        window = 4 * (5 * self.threads + 34 * self.warps)
        return (
            2 * self.query_bytes
            + self.ring_bytes
            + self.score_bytes
            + 4 * 32
            + 8 * self.num_barriers
            + 4 * self.copies
            + 16
            + window
        )


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="indexer",
    module="msa_ops.cute.indexer.sm100_scan",
    archs=("sm_100a", "sm_103a"),
    arguments=ARGUMENTS,
    configs=tuple(
        Config(columns, route, pages)
        for route in ("qmul4", "fp16")
        for columns, pages in ((16, 512), (32, 512), (64, 256))
    ),
    supports=supports,
    shared_memory=lambda config: config.shared_memory,
)
