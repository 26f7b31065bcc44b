"""Configurations of the Hopper kernel of qk_norm_rope_insert."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

HEAD_DIM = 128
ROTARY_DIM = 64
TOKENS = 4
"""Tokens that a warp works on at a time."""
TOKENS_AT = 4 * HEAD_DIM * 4
"""Behind the norm weights of q, k, index_q and index_k; 32 bytes a token."""
RINGS_AT = TOKENS_AT + 32 * TOKENS

STORED = ("fp32", "bf16", "fp16", "fp8", "nvfp4")
"""What a row may be rounded to; the kernel takes positions in this list."""
SCALE_LAYOUTS = ("linear", "token_quads", "swizzle_128x4")
WIDE_WEIGHTS, WIDE_POSITIONS, WIDE_SLOTS, GEMMA, ALIGNED_TABLE = (1 << bit for bit in range(5))
"""Bits of the argument `flags`: weights are fp32, positions int64, slots int64; weights count from 1; rows of the table
may be read 16 bytes at a time."""


@dataclass(frozen=True)
class Config:
    """dtype: of qkv. scaled: whether any of the scales is given. warps: of a thread block. stages: heads that have a
    place in shared memory, for each warp; all but one are under way while a head is worked on. blocks: thread blocks
    that the registers of a multiprocessor must hold."""

    dtype: str
    scaled: bool
    warps: int
    stages: int
    blocks: int

    @property
    def stage_bytes(self) -> int:
        """A head of all tokens of a warp."""
        return TOKENS * HEAD_DIM * (4 if self.dtype == "float32" else 2)

    @property
    def name(self) -> str:
        return f"{self.dtype}_{'scaled' if self.scaled else 'plain'}_w{self.warps}s{self.stages}b{self.blocks}"


def shared_memory(config: Config) -> int:
    return RINGS_AT + config.warps * config.stages * config.stage_bytes


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


CONFIGS = (
    Config("bfloat16", False, warps=8, stages=3, blocks=3),
    Config("bfloat16", True, warps=8, stages=4, blocks=2),
    Config("float16", False, warps=8, stages=4, blocks=2),
    Config("float16", True, warps=8, stages=4, blocks=2),
    Config("float32", False, warps=8, stages=4, blocks=2),
    Config("float32", True, warps=8, stages=4, blocks=2),
)

CONFIG_OF = {(config.dtype, config.scaled): config for config in CONFIGS}

FAMILY = Family(
    op="qk_norm_rope_insert",
    module="msa_ops.cute.qk_norm_rope_insert.sm90",
    archs=("sm_90a",),
    arguments=(
        "qkv",
        "q",
        "index_q",
        "kv_cache",
        "index_cache",
        "q_weight",
        "k_weight",
        "index_q_weight",
        "index_k_weight",
        "cos_sin_cache",
        "positions",
        "slot_mapping",
        "k_scale",
        "v_scale",
        "index_k_scale",
        "qkv_stride",
        "kv_page_stride",
        "index_page_stride",
        "table_stride",
        "capacity",
        "tokens",
        "table_rows",
        "num_heads",
        "num_kv_heads",
        "num_index_heads",
        "v_offset",
        "k_scale_offset",
        "v_scale_offset",
        "head_stride",
        "token_stride",
        "scale_head_stride",
        "q_format",
        "kv_format",
        "index_format",
        "k_scale_layout",
        "v_scale_layout",
        "flags",
        "eps",
        "parts",
    ),
    configs=CONFIGS,
    supports=supports,
    shared_memory=shared_memory,
)
