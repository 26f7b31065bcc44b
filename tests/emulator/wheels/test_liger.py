"""Liger's Triton kernels, forward and backward, on emulated chips: no alarm, and torch's gradients in fp64."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.emulator.wheels import triton_driver, triton_ptx_driver
from tests.emulator.wheels.triton_driver import Launches

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("liger_kernel") is None or importlib.util.find_spec("triton") is None,
        reason="liger-kernel and triton are not installed; pip install 'msa-ops[public]'",
    ),
]
SEEDS = (None, 1, 2)


@pytest.fixture(params=["gfx950", "sm_90a", "sm_100a"])
def launches(request: pytest.FixtureRequest) -> Iterator[Launches]:
    chip = request.param
    with triton_driver.emulated_triton() if chip == "gfx950" else triton_ptx_driver.emulated_triton(chip) as launches:
        yield launches


def same_gradients(
    launches: Launches,
    function: Callable[..., Any],
    reference: Callable[..., torch.Tensor],
    *inputs: torch.Tensor,
    error: float = 1e-4,
) -> None:
    """Results and the gradients of all inputs, in order and under random schedules."""
    wide = [x.double().requires_grad_() for x in inputs]
    expected = reference(*wide)
    gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to("cuda")
    expected.backward(gradient.double())
    for launches.seed in SEEDS:
        narrow = [x.clone().requires_grad_() for x in inputs]
        result = function(*narrow)
        result = result[0] if isinstance(result, tuple) else result
        torch.testing.assert_close(result.double(), expected, rtol=error, atol=error)
        result.backward(gradient.clone())
        for found, wanted in zip(narrow, wide, strict=True):
            torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=error, atol=error)
    assert len(launches.reports) >= len(SEEDS)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to("cuda")


def test_rms_norm(launches: Launches) -> None:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    same_gradients(
        launches,
        lambda x, weight: LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False),
        lambda x, weight: torch.nn.functional.rms_norm(x, (1000,), weight, 1e-6),
        randn(6, 1000),
        randn(1000),
    )


def test_layer_norm(launches: Launches) -> None:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    same_gradients(
        launches,
        lambda x, weight, bias: LigerLayerNormFunction.apply(x, weight, bias, 1e-6),
        lambda x, weight, bias: torch.nn.functional.layer_norm(x, (1000,), weight, bias, 1e-6),
        randn(6, 1000),
        *randn(2, 1000),
    )


def test_gates(launches: Launches) -> None:
    from liger_kernel.ops.geglu import LigerGELUMulFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    both = randn(2, 6, 1000)
    same_gradients(launches, LigerSiLUMulFunction.apply, lambda a, b: torch.nn.functional.silu(a) * b, *both)
    same_gradients(
        launches, LigerGELUMulFunction.apply, lambda a, b: torch.nn.functional.gelu(a, approximate="tanh") * b, *both
    )


def test_softmax(launches: Launches) -> None:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    same_gradients(launches, LigerSoftmaxFunction.apply, lambda x: x.softmax(-1), randn(5, 900))


def test_linear_and_cross_entropy(launches: Launches) -> None:
    """Logits are made, and their gradients, in one pass."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    target = torch.randint(500, (12,), generator=torch.Generator().manual_seed(2)).to("cuda")
    same_gradients(
        launches,
        lambda x, weight: LigerFusedLinearCrossEntropyFunction.apply(x, weight, target),
        lambda x, weight: torch.nn.functional.cross_entropy(x @ weight.T, target),
        randn(12, 64),
        randn(500, 64),
        error=1e-3,
    )
