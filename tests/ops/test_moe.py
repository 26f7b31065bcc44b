"""Arguments, facts, costs and inputs of moe. Results are checked in tests/contract."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import msa_ops
from msa_ops.ops import moe as op
from msa_ops.ops import moe_inputs


def values(args: op.Args) -> dict:
    return {name: getattr(args, name) for name in args.__dataclass_fields__}


def u8(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("weight_format", "change", "message"),
    [
        ("none", {"x": torch.zeros(8)}, "x: shape"),
        ("none", {"x": torch.zeros(64, 8).T}, "x: strides"),
        ("none", {"x": torch.zeros(8, 64, dtype=torch.float64)}, "x: dtype float64; accepted: float32"),
        ("none", {"x": torch.zeros(8, 48)}, r"w13: shape \[8, 192, 64\]; accepted: \[8, 192, 48\]"),
        ("none", {"weight_format": "int4"}, "weight_format: 'int4'; accepted: none, nvfp4, mxfp8, mxfp4"),
        ("none", {"weight_format": "nvfp4"}, "w13: dtype float32; accepted: uint8"),
        ("none", {"activation_format": "fp8"}, "activation_format: 'fp8'; accepted: none, nvfp4, mxfp8"),
        ("none", {"w13": torch.zeros(8, 96, 64)}, r"w13: shape \[8, 96, 64\]; accepted: \[8, 192, 64\]"),
        ("none", {"w13": torch.zeros(0, 192, 64)}, "w13: 0 experts; accepted: at least 1"),
        ("none", {"w13": torch.zeros(8, 64, 192).transpose(1, 2)}, "w13: strides"),
        ("none", {"w2": torch.zeros(7, 64, 96)}, r"w2: shape \[7, 64, 96\]; accepted: \[8, 64, 96\]"),
        (
            "none",
            {"w2": torch.zeros(8, 64, 96, dtype=torch.float16)},
            "w2: dtype torch.float16; accepted: torch.float32",
        ),
        ("none", {"w13_scale": u8(8, 192, 4)}, "w13_scale: given; accepted: None with weight_format none"),
        ("none", {"w2_global_scale": torch.ones(8)}, "w2_global_scale: given; accepted: None with weight_format none"),
        ("none", {"topk_ids": torch.zeros(8, 2, dtype=torch.int64)}, "topk_ids: dtype int64; accepted: int32"),
        ("none", {"topk_ids": torch.zeros(7, 2, dtype=torch.int32)}, r"topk_ids: shape \[7, 2\]; accepted: \[8, any\]"),
        ("none", {"topk_weights": torch.zeros(8, 3)}, r"topk_weights: shape \[8, 3\]; accepted: \[8, 2\]"),
        ("none", {"topk_weights": torch.zeros(8, 2).bfloat16()}, "topk_weights: dtype bfloat16; accepted: float32"),
        ("none", {"limit": 0.0}, "limit: 0.0; accepted: a positive number"),
        ("none", {"limit": float("nan")}, "limit: nan"),
        ("none", {"alpha": float("inf")}, "alpha: inf; accepted: a finite number"),
        ("none", {"beta": float("nan")}, "beta: nan; accepted: a finite number"),
        ("nvfp4", {"w13_scale": None}, "w13_scale: None; accepted: the scales of weight_format nvfp4"),
        ("nvfp4", {"w2_scale": u8(8, 64, 8)}, r"w2_scale: shape \[8, 64, 8\]; accepted: \[8, 64, 6\]"),
        ("nvfp4", {"w2_scale": torch.zeros(8, 64, 6)}, "w2_scale: dtype float32; accepted: uint8, float8_e4m3fn"),
        ("nvfp4", {"w13_global_scale": torch.ones(1)}, r"w13_global_scale: .*accepted: float32 \[8\] or \[8, 2\]"),
        ("nvfp4", {"w2_global_scale": torch.ones(8, 2)}, r"w2_global_scale: .*accepted: float32 \[8\]$"),
        ("nvfp4", {"w2_global_scale": torch.ones(8).half()}, "w2_global_scale: torch.float16"),
        ("mxfp8", {"w13_scale": u8(8, 192, 4)}, r"w13_scale: shape \[8, 192, 4\]; accepted: \[8, 192, 2\]"),
        ("mxfp8", {"w13": u8(8, 192, 64)}, "w13: dtype uint8; accepted: float8_e4m3fn"),
        (
            "mxfp4",
            {"w2_global_scale": torch.ones(8)},
            "w2_global_scale: given; accepted: None with weight_format mxfp4",
        ),
    ],
)
def test_wrong_arguments_are_named(weight_format: str, change: dict, message: str) -> None:
    args = op.generate(0, weight_format=weight_format, dtype="float32", weight_dtype="float32")
    with pytest.raises(ValueError, match=message):
        msa_ops.moe(**{**values(args), **change})


@pytest.mark.parametrize(
    ("weight_format", "activation_format", "hidden", "intermediate", "message"),
    [
        ("none", "nvfp4", 24, 32, "x: hidden size 24; accepted: multiples of 16 with these formats"),
        ("none", "mxfp8", 32, 48, "w2: intermediate size 48; accepted: multiples of 32 with these formats"),
        ("nvfp4", "mxfp8", 48, 64, "x: hidden size 48; accepted: multiples of 32 with these formats"),
        ("nvfp4", "none", 64, 24, "w2: intermediate size 24; accepted: multiples of 16 with these formats"),
        ("mxfp8", "none", 64, 48, "w2: intermediate size 48; accepted: multiples of 32 with these formats"),
        ("mxfp4", "none", 80, 64, "x: hidden size 80; accepted: multiples of 32 with these formats"),
    ],
)
def test_sizes_must_be_multiples_of_the_group(
    weight_format: str, activation_format: str, hidden: int, intermediate: int, message: str
) -> None:
    args = op.generate(
        0, weight_format=weight_format, activation_format=activation_format, hidden=hidden, intermediate=intermediate
    )
    with pytest.raises(ValueError, match=message):
        op.check(args)


def test_facts() -> None:
    args = op.generate(0, tokens=5, weight_format="nvfp4", activation_format="mxfp8", alpha=1.0)
    expected = op.Facts("bfloat16", 8, 64, 96, 8, 2, "nvfp4", "uint8", "gate_up", True, "mxfp8", alpha=1.0)
    assert op.facts(args) == expected
    other = op.facts(dataclasses.replace(args, w13_global_scale=None, w2_global_scale=None))
    assert (other.w13_global_scale, other.w2_global_scale) == ("none", False)
    assert op.facts(op.generate(0, variant="strided")).contiguous is False
    assert op.facts(op.generate(0, weight_format="nvfp4", global_scale="expert")).w13_global_scale == "expert"


def test_cost_counts_the_experts_that_are_hit() -> None:
    args = op.generate(0, tokens=6, weight_format="nvfp4", variant="one_expert")
    an_expert = 3 * 96 * 64 // 2 + 3 * 96 * 64 // 16 + 3 * 4
    cost = op.cost(args)
    assert cost.bytes_read == 6 * 64 * 2 + 6 * 2 * 8 + an_expert
    assert cost.bytes_written == 6 * 64 * 2
    assert cost.flops == 12 * 2 * 3 * 96 * 64
    assert op.cost(op.generate(0, variant="all_padding")).flops == 0


@pytest.mark.parametrize("weight_format", ["none", "nvfp4", "mxfp8", "mxfp4"])
@pytest.mark.parametrize("global_scale", moe_inputs.GLOBAL_SCALES)
def test_generated_weights_have_rows_of_norm_one(weight_format: str, global_scale: str) -> None:
    args = op.generate(
        1, hidden=512, intermediate=256, weight_format=weight_format, global_scale=global_scale, num_experts=2
    )
    for name in ("w13", "w2"):
        parts = [getattr(args, name + end, None) for end in ("", "_scale", "_global_scale")]
        norms = torch.cat([op.expert_weights.dequantize(*parts, weight_format, e).norm(dim=-1) for e in (0, 1)])
        assert 0.4 < norms.median() < 2.5 and norms.max() < 6


def test_compiled_call_gives_the_same() -> None:
    args = op.generate(2, weight_format="nvfp4", activation_format="nvfp4")
    compiled = torch.compile(msa_ops.moe, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(**values(args)), msa_ops.moe(**values(args)))


def test_fake_call_needs_no_data() -> None:
    args = op.generate(3)
    with FakeTensorMode() as mode:
        fakes = {k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in values(args).items()}
        out = msa_ops.moe(**fakes)
    assert out.shape == (8, 64) and out.dtype == torch.bfloat16
