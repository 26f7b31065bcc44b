"""The clipped gated activation."""

from __future__ import annotations

import math

import pytest
import torch

from msa_ops.ops import swiglu


@pytest.mark.parametrize("gate", [-50.0, -7.5, 0.0, 3.0, 7.0, 100.0])
@pytest.mark.parametrize("up", [-9.0, -1.0, 0.5, 8.0])
def test_formula(gate: float, up: float) -> None:
    g, u = min(gate, 7.0), max(-7.0, min(up, 7.0))
    expected = (u + 1.0) * g / (1.0 + math.exp(-1.702 * g))
    assert swiglu.swigluoai(torch.tensor([gate, up])).item() == pytest.approx(expected, rel=2e-7, abs=1e-30)


def test_nan_is_not_clipped_away() -> None:
    nan = float("nan")
    assert swiglu.swigluoai(torch.tensor([[nan, 1.0], [1.0, nan]])).isnan().all()


def test_infinite_gates_and_ups_are_clipped() -> None:
    inf = float("inf")
    expected = swiglu.swigluoai(torch.tensor([7.0, 7.0]))
    assert torch.equal(swiglu.swigluoai(torch.tensor([inf, inf])), expected)


def test_a_value_does_not_depend_on_where_it_lies() -> None:
    for value in torch.randn(300, generator=torch.Generator().manual_seed(0)):
        gate_up = torch.cat((value.repeat(1031), torch.full((1031,), 0.3)))
        assert swiglu.swigluoai(gate_up).unique().numel() == 1
