"""What the kernels of sparse_attention take beyond lists of accepted values. Metadata only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msa_ops.registry import Code, Platform, Refusal

MAX_GROUP = 16
"""Query heads of a KV head."""
SHORT_QUERIES = 64
"""Up to as many query tokens a request, the kernel of decode steps is taken."""


def refusals(platform: Platform, facts: Any) -> Iterable[Refusal]:
    """What one kernel takes beyond lists of accepted values."""
    group = facts.num_heads // facts.num_kv_heads
    if group > MAX_GROUP:
        yield Refusal(Code.ARGUMENT, f"{group} query heads a KV head; accepted: up to {MAX_GROUP}", "use more KV heads")
    if facts.kv_format == "nvfp4" and (facts.k_scale_layout, facts.v_scale_layout) != ("linear", "linear"):
        yield Refusal(
            Code.ARGUMENT,
            f"scale layouts are {facts.k_scale_layout} and {facts.v_scale_layout}; accepted: linear",
            "write the cache with linear scales",
        )
    if facts.q_dtype == "float16" and facts.kv_format == "bf16":
        yield Refusal(
            Code.ARGUMENT,
            "q_dtype is float16 with a bf16 cache; accepted: bfloat16, float8_e4m3fn",
            "convert the queries or change kv_format",
        )


def prefill_refusals(platform: Platform, facts: Any) -> Iterable[Refusal]:
    yield from refusals(platform, facts)
    if facts.max_seqlen_q <= SHORT_QUERIES:
        yield Refusal(
            Code.ARGUMENT,
            f"max_seqlen_q is {facts.max_seqlen_q}; accepted: more than {SHORT_QUERIES}",
            'use backend="cute_sm90"',
        )
