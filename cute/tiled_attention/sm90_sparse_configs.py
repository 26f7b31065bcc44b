"""sparse_attention of long queries on Hopper: tiles of tokens over the blocks that they chose."""

from __future__ import annotations

from msa_ops.cute.tiled_attention.layout import ARGUMENTS, Config, shared_memory, supports

from msa_ops.build.unit import Family

CONFIGS = tuple(Config(kv_format, sparse=True, groups=2) for kv_format in ("nvfp4", "fp8", "bf16"))

FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.tiled_attention.sm90_sparse",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=CONFIGS,
    supports=supports,
    shared_memory=shared_memory,
)
