"""What every backend of route_experts must do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLTopKRouter

from msa_ops.ops.route_experts import VARIANTS, Args, generate
from tests.contract.guard import guarded
from tests.contract.oracles import router
from tests.contract.target import Target

OP = "route_experts"

NEAR = 2e-6
"""Scores this near may be ranked either way by a backend with another exponential, unless their logits are equal."""


def check_routing(args: Args, weights: Tensor, ids: Tensor) -> None:
    """Compares with the oracle: ranking to within near ties, weights of the ids that were chosen."""
    logits = args.logits.float().numpy()
    bias = None if args.bias is None else args.bias.numpy()
    experts = logits.shape[1]
    assert weights.dtype == torch.float32 and ids.dtype == torch.int32
    assert weights.shape == ids.shape == (len(logits), args.top_k)
    found = ids.numpy().astype(np.int64)
    assert ((found >= 0) & (found < experts)).all(), "an id is out of range"
    assert all(len(set(row)) == args.top_k for row in found), "an expert stands twice in a row"

    values = router.choice(logits, bias, args.scoring)
    expected = router.choose(values, args.top_k)
    for token, slot in np.argwhere(found != expected):
        got, wanted = values[token, found[token, slot]], values[token, expected[token, slot]]
        assert abs(got - wanted) <= NEAR and got != wanted, f"token {token} slot {slot}: {got}, expected {wanted}"
    expected_weights = router.weights(router.scores(logits, args.scoring), found, args.renormalize, args.scaling)
    np.testing.assert_allclose(weights.double().numpy(), expected_weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_oracle(target: Target, variant: str, scoring: str) -> None:
    args = generate(0, tokens=33, variant=variant, scoring=scoring)
    check_routing(args, *target.run(args))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("experts", "top_k"), [(1, 1), (3, 3), (7, 2), (32, 8), (130, 4), (256, 64), (1024, 16)])
def test_sizes_and_dtypes(target: Target, experts: int, top_k: int, dtype: str) -> None:
    args = generate(1, tokens=9, num_experts=experts, top_k=top_k, dtype=dtype, bias=experts % 2 == 0)
    check_routing(args, *target.run(args))


def test_all_experts_chosen(target: Target) -> None:
    args = generate(2, tokens=3, num_experts=1024, top_k=1024)
    weights, ids = target.run(args)
    check_routing(args, weights, ids)
    assert torch.equal(ids.sort(-1).values, torch.arange(1024, dtype=torch.int32).expand(3, -1))


@pytest.mark.parametrize(("renormalize", "scaling"), [(True, 1.0), (True, 2.5), (False, 1.0), (False, 0.7)])
def test_renormalize_and_scaling(target: Target, renormalize: bool, scaling: float) -> None:
    args = generate(3, renormalize=renormalize, scaling=scaling)
    weights, ids = target.run(args)
    check_routing(args, weights, ids)
    if renormalize:
        torch.testing.assert_close(weights.sum(-1), torch.full((16,), scaling), rtol=1e-5, atol=0)


@pytest.mark.parametrize("experts", [1, 2, 3, 7, 17, 31, 33, 127, 130, 1001, 1024])
def test_equal_logits_go_to_the_lowest_ids(target: Target, experts: int) -> None:
    """Single rows with odd tails: a vectorised sigmoid must give the tail the bits of the rest."""
    top_k = min(experts, 5)
    for value in torch.randn(60, generator=torch.Generator().manual_seed(experts)):
        weights, ids = target.run(Args(value.repeat(1, experts), top_k=top_k, scaling=1.0))
        assert ids.tolist() == [list(range(top_k))], f"logit {value.item()!r}"
        assert bool((weights == weights[:, :1]).all())


def test_every_pattern_of_nan_and_infinity(target: Target) -> None:
    """NaN behind -inf, equal values by id, ids unique and in range, for all rows of 5 experts over 4 values."""
    values = [float("nan"), float("-inf"), float("inf"), 0.5]
    logits = torch.tensor(list(itertools.product(values, repeat=5)))
    for top_k in range(1, 6):
        for scoring in ("sigmoid", "softmax"):
            args = Args(logits, top_k=top_k, scoring=scoring)
            check_routing(args, *target.run(args))


def test_every_pattern_of_bias(target: Target) -> None:
    """NaN, infinities and both zeros in the bias, over scores of 0 where the sign of a zero could show."""
    patterns = itertools.product([float("nan"), float("-inf"), float("inf"), 0.0, -0.0], repeat=4)
    logits = torch.tensor([[float("-inf")] * 4, [0.0, 1.0, 1.0, 2.0]])
    for bias in itertools.islice(patterns, 0, None, 3):
        args = Args(logits, torch.tensor(bias), top_k=4)
        check_routing(args, *target.run(args))


def test_bias_chooses_and_does_not_weigh(target: Target) -> None:
    logits = torch.zeros(2, 6)
    logits[:, 0] = 3.0
    bias = torch.tensor([-5.0, 0.0, 0.3, 0.0, 0.2, 0.0])
    weights, ids = target.run(Args(logits, bias, top_k=3, renormalize=False, scaling=1.0))
    assert ids.tolist() == [[2, 4, 1]] * 2
    assert torch.equal(weights, torch.full((2, 3), 0.5))
    without, _ = target.run(Args(logits, None, top_k=3, renormalize=False, scaling=1.0))
    assert without[0, 0] > 0.95


def test_sum_of_zero_and_nan(target: Target) -> None:
    """Scores of 0 give weights of 0; NaN stays in its slot and its row."""
    logits = torch.full((4, 6), -torch.inf)
    logits[1] = torch.nan
    logits[2] = torch.tensor([torch.nan, torch.nan, torch.nan, torch.nan, 0.0, 0.0])
    logits[3] = 0.0
    weights, ids = target.run(Args(logits, top_k=3, scaling=3.0))
    assert ids.tolist() == [[0, 1, 2], [0, 1, 2], [4, 5, 0], [0, 1, 2]]
    assert torch.equal(weights[0], torch.zeros(3))
    assert bool(weights[1].isnan().all())
    assert weights[2].isnan().tolist() == [False, False, True]
    torch.testing.assert_close(weights[2, :2], torch.full((2,), 1.5))
    torch.testing.assert_close(weights[3], torch.ones(3))


def test_rows_do_not_depend_on_each_other(target: Target) -> None:
    args = generate(5, tokens=11, num_experts=130)
    weights, ids = target.run(args)
    for row in range(11):
        alone = Args(args.logits[row : row + 1], args.bias)
        one_weights, one_ids = target.run(alone)
        assert torch.equal(one_weights[0], weights[row]) and torch.equal(one_ids[0], ids[row])
    poisoned = args.logits.clone()
    poisoned[4] = torch.nan
    poisoned[6] = torch.inf
    others = [row for row in range(11) if row not in (4, 6)]
    after_weights, after_ids = target.run(Args(poisoned, args.bias))
    assert torch.equal(after_weights[others], weights[others]) and torch.equal(after_ids[others], ids[others])


def test_renaming_experts_renames_ids(target: Target) -> None:
    args = generate(6, tokens=12)
    weights, ids = target.run(args)
    names = torch.randperm(128, generator=torch.Generator().manual_seed(6))
    renamed_weights, renamed_ids = target.run(Args(args.logits[:, names].contiguous(), args.bias[names]))
    assert torch.equal(names[renamed_ids.long()].int(), ids)
    torch.testing.assert_close(renamed_weights, weights, rtol=1e-6, atol=0)


@pytest.mark.parametrize("tokens", [0, 1, 64])
def test_guard_bytes_and_repeats(target: Target, tokens: int) -> None:
    args = generate(7, tokens=tokens)
    first = target.run(args)
    with guarded((tokens, 4), torch.float32) as weights, guarded((tokens, 4), torch.int32) as ids:
        target.run(args, (weights, ids))
        assert torch.equal(weights, first[0]) and torch.equal(ids, first[1])


def test_transformers_router(target: Target) -> None:
    """MiniMax-M3's router: the same experts, and the same weights once its order is undone."""
    config = MiniMaxM3VLTextConfig(hidden_size=48, num_local_experts=40, num_experts_per_tok=4)
    module = MiniMaxM3VLTopKRouter(config)
    generator = torch.Generator().manual_seed(8)
    module.weight.data.normal_(generator=generator)
    module.e_score_correction_bias.normal_(0, 0.1, generator=generator)
    with torch.no_grad():
        logits, expected_weights, expected_ids = module(torch.randn(25, 48, generator=generator) * 0.2)
    weights, ids = target.run(Args(logits, module.e_score_correction_bias, scaling=config.routed_scaling_factor))

    def dense(weight: Tensor, expert: Tensor) -> Tensor:
        return torch.zeros(25, 40).scatter_(1, expert.long(), weight)

    expected = dense(expected_weights * config.routed_scaling_factor, expected_ids)
    torch.testing.assert_close(dense(weights, ids), expected, rtol=1e-5, atol=1e-7)
