"""Configurations of the Hopper kernel that scans NVFP4 index keys with products of warpgroups where pages are many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.cute.indexer import sm90_scan_configs as scan

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform


@dataclass(frozen=True)
class Config(scan.Config):
    """As of the other scan, with a multiple of four warps, half a page a stage and two stages.

    turn: keys that a warp decodes in one turn of its loop, a multiple of 16.
    """

    turn: int = 32

    @property
    def groups(self) -> int:
        """Of four warps."""
        return self.warps // 4

    @property
    def query_bytes(self) -> int:
        """Queries of a group: 128 fp16 numbers a column."""
        return 256 * self.columns

    @property
    def visible_bytes(self) -> int:
        """What the columns of each lane see."""
        return self.threads * self.columns

    @property
    def shared_memory(self) -> int:
        return self.groups * self.query_bytes + self.visible_bytes + super().shared_memory


BLOCK_PAGES = 80
"""Pages a thread block from which warpgroups multiply; with fewer of them it counts that pages are not divided among
warps."""

REQUEST_PAGES = 64
"""Pages a request, on average, from which they do; with fewer it counts that groups have pages of two requests."""


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="indexer",
    module="msa_ops.cute.indexer.sm90_group_scan",
    archs=("sm_90a",),
    arguments=scan.ARGUMENTS,
    configs=(Config("nvfp4", 16, warps=16, tokens=64, stages=2, pages=512, turn=32),),
    supports=supports,
    shared_memory=lambda config: config.shared_memory,
)
