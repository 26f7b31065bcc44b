"""sparse_attention of tiles of query tokens that chose mostly the same blocks, on Hopper."""

from __future__ import annotations

from msa_ops.cute.tiled_attention.layout import Config, shared_memory, supports

from msa_ops.build.unit import Family

ARGUMENTS = (
    "kv_cache",
    "counters",
    "tiles",
    "lists",
    "queries",
    "factors",
    "v_scale",
    "out",
    "lse",
    "page_stride",
    "num_kv_heads",
    "head_begin",
    "all_kv_heads",
    "group",
    "topk",
    "token_stride",
    "head_stride",
    "scale_head_stride",
    "k_scale_offset",
    "v_offset",
    "v_scale_offset",
    "blocks",
)

FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.tiled_attention.sm90_sparse",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=tuple(Config(kv_format, groups=2) for kv_format in ("nvfp4", "fp8", "bf16")),
    supports=supports,
    shared_memory=shared_memory,
)
