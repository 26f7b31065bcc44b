"""Merging of parts of results of dense_attention on Hopper."""

from __future__ import annotations

from msa_ops.cute.tiled_attention.merge_layout import ARGUMENTS, CONFIGS, shared_memory, supports

from msa_ops.build.unit import Family

FAMILY = Family(
    op="dense_attention",
    module="msa_ops.cute.tiled_attention.sm90_merge_dense",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=CONFIGS,
    supports=supports,
    shared_memory=shared_memory,
)
