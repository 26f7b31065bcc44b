"""Second and third step of sparse_attention block by block on Hopper: items of work, and the list of pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

THREADS = 256


@dataclass(frozen=True)
class Config:
    """kind: "plan" makes items from counts, "place" lists the pairs."""

    kind: str

    @property
    def name(self) -> str:
        return self.kind


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


def shared_memory(config: Config) -> int:
    return 0


ARGUMENTS = (
    "block_table",
    "seq_lens",
    "cu_seqlens_q",
    "counters",
    "counts",
    "offsets",
    "items",
    "keys",
    "ranks",
    "listed",
    "table_stride",
    "tokens",
    "batch",
    "num_kv_heads",
    "max_blocks",
    "pairs",
)

FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.tiled_attention.sm90_plan",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=(Config("plan"), Config("place")),
    supports=supports,
    shared_memory=shared_memory,
)
