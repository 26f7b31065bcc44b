"""dense_attention on Hopper: tiles of tokens over all blocks of their request, or over parts that are merged after."""

from __future__ import annotations

from msa_ops.cute.tiled_attention.layout import ARGUMENTS, Config, shared_memory, supports

from msa_ops.build.unit import Family

CONFIGS = tuple(
    Config(kv_format, 2, alternate=alternate) for kv_format in ("nvfp4", "fp8", "bf16") for alternate in (True, False)
)

FAMILY = Family(
    op="dense_attention",
    module="msa_ops.cute.tiled_attention.sm90_dense",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=CONFIGS,
    supports=supports,
    shared_memory=shared_memory,
)
