"""What every backend of moe must do: values, formats, routing, isolation. Peers' modules stand in test_moe_peers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from msa_ops.ops.moe import ACTIVATION_FORMATS, Args, generate
from msa_ops.ops.moe_inputs import VARIANTS
from tests.contract.guard import guarded
from tests.contract.oracles import experts
from tests.contract.target import Target, assert_close

OP = "moe"
WEIGHT_FORMATS = ("none", "nvfp4", "mxfp8", "mxfp4")
FP32 = {"dtype": "float32", "weight_dtype": "float32"}


def run(target: Target, args: Args) -> Tensor:
    (out,) = target.run(args)
    return out


def check(target: Target, args: Args) -> Tensor:
    """Runs and compares with the oracle, within the op's tolerance."""
    out = run(target, args)
    assert out.dtype == args.x.dtype
    assert_close(out, experts.moe(args), target.spec.tolerance(args)[0])
    return out


def same(target: Target, result: Tensor, expected: Tensor, args: Args) -> None:
    """Equal bits from the reference, whose rows do not depend on the batch; others promise the tolerance."""
    if target.backend == "reference":
        assert torch.equal(result.view(torch.uint8), expected.view(torch.uint8))
    else:
        assert_close(result, expected, target.spec.tolerance(args)[0])


def replace(args: Args, **changes: Any) -> Args:
    return dataclasses.replace(args, **changes)


def scalar_experts(values: Tensor, ups: Tensor, **options: Any) -> Args:
    """H = I = 1 and identity weights: out = act(x, up * x); expert e has the up weight ups[e]."""
    count = len(ups)
    w13 = torch.stack((torch.ones(count), ups), dim=1).unsqueeze(-1)
    ids = torch.arange(count, dtype=torch.int32).repeat(len(values), 1)
    return Args(values.unsqueeze(1), w13, torch.ones(count, 1, 1), ids, torch.ones(ids.shape), **options)


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_oracle(target: Target, variant: str, weight_format: str) -> None:
    check(target, generate(0, weight_format=weight_format, variant=variant, **FP32))


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
@pytest.mark.parametrize("activation_format", ACTIVATION_FORMATS[1:])
def test_quantised_activations(target: Target, activation_format: str, weight_format: str) -> None:
    """All rows within the op's tolerance, and nearly all (those without a value at a decision point) close."""
    args = generate(1, tokens=40, weight_format=weight_format, activation_format=activation_format, **FP32)
    out = check(target, args)
    error = (out - experts.moe(args)).abs().amax(-1)
    assert (error < 2e-5).double().mean() >= 0.9
    plain = run(target, replace(args, activation_format="none"))
    assert bool(((out - plain).abs().amax(-1) > 1e-3).all()), "activations were not quantised"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("weight_format", "weight_dtype"),
    [("none", "bfloat16"), ("none", "float16"), ("none", "float32"), ("nvfp4", "uint8"), ("mxfp8", "uint8")],
)
def test_dtypes(target: Target, dtype: str, weight_format: str, weight_dtype: str) -> None:
    check(target, generate(2, dtype=dtype, weight_format=weight_format, weight_dtype=weight_dtype))


@pytest.mark.parametrize(
    ("weight_format", "hidden", "intermediate"),
    [
        ("none", 1, 1),
        ("none", 5, 7),
        ("none", 130, 33),
        ("nvfp4", 16, 16),
        ("nvfp4", 48, 160),
        ("nvfp4", 272, 112),
        ("nvfp4", 32, 2880),
        ("mxfp8", 32, 32),
        ("mxfp8", 96, 160),
        ("mxfp4", 160, 96),
        ("mxfp4", 32, 1856),
    ],
)
@pytest.mark.parametrize("tokens", [1, 3, 33])
def test_sizes(target: Target, tokens: int, weight_format: str, hidden: int, intermediate: int) -> None:
    """Any multiple of the group, for rows and for columns."""
    sizes = {"tokens": tokens, "hidden": hidden, "intermediate": intermediate}
    check(target, generate(3, num_experts=5, top_k=3, weight_format=weight_format, **sizes, **FP32))


@pytest.mark.parametrize("global_scale", ["none", "expert", "gate_up"])
@pytest.mark.parametrize("weight_format", ["none", "nvfp4"])
def test_tokens_equal_hidden_equal_everything(target: Target, weight_format: str, global_scale: str) -> None:
    """No dimension can be taken for another by its size without a wrong result."""
    sizes = {"tokens": 32, "hidden": 32, "intermediate": 16, "num_experts": 32, "top_k": 32}
    check(target, generate(4, weight_format=weight_format, global_scale=global_scale, **sizes, **FP32))


