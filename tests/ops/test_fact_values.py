"""What `explain` refuses because no call of the op could be so."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import msa_ops
from msa_ops.ops.fact_values import Checked
from msa_ops.registry import STORE

CASES = [(op, variant) for op in STORE.ops() for variant in STORE.op(op).variants]


@pytest.mark.parametrize(("op", "variant"), CASES)
def test_facts_of_calls_that_are_accepted(op: str, variant: str) -> None:
    spec = STORE.op(op)
    args = spec.generate(1, variant=variant) if len(spec.variants) > 1 else spec.generate(1)
    spec.check(args)
    facts = spec.facts(args)
    assert isinstance(facts, Checked)
    facts.check()


@pytest.mark.parametrize("op", STORE.ops())
def test_every_fact_has_its_kind(op: str) -> None:
    """A word for a number, a number for a word, and neither for yes or no."""
    for field in fields(STORE.op(op).facts_type):
        wrong: Any = 3 if isinstance(field.default, (str, bool)) else "three"
        with pytest.raises(ValueError, match=f"^{field.name}: {wrong!r}; accepted: "):
            msa_ops.explain(op, "sm_90a", {field.name: wrong})


@pytest.mark.parametrize(
    ("op", "facts", "message"),
    [
        ("sparse_attention", {"topk": 1000}, "topk: 1000; accepted: 1 to 64"),
        ("indexer", {"topk": 0}, "topk: 0; accepted: 1 to 64"),
        ("sparse_attention", {"kv_layout": "zz"}, "kv_layout: 'zz'; accepted: planes, slots, packed"),
        ("dense_attention", {"kv_layout": "packed"}, "kv_layout: packed pages hold no scales"),
        ("qk_norm_rope_insert", {"kv_layout": "packed"}, "kv_layout: packed pages hold no scales"),
        ("dense_attention", {"num_heads": 3, "num_kv_heads": 2}, "num_heads: 3; accepted: a multiple of"),
        ("dense_attention", {"num_kv_heads": 0}, "num_kv_heads: 0"),
        ("quantize_nvfp4", {"columns": 17}, "columns: 17; accepted: multiples of 16"),
        ("quantize_mxfp8", {"columns": 48}, "columns: 48; accepted: multiples of 32"),
        ("quantize_nvfp4", {"scale_floor": 1000.0}, "scale_floor: 1000.0; accepted: 0 to 448"),
        ("quantize_nvfp4", {"scale_floor": float("nan")}, "scale_floor: nan"),
        ("quantize_mxfp4", {"scale_layout": "token_quads"}, "scale_layout: 'token_quads'; accepted: linear, swizzle"),
        ("qk_norm_rope_insert", {"qkv_dtype": "int8"}, "qkv_dtype: 'int8'; accepted: float32, bfloat16, float16"),
        ("qk_norm_rope_insert", {"rotary_dim": 130}, "rotary_dim: 130; accepted: 2 to 128"),
        ("route_experts", {"top_k": 129}, "top_k: 129; accepted: 1 to 128"),
        ("indexer", {"max_blocks": -1}, "max_blocks: -1; accepted: 0 to"),
    ],
)
def test_values_that_no_call_has(op: str, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        msa_ops.explain(op, "sm_90a", facts)
    assert str(error.value).startswith(message)
