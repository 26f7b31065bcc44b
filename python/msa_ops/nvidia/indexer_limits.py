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
