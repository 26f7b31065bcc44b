"""rms_norm on every backend, against numpy in float64 and against transformers' norm of MiniMax-M3."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLRMSNorm

from msa_ops.ops.rms_norm import VARIANTS, Args, generate
from tests.contract.guard import guarded
from tests.contract.target import Target, assert_close

OP = "rms_norm"
DTYPES = ("float32", "bfloat16", "float16")


def brute_force(x: Tensor, weight: Tensor, eps: float, gemma: bool, residual: Tensor | None = None) -> Tensor:
    """float64 [..., hidden]; the sum with the residual is taken in float64."""
    value = x.double().numpy() + (0 if residual is None else residual.double().numpy())
    with np.errstate(invalid="ignore"):
        scaled = value / np.sqrt((value * value).mean(-1, keepdims=True) + eps)
    return torch.from_numpy(scaled * (weight.double().numpy() + (1.0 if gemma else 0.0)))


def assert_right(target: Target, a: Args) -> Tensor:
    before = None if a.residual is None else a.residual.clone()
    (result,) = target.run(a)
    expected = brute_force(a.x, a.weight, a.eps, a.gemma, before)
    (tolerance,) = target.spec.tolerance(a)
    assert_close(result, expected, tolerance)
    if before is not None:
        assert torch.equal(a.residual, (a.x.float() + before.float()).to(a.x.dtype)), "residual"
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gemma", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("tokens", [0, 1, 5, 128, 129])
def test_types_and_forms(target: Target, dtype: str, gemma: bool, residual: bool, tokens: int) -> None:
    assert_right(target, generate(tokens, tokens=tokens, hidden=256, dtype=dtype, gemma=gemma, residual=residual))


@pytest.mark.parametrize("hidden", [1, 2, 8, 127, 128, 130, 6144, 12288])
def test_hidden_sizes(target: Target, hidden: int) -> None:
    assert_right(target, generate(0, tokens=3, hidden=hidden))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_variants(target: Target, variant: str, dtype: str) -> None:
    assert_right(target, generate(1, hidden=512, dtype=dtype, variant=variant))


def test_weight_in_fp32(target: Target) -> None:
    """An fp32 weight is not rounded to the dtype of x first."""
    a = generate(2, hidden=128)
    a.weight = torch.full((128,), 2.0**-9)
    a.x.fill_(1.0)
    a.eps = 1e-30
    a.gemma = False
    assert assert_right(target, a).eq(2.0**-9).all()
    a.gemma, a.weight = True, torch.full((128,), 1 + 2.0**-9 + 2.0**-16)
    assert_right(target, a)


@pytest.mark.parametrize("shape", [(128,), (2, 3, 128), (2, 0, 128), (1, 1, 2, 128)])
def test_any_number_of_dimensions(target: Target, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    a = Args(torch.randn(shape, generator=generator), torch.randn(128, generator=generator))
    assert_right(target, a)


def test_eps_decides_for_tiny_rows(target: Target) -> None:
    a = generate(4, hidden=256, dtype="float32", variant="tiny")
    results = {}
    for eps in (1e-5, 1e-6, 1e-12):
        a.eps = eps
        results[eps] = assert_right(target, a).abs().max()
    assert results[1e-5] < results[1e-6] < results[1e-12]


def test_sum_with_the_residual_is_not_rounded_before_the_norm(target: Target) -> None:
    """1 + 2^-9 has no bf16 value: the norm sees it, the residual holds what it rounds to."""
    x = torch.full((1, 128), 2.0**-9, dtype=torch.bfloat16)
    x[0, 64:] = 2.0
    residual = torch.ones(1, 128, dtype=torch.bfloat16)
    residual[0, 64:] = 0.0
    a = Args(x, torch.zeros(128, dtype=torch.bfloat16), residual=residual)
    assert_right(target, a)
    assert a.residual[0, 0] == 1.0


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_row_stays_alone(target: Target, poison: float) -> None:
    good = generate(5, tokens=8, hidden=256, residual=True)
    bad = dataclasses.replace(good, x=good.x.clone(), residual=good.residual.clone())
    bad.x[3, 17] = poison
    (expected,), (result,) = target.run(good), target.run(bad)
    rest = torch.arange(8) != 3
    assert torch.equal(result[rest], expected[rest]) and torch.equal(bad.residual[rest], good.residual[rest])
    assert result[3].isnan().any()


def test_strides_of_rows(target: Target) -> None:
    """Views with wide and with permuted rows give what copies give, and the bytes between keep their value."""
    memory = torch.randn(5, 3, 2 * 128, generator=torch.Generator().manual_seed(6)).bfloat16()
    weight = torch.randn(128, generator=torch.Generator().manual_seed(7)).bfloat16()
    for view in (memory[..., :128], memory[..., 128:].transpose(0, 1), memory[::2, :, :128]):
        kept = memory.clone()
        (result,) = target.run(Args(view, weight))
        (expected,) = target.run(Args(view.contiguous(), weight))
        assert torch.equal(result, expected) and torch.equal(memory, kept)


def test_rows_do_not_depend_on_their_batch(target: Target) -> None:
    a = generate(8, tokens=33, hidden=384)
    (together,) = target.run(a)
    alone = torch.cat([target.run(dataclasses.replace(a, x=a.x[t : t + 1]))[0] for t in range(33)])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_and_residual_between_guards(target: Target, dtype: str) -> None:
    a = generate(9, tokens=3, hidden=130, dtype=dtype, residual=True)
    kind = getattr(torch, dtype)
    with guarded((3, 130), kind) as out, guarded((3, 130), kind) as residual:
        residual.copy_(a.residual)
        target.run(dataclasses.replace(a, residual=residual), (out,))
        (expected,) = target.run(a)
        assert torch.equal(out, expected) and torch.equal(residual, a.residual)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transformers(target: Target, dtype: str) -> None:
    """MiniMaxM3VLRMSNorm, in the dtypes that it is used with."""
    a = generate(10, tokens=7, hidden=6144, dtype=dtype)
    norm = MiniMaxM3VLRMSNorm(6144, eps=a.eps).requires_grad_(False)
    norm.weight.copy_(a.weight)
    (result,) = target.run(dataclasses.replace(a, weight=norm.weight))
    (tolerance,) = target.spec.tolerance(a)
    assert_close(result, norm(a.x), tolerance)
