"""Fourth step of sparse_attention block by block on Hopper: the products."""

from __future__ import annotations

from msa_ops.cute.tiled_attention.by_block_layout import Config, shared_memory, supports

from msa_ops.build.unit import Family

ARGUMENTS = (
    "kv_cache",
    "counters",
    "items",
    "listed",
    "queries",
    "factors",
    "parts",
    "logs",
    "page_stride",
    "num_kv_heads",
    "head_begin",
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
    module="msa_ops.cute.tiled_attention.sm90_blocks",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=tuple(Config(kv_format) for kv_format in ("nvfp4", "fp8", "bf16")),
    supports=supports,
    shared_memory=shared_memory,
)
