"""Configurations of the Hopper kernel that merges the parts of sparse_attention's sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

MAX_PARTS = 8
"""Of a pair of a query token and a KV head."""
THREADS = 128


@dataclass(frozen=True)
class Config:
    kv_format: str = "nvfp4"

    @property
    def name(self) -> str:
        return f"merge_parts_{self.kv_format}"


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.sparse_attention.sm90_merge",
    archs=("sm_90a",),
    arguments=("sums", "statistics", "v_scale", "out", "lse", "pairs", "parts", "group", "q_dtype"),
    configs=(Config(),),
    supports=supports,
    shared_memory=lambda config: 0,
)