@pytest.mark.parametrize(("num_experts", "top_k"), [(1, 1), (2, 2), (128, 4), (16, 16)])
def test_numbers_of_experts(target: Target, num_experts: int, top_k: int) -> None:
    args = generate(5, tokens=40, hidden=32, num_experts=num_experts, top_k=top_k, weight_format="nvfp4", **FP32)
    check(target, args)


def test_dense_mlp(target: Target) -> None:
    """One expert, ids 0 and weights 1: the shared expert."""
    args = generate(6, tokens=7, num_experts=1, top_k=1, **FP32)
    args = replace(args, topk_weights=torch.ones(7, 1))
    gate, up = (args.x.double() @ args.w13[0].double().T).chunk(2, -1)
    gate, up = gate.clamp(max=7), up.clamp(-7, 7)
    expected = (gate * torch.sigmoid(1.702 * gate) * (up + 1)) @ args.w2[0].double().T
    assert_close(run(target, args), expected, target.spec.tolerance(args)[0])


@pytest.mark.parametrize("options", [{}, {"alpha": 0.05}, {"limit": 2.5}, {"beta": -0.3}, {"limit": float("inf")}])
def test_activation_clips_and_parameters(target: Target, options: dict) -> None:
    """The gate has no lower clip, up has both; each element against the formula."""
    values = torch.tensor([-30.0, -7.5, -7.0, -1.0, -0.0, 0.3, 2.5, 6.9, 7.0, 7.1, 40.0])
    args = scalar_experts(values, torch.tensor([-2.0, -0.25, 0.0, 1.0, 1.5]), **options)
    one_at_a_time = [
        replace(args, topk_ids=args.topk_ids[:, e : e + 1], topk_weights=torch.ones(11, 1)) for e in range(5)
    ]
    for each in one_at_a_time:
        np.testing.assert_allclose(run(target, each).double().numpy(), experts.moe(each).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
@pytest.mark.parametrize("change", [{"alpha": 1.0}, {"limit": 0.5}, {"beta": 0.0}])
def test_parameters_reach_the_kernel(target: Target, change: dict, weight_format: str) -> None:
    args = generate(7, weight_format=weight_format, **FP32)
    plain, changed = run(target, args), check(target, replace(args, **change))
    assert bool(((plain - changed).abs().amax(-1) > 1e-2).all())


def test_usual_swiglu(target: Target) -> None:
    args = generate(8, alpha=1.0, beta=0.0, limit=float("inf"), num_experts=1, top_k=1, variant="large", **FP32)
    gate, up = (args.x.double() @ args.w13[0].double().T).chunk(2, -1)
    expected = args.topk_weights * ((torch.nn.functional.silu(gate) * up) @ args.w2[0].double().T)
    torch.testing.assert_close(run(target, args).double(), expected, rtol=1e-5, atol=0.05)


def test_gate_rows_come_first(target: Target) -> None:
    """[gate; up], not interleaved: with I = 2, rows 0 and 1 are gates."""
    w13 = torch.tensor([1.0, 2.0, 0.5, -0.5]).reshape(1, 4, 1)
    args = Args(
        torch.ones(1, 1), w13, torch.tensor([[[1.0, 10.0]]]), torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, 1)
    )
    sigmoid = torch.sigmoid(torch.tensor([1.702, 3.404], dtype=torch.float64))
    expected = 1.5 * 1.0 * sigmoid[0] + 10 * 0.5 * 2.0 * sigmoid[1]
    torch.testing.assert_close(run(target, args).double(), expected.reshape(1, 1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
def test_experts_without_tokens_are_not_read(target: Target, weight_format: str) -> None:
    args = generate(9, weight_format=weight_format, variant="few_experts", **FP32)
    unused = [e for e in range(8) if e not in args.topk_ids.unique().tolist()]
    assert len(unused) >= 4
    poisoned = {}
    for name in ("w13", "w2", "w13_scale", "w2_scale", "w13_global_scale", "w2_global_scale"):
        if (value := getattr(args, name)) is not None:
            poisoned[name] = value.clone()
            if value.itemsize == 1:
                poisoned[name].view(torch.uint8)[unused] = 0xFF  # a NaN scale or element, or two codes of -6
            else:
                poisoned[name][unused] = torch.nan
    same(target, run(target, replace(args, **poisoned)), run(target, args), args)


def test_ids_outside_add_nothing(target: Target) -> None:
    """Their weight may be anything; tokens without an expert are exactly 0."""
    args = generate(10, tokens=30, top_k=3, variant="padding", **FP32)
    out = check(target, args)
    absent = (args.topk_ids < 0) | (args.topk_ids >= 8)
    assert bool(absent.any()) and bool(absent.all(-1).any()) and not bool(absent.all())
    assert torch.equal(
        out[absent.all(-1)].view(torch.int32), torch.zeros(int(absent.all(-1).sum()), 64, dtype=torch.int32)
    )
    zeroed = replace(args, topk_weights=torch.where(absent, 0.0, args.topk_weights))
    same(target, run(target, zeroed), out, args)
    moved = replace(args, topk_ids=args.topk_ids.roll(1, 1), topk_weights=args.topk_weights.roll(1, 1))
    assert_close(run(target, moved), out, target.spec.tolerance(args)[0])


@pytest.mark.parametrize("weight_format", ["none", "nvfp4"])
def test_ranks_of_expert_parallelism_add_up(target: Target, weight_format: str) -> None:
    """A rank holds a slice of the experts (a view) and ids less its first expert."""
    args = generate(11, tokens=12, top_k=4, weight_format=weight_format, **FP32)
    whole, total = run(target, args), torch.zeros(12, 64)
    for first, last in ((0, 3), (3, 4), (4, 8)):
        parts = {
            name: value[first:last]
            for name in ("w13", "w2", "w13_scale", "w2_scale", "w13_global_scale", "w2_global_scale")
            if (value := getattr(args, name)) is not None
        }
        total += run(target, replace(args, topk_ids=args.topk_ids - first, **parts))
    torch.testing.assert_close(total, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weight_format", ["none", "nvfp4", "mxfp8"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_token_stays_in_its_row(target: Target, bad: float, weight_format: str) -> None:
    args = generate(12, tokens=20, weight_format=weight_format, **FP32)
    before = run(target, args)
    x, factors = args.x.clone(), args.topk_weights.clone()
    x[5, 3], factors[9, 1] = bad, bad
    after = run(target, replace(args, x=x, topk_weights=factors))
    others = [t for t in range(20) if t not in (5, 9)]
    same(target, after[others], before[others], args)
    assert not bool(after[9].isfinite().any())
    if bad != bad:
        assert bool(after[5].isnan().all()), "a NaN was turned into a number"


def test_a_bad_expert_stays_with_its_tokens(target: Target) -> None:
    args = generate(13, tokens=20, **FP32)
    before = run(target, args)
    w2 = args.w2.clone()
    w2[3] = torch.nan
    after = run(target, replace(args, w2=w2))
    hit = (args.topk_ids == 3).any(-1)
    assert bool(hit.any()) and bool(after[hit].isnan().all())
    same(target, after[~hit], before[~hit], args)


def test_an_expert_twice_counts_twice(target: Target) -> None:
    args = generate(14, num_experts=4, top_k=1, **FP32)
    twice = replace(
        args,
        topk_ids=args.topk_ids.repeat(1, 2),
        topk_weights=torch.cat((args.topk_weights, 0.3 * args.topk_weights), 1),
    )
    assert_close(run(target, twice), 1.3 * run(target, args), target.spec.tolerance(args)[0])


def test_sum_is_fp32_in_slot_order(target: Target) -> None:
    """Large slots that cancel before a small one comes, and many small ones that bf16 sums would lose."""
    args = generate(15, num_experts=1, top_k=1, tokens=4, dtype="float32", weight_dtype="float32")
    one = run(target, replace(args, topk_weights=torch.ones(4, 1)))
    cancelling = torch.tensor([2.0**27, -(2.0**27), 1.0]).repeat(4, 1)
    ids = torch.zeros(4, 3, dtype=torch.int32)
    torch.testing.assert_close(
        run(target, replace(args, topk_ids=ids, topk_weights=cancelling)), one, rtol=1e-6, atol=1e-6
    )
    many = torch.cat((torch.ones(4, 1), torch.full((4, 256), 2.0**-10)), 1)
    args = replace(args, x=args.x.bfloat16(), topk_ids=torch.zeros(many.shape, dtype=torch.int32), topk_weights=many)
    one = run(target, replace(args, x=args.x.float(), topk_ids=ids[:, :1], topk_weights=torch.ones(4, 1)))
    torch.testing.assert_close(run(target, args).float(), 1.25 * one, rtol=2.0**-8, atol=1e-5)


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
@pytest.mark.parametrize("activation_format", ACTIVATION_FORMATS)
def test_a_token_does_not_depend_on_its_batch(target: Target, activation_format: str, weight_format: str) -> None:
    """Alone, in another order, and in a crowd at the same experts."""
    formats = {"weight_format": weight_format, "activation_format": activation_format}
    intermediate = 161 if activation_format == weight_format == "none" else 160
    args = generate(16, tokens=70, num_experts=3, hidden=96, intermediate=intermediate, **formats, **FP32)
    out = run(target, args)

    def part(rows: Tensor) -> Tensor:
        picked = {name: getattr(args, name)[rows] for name in ("x", "topk_ids", "topk_weights")}
        return run(target, replace(args, **picked))

    order = torch.randperm(70, generator=torch.Generator().manual_seed(16))
    same(target, part(order), out[order], args)
    for rows in (torch.arange(0, 1), torch.arange(41, 43), torch.arange(3, 70, 2)):
        same(target, part(rows), out[rows], args)


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
def test_renaming_experts_changes_nothing(target: Target, weight_format: str) -> None:
    args = generate(17, weight_format=weight_format, **FP32)
    names = torch.randperm(8, generator=torch.Generator().manual_seed(17))
    moved = {
        name: value[names]
        for name in ("w13", "w2", "w13_scale", "w2_scale", "w13_global_scale", "w2_global_scale")
        if (value := getattr(args, name)) is not None
    }
    ids = names.argsort()[args.topk_ids.long()].int()
    same(target, run(target, replace(args, topk_ids=ids, **moved)), run(target, args), args)


def test_global_scales_multiply(target: Target) -> None:
    """w2's scales the output; w13's two halves act on gate and up alone."""
    args = generate(18, weight_format="nvfp4", **FP32)
    plain = run(target, args)
    scaled = run(target, replace(args, w2_global_scale=args.w2_global_scale * 1.7))
    torch.testing.assert_close(scaled, 1.7 * plain, rtol=1e-5, atol=1e-5)
    swapped = check(target, replace(args, w13_global_scale=args.w13_global_scale.flip(1)))
    assert bool(((swapped - plain).abs().amax(-1) > 1e-3).all())
    one = replace(args, w13_global_scale=args.w13_global_scale[:, 0].contiguous())
    both = replace(args, w13_global_scale=args.w13_global_scale[:, :1].expand(-1, 2))
    same(target, run(target, one), run(target, both), args)


def test_scales_may_be_typed_or_bytes(target: Target) -> None:
    args = generate(19, weight_format="nvfp4", **FP32)
    typed = replace(
        args, w13_scale=args.w13_scale.view(torch.float8_e4m3fn), w2_scale=args.w2_scale.view(torch.float8_e4m3fn)
    )
    assert torch.equal(run(target, typed), run(target, args))


@pytest.mark.parametrize(
    ("weight_format", "group", "scales"),
    [("nvfp4", 16, range(127)), ("mxfp4", 32, range(100, 150)), ("mxfp8", 32, range(100, 150, 7))],
)
def test_every_code_and_scale(target: Target, weight_format: str, group: int, scales: range) -> None:
    """Rows of w2 with one code each, every code under every scale, E4M3 subnormals and -0 among them."""
    codes = [c for c in range(256) if c & 127 != 127] if weight_format == "mxfp8" else list(range(16))
    pairs = [(code, scale) for code in codes for scale in scales]
    hidden, columns = -(-len(pairs) // 32) * 32, 32
    one = 0x38 if weight_format == "nvfp4" else 127  # the scale 1
    w2 = torch.zeros(1, hidden, columns, dtype=torch.uint8)
    w2_scale = torch.full((1, hidden, columns // group), one, dtype=torch.uint8)
    for row, (code, scale) in enumerate(pairs):
        w2[0, row, row % columns], w2_scale[0, row, row % columns // group] = code, scale
    w13 = torch.zeros(1, 2 * columns, hidden, dtype=torch.uint8)
    w13[:, :columns, 0] = 0x38 if weight_format == "mxfp8" else 2  # gate = x[0] = 1, up = 0
    if weight_format == "mxfp8":
        w13, w2 = w13.view(torch.float8_e4m3fn), w2.view(torch.float8_e4m3fn)
    else:
        w13, w2 = (w[..., 0::2] | (w[..., 1::2] << 4) for w in (w13, w2))
    x = torch.zeros(1, hidden)
    x[0, 0] = 1.0
    args = Args(
        x,
        w13,
        w2,
        torch.zeros(1, 1, dtype=torch.int32),
        torch.ones(1, 1),
        weight_format=weight_format,
        w13_scale=torch.full((1, 2 * columns, hidden // group), one, dtype=torch.uint8),
        w2_scale=w2_scale,
    )
    np.testing.assert_allclose(run(target, args).double().numpy(), experts.moe(args).numpy(), rtol=1e-6, atol=0)


def test_weights_are_linear(target: Target) -> None:
    args = generate(21, tokens=9, **FP32)
    doubled = replace(args, topk_weights=2 * args.topk_weights)
    same(target, run(target, doubled), 2 * run(target, args), args)


@pytest.mark.parametrize("tokens", [0, 1, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_guard_bytes_and_repeats(target: Target, tokens: int, dtype: str) -> None:
    args = generate(22, tokens=tokens, dtype=dtype, weight_format="nvfp4")
    first = run(target, args)
    with guarded((tokens, 64), getattr(torch, dtype)) as out:
        target.run(args, (out,))
        assert torch.equal(out.view(torch.uint8), first.view(torch.uint8))
    assert torch.equal(run(target, args).view(torch.uint8), first.view(torch.uint8))
