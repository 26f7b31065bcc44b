"""rms_norm: refusals, inputs, costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import msa_ops
from msa_ops.ops.rms_norm import SPEC, facts, generate

X = torch.zeros(4, 128, dtype=torch.bfloat16)
W = torch.zeros(128, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "x", "weight", "options"),
    [
        ("x", torch.zeros(()), W, {}),
        ("x", X.to(torch.float64), W, {}),
        ("x", X.to(torch.float8_e4m3fn), W, {}),
        ("x", X.t(), torch.zeros(4), {}),
        ("weight", X, W[:64], {}),
        ("weight", X, W.half(), {}),
        ("weight", X, X, {}),
        ("eps", X, W, {"eps": 0.0}),
        ("eps", X, W, {"eps": 1e39}),
        ("eps", X, W, {"eps": 1e-46}),
        ("eps", X, W, {"eps": float("nan")}),
        ("residual", X, W, {"residual": X[:2]}),
        ("residual", X, W, {"residual": X.float()}),
        ("residual", X, W, {"residual": torch.zeros(128, 4, dtype=torch.bfloat16).t()}),
    ],
)
def test_bad_input_names_the_argument(name: str, x: torch.Tensor, weight: torch.Tensor, options: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: .*accepted"):
        msa_ops.rms_norm(x, weight, **options)


def test_out_may_not_be_an_input() -> None:
    x = torch.randn(4, 128)
    with pytest.raises(ValueError, match="out: shares memory with x"):
        msa_ops.rms_norm(x, torch.zeros(128), out=x)
    residual = torch.randn(4, 128)
    with pytest.raises(ValueError, match="out: shares memory with residual"):
        msa_ops.rms_norm(x, torch.zeros(128), residual=residual, out=residual)


def test_constant_rows_become_ones() -> None:
    result = msa_ops.rms_norm(torch.full((2, 64), -3.0), torch.zeros(64), eps=1e-30)
    torch.testing.assert_close(result, torch.full((2, 64), -1.0))


def test_default_is_the_gemma_form() -> None:
    x, weight = torch.ones(1, 8), torch.full((8,), 0.5)
    torch.testing.assert_close(msa_ops.rms_norm(x, weight, eps=1e-30), torch.full((1, 8), 1.5))
    torch.testing.assert_close(msa_ops.rms_norm(x, weight, eps=1e-30, gemma=False), torch.full((1, 8), 0.5))


def test_facts_and_cost() -> None:
    a = generate(0, tokens=5, hidden=64, residual=True)
    assert (facts(a).dtype, facts(a).weight_dtype, facts(a).hidden, facts(a).residual) == (*["bfloat16"] * 2, 64, True)
    cost = SPEC.cost(a)
    assert cost.bytes_read == 5 * 64 * 2 * 2 + 64 * 2
    assert cost.bytes_written == 5 * 64 * 2 * 2
    assert cost.flops == 4 * 5 * 64


def test_compiles_as_one_graph() -> None:
    x, weight, residual = torch.randn(3, 64), torch.randn(64), torch.randn(3, 64)

    def step(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return msa_ops.rms_norm(x, weight, residual=residual) + residual

    eager, compiled = residual.clone(), residual.clone()
    expected = step(x, eager)
    assert torch.equal(torch.compile(step, backend="aot_eager", fullgraph=True)(x, compiled), expected)
    assert torch.equal(compiled, eager)
