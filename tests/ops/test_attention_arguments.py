"""What the attention ops refuse, before anything runs, and the facts that they report."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from msa_ops.ops import dense_attention, sparse_attention

OPS = (sparse_attention, dense_attention)
SMALL: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "batch": 3, "seq_len": 200, "q_len": 2}


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


BAD_CALLS = [
    ("q", lambda a: a.q[..., :64].contiguous(), r"q: shape \[6, 4, 64\]; accepted: \[any, any, 128\]"),
    ("q", lambda a: a.q.double(), "q: dtype float64; accepted: bfloat16, float16, float32, float8_e4m3fn"),
    ("q", lambda a: a.q[:, :3].contiguous(), "q: 3 heads; accepted: a multiple of num_kv_heads = 2"),
    ("q", lambda a: a.q.transpose(1, 2).contiguous().transpose(1, 2), "q: strides"),
    ("q", lambda a: torch.zeros(6, 4, 132, dtype=torch.bfloat16)[..., :128], "q: strides .* 16 bytes"),
    ("q", lambda a: torch.zeros(6 * 4 * 128 + 1, dtype=torch.bfloat16)[1:].view(6, 4, 128), "q: starts at address"),
    ("q", lambda a: a.q[:5], "cu_seqlens_q: None with 5 query tokens for 3 requests"),
    ("kv_cache", lambda a: a.kv_cache[:, :-16], "kv_cache: pages of 36848 bytes; accepted: 36864"),
    ("kv_cache", lambda a: a.kv_cache.view(torch.int8), "kv_cache: int8"),
    ("kv_cache", lambda a: torch.zeros(3, 36864 + 8, dtype=torch.uint8)[:, :36864], "kv_cache: strides"),
    ("kv_cache", lambda a: torch.zeros(3, 36880, dtype=torch.uint8)[:, 8 : 36864 + 8], "kv_cache: starts at address"),
    ("kv_format", lambda a: "fp8_e4m3", "kv_format: 'fp8_e4m3'; accepted: fp32, bf16, fp8, nvfp4"),
    ("kv_format", lambda a: "fp8", "kv_cache: pages of 36864 bytes; accepted: 65536"),
    ("kv_layout", lambda a: "interleaved", "kv_layout: 'interleaved'; accepted: planes, slots, packed"),
    ("kv_layout", lambda a: "packed", "kv_layout: packed pages hold no scales"),
    (
        "k_scale_layout",
        lambda a: "swizzled",
        "k_scale_layout: 'swizzled'; accepted: linear, token_quads, swizzle_128x4",
    ),
    ("v_scale_layout", lambda a: "", "v_scale_layout: ''"),
    ("num_kv_heads", lambda a: 0, "num_kv_heads: 0"),
    ("num_kv_heads", lambda a: 4, "kv_cache: pages of 36864 bytes; accepted: 73728"),
    ("rounding", lambda a: "fp16", "rounding: 'fp16'; accepted: exact, e4m3"),
    ("softmax_scale", lambda a: 0.0, "softmax_scale: 0.0; accepted: a positive number, 1.18e-38 to 1,024"),
    ("softmax_scale", lambda a: 1024.1, "softmax_scale: 1024.1; accepted: a positive number, 1.18e-38 to 1,024"),
    ("softmax_scale", lambda a: 1e39, r"softmax_scale: 1e\+39; accepted: a positive number, 1.18e-38 to 1,024"),
    ("softmax_scale", lambda a: 1e-45, "softmax_scale: 1e-45; accepted: a positive number, 1.18e-38"),
    ("softmax_scale", lambda a: float("nan"), "softmax_scale: nan"),
    ("k_scale", lambda a: torch.ones(2), r"k_scale: float32\[2\]; accepted: one fp32 element, or None"),
    ("v_scale", lambda a: torch.ones(1, dtype=torch.float64), "v_scale: float64"),
    ("block_table", lambda a: ints(2, 3), r"block_table: shape \[2, 3\]; accepted: \[3, any\]"),
    ("block_table", lambda a: a.block_table.long(), "block_table: dtype int64; accepted: int32"),
    ("block_table", lambda a: ints(4, 3).t(), "block_table: strides"),
    ("seq_lens", lambda a: ints(3, 1), "seq_lens: shape"),
    ("seq_lens", lambda a: a.seq_lens.long(), "seq_lens: dtype int64"),
    ("cu_seqlens_q", lambda a: ints(3), r"cu_seqlens_q: shape \[3\]; accepted: \[4\]"),
    ("max_seqlen_q", lambda a: -1, "max_seqlen_q: -1"),
    ("workspace", lambda a: torch.zeros(16), "workspace: torch.float32"),
]
BAD_IDS = [
    ("block_ids", lambda a: ints(6, 2, 65), "block_ids: 65 ids a row; accepted: 1 to 64"),
    ("block_ids", lambda a: ints(6, 2, 0), "block_ids: 0 ids a row; accepted: 1 to 64"),
    ("block_ids", lambda a: ints(2, 6, 3), r"block_ids: shape \[2, 6, 3\]; accepted: \[6, 2, any\]"),
    ("block_ids", lambda a: ints(6, 4, 3), "block_ids: shape"),
    ("block_ids", lambda a: a.block_ids.long(), "block_ids: dtype int64; accepted: int32"),
    ("block_ids", lambda a: ints(6, 3, 2).transpose(1, 2), "block_ids: strides"),
    ("topk_layout", lambda a: "HTK", r"block_ids: shape \[6, 2, 3\]; accepted: \[2, 6, any\]"),
    ("topk_layout", lambda a: "thk", "topk_layout: 'thk'; accepted: THK, HTK"),
]


def call(op: Any, args: Any, **changes: Any) -> Any:
    values = {field.name: getattr(args, field.name) for field in fields(args)} | changes
    return getattr(torch.ops.msa_ops, op.SPEC.name)(**values)


@pytest.mark.parametrize(("name", "value", "message"), BAD_CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(BAD_CALLS)])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.SPEC.name)
def test_bad_calls_are_refused(op: Any, name: str, value: Any, message: str) -> None:
    args = op.generate(1, **SMALL)
    if op is sparse_attention and name == "num_kv_heads":  # the ids would be refused as well
        args.block_ids = ints(6, max(value(args), 1), 3)
    with pytest.raises(ValueError, match=message):
        call(op, args, **{name: value(args)})


@pytest.mark.parametrize(("name", "value", "message"), BAD_IDS, ids=[f"{i}-{c[0]}" for i, c in enumerate(BAD_IDS)])
def test_bad_ids_are_refused(name: str, value: Any, message: str) -> None:
    args = sparse_attention.generate(1, **SMALL)
    with pytest.raises(ValueError, match=message):
        call(sparse_attention, args, **{name: value(args)})


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.SPEC.name)
def test_a_slice_of_a_fused_projection_is_accepted(op: Any) -> None:
    args = op.generate(2, **SMALL)
    wide = torch.zeros(6, 4 + 5, 128, dtype=torch.bfloat16)
    wide[:, :4] = args.q
    for one, other in zip(call(op, args), call(op, args, q=wide[:, :4]), strict=True):
        assert torch.equal(one, other)


def test_facts_describe_the_call() -> None:
    args = sparse_attention.generate(
        3, num_heads=32, num_kv_heads=2, batch=5, q_len=3, topk=7, kv_layout="slots", v_scale_layout="token_quads",
        rounding="e4m3", topk_layout="HTK", variant="scaled", max_blocks=9,
    )  # fmt: skip
    facts = sparse_attention.facts(args)
    assert facts == sparse_attention.Facts(
        q_dtype="bfloat16", num_heads=32, num_kv_heads=2, kv_format="nvfp4", kv_layout="slots", k_scale_layout="linear",
        v_scale_layout="token_quads", k_scale=True, v_scale=True, rounding="e4m3", max_blocks=9, batch=8,
        tokens=facts.tokens, max_seqlen_q=facts.tokens, ragged=True, topk=7, topk_layout="HTK",
    )  # fmt: skip
    assert args.q.shape[0] <= facts.tokens < 2 * args.q.shape[0]


@pytest.mark.parametrize(
    ("q_len", "bound", "ragged", "expected"),
    [
        (1, None, False, 1),
        (3, None, False, 4),
        (8, None, False, 8),
        (8, 99, False, 8),
        (3, 3, True, 4),
        (3, None, True, 16),
    ],
)
def test_the_bound_of_query_tokens(q_len: int, bound: int | None, ragged: bool, expected: int) -> None:
    args = dense_attention.generate(4, batch=3, q_len=q_len, max_seqlen_q=bound)
    if ragged:
        args.cu_seqlens_q = torch.tensor([0, q_len, 2 * q_len, 3 * q_len], dtype=torch.int32)
    assert dense_attention.facts(args).max_seqlen_q == expected


def test_defaults_of_the_facts_are_a_decode_step() -> None:
    args = sparse_attention.generate(5, batch=32, q_len=1, topk=16, max_blocks=1024)
    assert sparse_attention.facts(args) == sparse_attention.Facts()
