"""route_experts: the router of a mixture of experts, from logits to the chosen experts and their weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.ops import checks, fact_values
from msa_ops.ops.token_bucket import token_bucket
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

MAX_EXPERTS = 1024
SCORINGS = ("sigmoid", "softmax")
VARIANTS = ("plain", "ties", "saturated", "negative", "nan", "infinite", "bias_extremes", "strided")


@dataclass(slots=True)
class Args:
    logits: Tensor
    bias: Tensor | None = None
    top_k: int = 4
    scoring: str = "sigmoid"
    renormalize: bool = True
    scaling: float = 2.0


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    ACCEPTED = fact_values.accepted(scoring=SCORINGS, num_experts=fact_values.Range(1, MAX_EXPERTS))

    dtype: str = "float32"
    tokens: int = 1
    num_experts: int = 128
    top_k: int = 4
    scoring: str = "sigmoid"
    bias: bool = True
    renormalize: bool = True

    def check(self) -> None:
        super().check()
        checks.between("top_k", self.top_k, 1, self.num_experts)


def check(a: Args) -> None:
    checks.tensor("logits", a.logits, (None, None), *checks.FLOATS)
    checks.contiguous_rows("logits", a.logits)
    experts = a.logits.shape[1]
    if not 1 <= experts <= MAX_EXPERTS:
        raise ValueError(f"logits: {experts} experts; accepted: 1 to {MAX_EXPERTS}")
    if a.bias is not None:
        checks.tensor("bias", a.bias, (experts,), torch.float32)
        checks.contiguous_rows("bias", a.bias)
    if not 1 <= a.top_k <= experts:
        raise ValueError(f"top_k: {a.top_k}; accepted: 1 to {experts}, the number of experts")
    checks.choice("scoring", a.scoring, SCORINGS)
    if not math.isfinite(a.scaling):
        raise ValueError(f"scaling: {a.scaling}; accepted: a finite number")


def meta(a: Args) -> tuple[Tensor, ...]:
    shape = (a.logits.shape[0], a.top_k)
    return (
        torch.empty(shape, dtype=torch.float32, device=a.logits.device),
        torch.empty(shape, dtype=torch.int32, device=a.logits.device),
    )


def reference(a: Args) -> tuple[Tensor, ...]:
    # fp64 and one rounding: torch's fp32 sigmoid gives other bits in the tail of a tensor than in its vector part,
    # so equal logits would not tie.
    logits = a.logits.double()
    scores = (torch.sigmoid(logits) if a.scoring == "sigmoid" else torch.softmax(logits, dim=-1)).float()
    ids = order(scores if a.bias is None else scores + a.bias)[:, : a.top_k]
    chosen = scores.gather(1, ids).double()
    if a.renormalize:
        total = chosen.sum(-1, keepdim=True)
        chosen = torch.where((total > 0) & total.isfinite(), chosen / total, chosen)
    return (chosen * a.scaling).float(), ids.to(torch.int32)


def order(choice: Tensor) -> Tensor:
    """Expert ids of each row by falling score; equal scores by rising id, NaN behind every number."""
    nan = choice.isnan()
    numbers = torch.where(nan, -torch.inf, choice) + 0.0  # + 0.0 makes -0 a +0, for sorts that look at bits
    ids = numbers.argsort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, nan.gather(-1, ids).to(torch.uint8).argsort(dim=-1, stable=True))


def facts(a: Args) -> Facts:
    return Facts(
        dtype=str(a.logits.dtype).removeprefix("torch."),
        tokens=token_bucket(a.logits.shape[0]),
        num_experts=a.logits.shape[1],
        top_k=a.top_k,
        scoring=a.scoring,
        bias=a.bias is not None,
        renormalize=a.renormalize,
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    tokens: int = 16,
    num_experts: int = 128,
    top_k: int = 4,
    dtype: str = "float32",
    scoring: str = "sigmoid",
    renormalize: bool = True,
    scaling: float = 2.0,
    bias: bool = True,
    variant: str = "plain",
) -> Args:
    """Seeded inputs.

    Variants: logits of few values, many of them equal; saturated ones, whose sigmoid is 1; ones whose sigmoid is
    0; NaN in parts of rows and in whole rows; infinities; a bias with infinities and NaN; rows with a larger stride.
    """
    checks.choice("variant", variant, VARIANTS)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, num_experts * (2 if variant == "strided" else 1), generator=generator) * 2
    offset = torch.randn(num_experts, generator=generator) * 0.1
    draw = torch.rand(tokens, num_experts, generator=generator)
    if variant == "ties":
        logits, offset = logits.round(), offset.round()
    elif variant == "saturated":
        logits = logits + 40
    elif variant == "negative":
        logits = logits * 10 - 1000
    elif variant == "nan":
        share = torch.linspace(0, 1.01, max(tokens, 1))[:tokens, None]  # the first row has none, the last one only
        logits = torch.where(draw < share, torch.nan, logits)
    elif variant == "infinite":
        logits = torch.where(draw < 0.3, torch.inf, torch.where(draw < 0.8, -torch.inf, logits))
    elif variant == "bias_extremes":
        extremes = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0])
        offset[: min(num_experts, 4)] = extremes[:num_experts]
    return Args(
        logits.to(device, checks.dtype_named(dtype))[:, :num_experts],
        offset.to(device) if bias else None,
        top_k=top_k,
        scoring=scoring,
        renormalize=renormalize,
        scaling=scaling,
    )


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """A fast exponential may be a few units off, and so may swap two experts whose scores are as near."""
    return (Tolerance(rtol=1e-5, atol=1e-7, mismatch=1e-3), Tolerance(mismatch=1e-3))


def cost(a: Args) -> Cost:
    tokens, experts = a.logits.shape
    read = a.logits.numel() * a.logits.element_size() + (4 * experts if a.bias is not None else 0)
    return Cost(read, 8 * tokens * a.top_k, 5 * tokens * experts)


SPEC = OpSpec(
    name="route_experts",
    version=1,
    params='Tensor logits, Tensor? bias=None, *, int top_k=4, str scoring="sigmoid", bool renormalize=True, '
    "float scaling=2.0",
    outputs=("topk_weights", "topk_ids"),
    args=Args,
    check=check,
    meta=meta,
    reference=reference,
    facts_type=Facts,
    facts=facts,
    generate=generate,
    tolerance=tolerance,
    cost=cost,
    variants=VARIANTS,
)
OP = register(SPEC)


@OP.public
def route_experts(
    logits: Tensor,
    bias: Tensor | None = None,
    *,
    top_k: int = 4,
    scoring: str = "sigmoid",
    renormalize: bool = True,
    scaling: float = 2.0,
    out: tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Chooses top_k experts for each token and gives their weights.

    logits: [tokens, experts] fp32, bf16 or fp16, last dimension contiguous; 1 to 1024 experts.
    bias: [experts] fp32, added to the scores for the choice only (`e_score_correction_bias`), or None.
    top_k: experts a token, 1 to the number of experts.
    scoring: "sigmoid" or "softmax" of the logits, rounded to fp32.
    renormalize: divide the weights of a token by their sum. scaling: factor of every weight.
    out: (topk_weights, topk_ids) receive the results. backend: name of a backend; see
    `msa_ops.explain("route_experts")`.

    Returns topk_weights fp32 [tokens, top_k] and topk_ids int32 [tokens, top_k], in the order of choice: score plus
    bias falling, equal values (-0 equals +0) by rising expert id, NaN behind every number, -inf included. Ids are
    always in range and different from each other. A weight is the score without the bias. Where the sum of a
    token's weights is 0 or NaN they are not divided by it: scores of 0 give weights 0, and a chosen score that is
    NaN gives NaN in its own slot. (Softmax makes all scores of a token NaN if one logit is NaN or +inf.)
    Rows do not depend on each other.
    Raises ValueError for arguments of another shape, dtype or range.
    Source: the router of DeepSeek-V3 (arXiv:2412.19437, section 2.1.2) without its groups, as MiniMax-M3 uses it.
    """
    result: tuple[Tensor, Tensor] = OP.call(
        logits,
        bias,
        top_k=top_k,
        scoring=scoring,
        renormalize=renormalize,
        scaling=scaling,
        out=out,
        backend=backend,
    )
    return result
