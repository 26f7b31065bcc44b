"""sparse_attention of a few query tokens a request on Hopper, as in the verification of drafts."""

from __future__ import annotations

from msa_ops.cute.tiled_attention.chosen_layout import Config, shared_memory
from msa_ops.cute.tiled_attention.layout import supports

from msa_ops.build.unit import Family

ARGUMENTS = (
    "q",
    "kv_cache",
    "block_ids",
    "block_table",
    "seq_lens",
    "cu_seqlens_q",
    "k_scale",
    "v_scale",
    "out",
    "lse",
    "q_token_stride",
    "q_head_stride",
    "page_stride",
    "ids_token_stride",
    "ids_head_stride",
    "table_stride",
    "tokens",
    "batch",
    "num_kv_heads",
    "group",
    "topk",
    "num_pages",
    "max_blocks",
    "head_stride",
    "scale_head_stride",
    "k_scale_offset",
    "v_offset",
    "v_scale_offset",
    "tiles",
    "cluster",
    "cache_policy",
    "code_factor",
    "softmax_scale",
)

FAMILY = Family(
    op="sparse_attention",
    module="msa_ops.cute.tiled_attention.sm90_chosen",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=(Config("nvfp4", groups=2),),
    supports=supports,
    shared_memory=shared_memory,
)
