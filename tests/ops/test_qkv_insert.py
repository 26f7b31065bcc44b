"""qkv_insert: refusals of weight, scales and formats; the rest is in test_insert_epilogue and the contract."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from msa_ops.ops.qkv_insert import OP, Args, cost, generate, project


def call(a: Args) -> tuple[torch.Tensor, torch.Tensor]:
    return OP(**{name: getattr(a, name) for name in a.__dataclass_fields__})


WEIGHT = torch.zeros(8 * 128, 256, dtype=torch.bfloat16)
SCALE = torch.zeros(8 * 128, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "weight_format", "change"),
    [
        ("x", "none", {"x": torch.zeros(12, 2, 128)}),
        ("x", "none", {"x": torch.zeros(12, 256, dtype=torch.int32)}),
        ("x", "none", {"x": torch.zeros(12, 260, dtype=torch.bfloat16)[:, 1:257]}),
        ("qkv_weight", "none", {"qkv_weight": WEIGHT[:-128]}),
        ("qkv_weight", "none", {"qkv_weight": WEIGHT[:, :128]}),
        ("qkv_weight", "none", {"qkv_weight": torch.zeros(256, 8 * 128, dtype=torch.bfloat16).t()}),
        ("qkv_weight", "none", {"qkv_weight": WEIGHT.to(torch.float8_e4m3fnuz)}),
        ("qkv_weight", "none", {"qkv_weight": WEIGHT.to(torch.float8_e5m2)}),
        ("qkv_weight_scale", "none", {"qkv_weight_scale": SCALE}),
        ("qkv_weight_scale", "mxfp8", {"qkv_weight_scale": None}),
        ("qkv_weight_scale", "mxfp8", {"qkv_weight_scale": SCALE[:, :4]}),
        ("qkv_weight_scale", "mxfp8", {"qkv_weight_scale": SCALE.float()}),
        ("qkv_weight_scale", "mxfp8", {"qkv_weight_scale": torch.zeros(8, 8 * 128, dtype=torch.uint8).t()}),
        ("input_format", "none", {"input_format": "fp8"}),
    ],
)
def test_bad_input_names_the_argument(name: str, weight_format: str, change: dict[str, Any]) -> None:
    a = dataclasses.replace(generate(0, weight_format=weight_format, num_kv_heads=1), **change)
    with pytest.raises(ValueError, match=rf"^{name}: .*accepted"):
        call(a)


@pytest.mark.parametrize("options", [{"input_format": "mxfp8"}, {"weight_format": "mxfp8"}])
def test_mxfp8_needs_whole_groups(options: dict[str, str]) -> None:
    a = generate(0, hidden=64, **options)
    a.x, a.qkv_weight = a.x[:, :48], a.qkv_weight[:, :48]
    with pytest.raises(ValueError, match=r"^x: hidden 48; accepted with MXFP8: multiples of 32"):
        call(a)


def test_projection_is_the_correctly_rounded_sum() -> None:
    """Cancellation that an fp32 sum would lose."""
    a = generate(0, batch=1, q_len=1, hidden=32, dtype="float32")
    a.x = torch.zeros(1, 32)
    a.x[0, :3] = torch.tensor([2.0**30, 1.0, -(2.0**30)])
    a.qkv_weight = torch.ones_like(a.qkv_weight)
    assert project(a).eq(1.0).all()


def test_cost_counts_weight_and_scales() -> None:
    a, b = generate(0), generate(0, weight_format="mxfp8")
    width = a.qkv_weight.shape[0]
    assert cost(a).bytes_read - cost(b).bytes_read == width * 256 * 2 - width * 256 - width * 8
    assert cost(a).flops > 2 * 12 * 256 * width
