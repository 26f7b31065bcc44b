"""What the kernels of indexer take beyond lists of accepted values. Metadata only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msa_ops.registry import Code, Platform, Refusal


def refusals(platform: Platform, facts: Any) -> Iterable[Refusal]:
    """fp16 queries meet bf16 keys in no matrix product that keeps both."""
    if facts.q_dtype == "float16" and facts.index_format == "bf16":
        yield Refusal(
            Code.ARGUMENT,
            "q_dtype is float16 with bf16 keys; accepted: bfloat16, float8_e4m3fn",
            "convert the queries or change index_format",
        )


SHORT_ROWS = 32
"""Up to as many (query token, head) pairs a request, the scan of decode steps is the faster kernel."""


def prefill_refusals(platform: Platform, facts: Any) -> Iterable[Refusal]:
    yield from refusals(platform, facts)
    rows = facts.num_heads * facts.max_seqlen_q
    if rows <= SHORT_ROWS:
        yield Refusal(
            Code.ARGUMENT,
            f"num_heads x max_seqlen_q is {rows}; accepted: more than {SHORT_ROWS}",
            'use backend="cute_sm90"',
        )
