"""moe: a mixture of gated MLPs over routed tokens, with weights and activations in the usual 4- and 8-bit formats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.formats import mxfp8, nvfp4
from msa_ops.ops import checks, expert_weights, fact_values, moe_inputs, swiglu
from msa_ops.ops.token_bucket import token_bucket
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

ACTIVATION_FORMATS = ("none", "nvfp4", "mxfp8")
TILE = 32
"""Rows of every product of the reference. With one shape for all, a row's bits do not depend on its neighbours."""


@dataclass(slots=True)
class Args:
    x: Tensor
    w13: Tensor
    w2: Tensor
    topk_ids: Tensor
    topk_weights: Tensor
    weight_format: str = "none"
    w13_scale: Tensor | None = None
    w2_scale: Tensor | None = None
    w13_global_scale: Tensor | None = None
    w2_global_scale: Tensor | None = None
    activation_format: str = "none"
    alpha: float = swiglu.ALPHA
    limit: float = swiglu.LIMIT
    beta: float = swiglu.BETA
    workspace: Tensor | None = None


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    """`w13_global_scale` is "none", "expert" (one an expert) or "gate_up" (one for each half of the rows).
    `contiguous` is false if weights or scales are views with larger strides."""

    ACCEPTED = fact_values.accepted(
        weight_format=expert_weights.FORMATS,
        activation_format=ACTIVATION_FORMATS,
        weight_dtype=fact_values.dtypes(*expert_weights.WEIGHT_DTYPES),
        w13_global_scale=moe_inputs.GLOBAL_SCALES,
        hidden=fact_values.AT_LEAST_1,
        alpha=fact_values.Range(-math.inf),
        beta=fact_values.Range(-math.inf),
    )

    dtype: str = "bfloat16"
    tokens: int = 1
    hidden: int = 6144
    intermediate: int = 3072
    num_experts: int = 128
    top_k: int = 4
    weight_format: str = "nvfp4"
    weight_dtype: str = "uint8"
    w13_global_scale: str = "gate_up"
    w2_global_scale: bool = True
    activation_format: str = "none"
    alpha: float = swiglu.ALPHA
    limit: float = swiglu.LIMIT
    beta: float = swiglu.BETA
    contiguous: bool = True


def check(a: Args) -> None:
    checks.tensor("x", a.x, (None, None), *checks.FLOATS)
    checks.contiguous_rows("x", a.x)
    tokens, hidden = a.x.shape
    checks.choice("weight_format", a.weight_format, expert_weights.FORMATS)
    checks.choice("activation_format", a.activation_format, ACTIVATION_FORMATS)
    checks.tensor("w13", a.w13, (None, None, None))
    checks.tensor("w2", a.w2, (None, None, None))
    experts = a.w13.shape[0]
    intermediate = expert_weights.columns(a.w2, a.weight_format)
    if experts < 1:
        raise ValueError(f"w13: {experts} experts; accepted: at least 1")
    group = max(expert_weights.GROUP[a.weight_format], expert_weights.GROUP[a.activation_format])
    for name, size, what in (("x", hidden, "hidden"), ("w2", intermediate, "intermediate")):
        if size < 1 or size % group:
            raise ValueError(f"{name}: {what} size {size}; accepted: multiples of {group} with these formats")
    expert_weights.check(
        "w13",
        a.w13,
        a.w13_scale,
        a.w13_global_scale,
        a.weight_format,
        (experts, 2 * intermediate, hidden),
        ((experts,), (experts, 2)),
    )
    expert_weights.check(
        "w2", a.w2, a.w2_scale, a.w2_global_scale, a.weight_format, (experts, hidden, intermediate), ((experts,),)
    )
    if a.w2.dtype != a.w13.dtype:
        raise ValueError(f"w2: dtype {a.w2.dtype}; accepted: {a.w13.dtype}, the dtype of w13")
    checks.tensor("topk_ids", a.topk_ids, (tokens, None), torch.int32)
    checks.contiguous_rows("topk_ids", a.topk_ids)
    checks.tensor("topk_weights", a.topk_weights, (tokens, a.topk_ids.shape[1]), torch.float32)
    checks.contiguous_rows("topk_weights", a.topk_weights)
    swiglu.check(a.alpha, a.limit, a.beta)


def meta(a: Args) -> tuple[Tensor, ...]:
    return (torch.empty(a.x.shape, dtype=a.x.dtype, device=a.x.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    experts = a.w13.shape[0]
    x = as_format(a.x.float(), a.activation_format)
    products = x.new_zeros(*a.topk_ids.shape, x.shape[1])  # one for each (token, slot); what has no expert stays 0
    for expert in a.topk_ids.unique().tolist():
        if not 0 <= expert < experts:
            continue
        w13 = expert_weights.dequantize(a.w13, a.w13_scale, a.w13_global_scale, a.weight_format, expert)
        w2 = expert_weights.dequantize(a.w2, a.w2_scale, a.w2_global_scale, a.weight_format, expert)
        for pairs in (a.topk_ids == expert).nonzero().split(TILE):
            token, slot = pairs.unbind(-1)
            tile = x.new_zeros(TILE, x.shape[1])
            tile[: len(token)] = x[token]
            gate_up = tile @ w13.T
            activated = swiglu.swigluoai(gate_up, alpha=a.alpha, limit=a.limit, beta=a.beta)
            result = as_format(activated, a.activation_format) @ w2.T
            products[token, slot] = a.topk_weights[token, slot].unsqueeze(-1) * result[: len(token)]
    out = torch.zeros_like(x)
    for slot in range(a.topk_ids.shape[1]):
        out += products[:, slot]
    return (out.to(a.x.dtype),)


def as_format(x: Tensor, activation_format: str) -> Tensor:
    """fp32 values as the GEMM sees them: quantised row by row and read back."""
    if activation_format == "nvfp4":
        return nvfp4.dequantize(*nvfp4.quantize(x))
    if activation_format == "mxfp8":
        return mxfp8.dequantize(*mxfp8.quantize(x))
    return x


def facts(a: Args) -> Facts:
    scale = a.w13_global_scale
    weights = (a.w13, a.w2, a.w13_scale, a.w2_scale)
    return Facts(
        dtype=str(a.x.dtype).removeprefix("torch."),
        tokens=token_bucket(a.x.shape[0]),
        hidden=a.x.shape[1],
        intermediate=expert_weights.columns(a.w2, a.weight_format),
        num_experts=a.w13.shape[0],
        top_k=a.topk_ids.shape[1],
        weight_format=a.weight_format,
        weight_dtype=str(a.w13.dtype).removeprefix("torch."),
        w13_global_scale=moe_inputs.GLOBAL_SCALES[0 if scale is None else scale.dim()],
        w2_global_scale=a.w2_global_scale is not None,
        activation_format=a.activation_format,
        alpha=a.alpha,
        limit=a.limit,
        beta=a.beta,
        contiguous=all(part is None or part.is_contiguous() for part in weights),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    tokens: int = 8,
    hidden: int = 64,
    intermediate: int = 96,
    num_experts: int = 8,
    top_k: int = 2,
    dtype: str = "bfloat16",
    weight_format: str = "none",
    weight_dtype: str = "bfloat16",
    global_scale: str = "gate_up",
    activation_format: str = "none",
    alpha: float = swiglu.ALPHA,
    limit: float = swiglu.LIMIT,
    beta: float = swiglu.BETA,
    variant: str = "plain",
) -> Args:
    """Seeded inputs, drawn on `device`. `weight_dtype` is for weight_format none, `global_scale` for nvfp4.

    Variants: all slots at one expert; half of the experts without a token; the same expert in every slot of a token;
    ids outside the range among others, or alone; a token of NaN; large inputs that reach the clips; strided operands.
    """
    moe_inputs.check(variant, global_scale, num_experts, top_k)
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.empty(tokens, hidden, device=device).normal_(generator=generator)
    x *= 100.0 if variant == "large" else 1.0
    if variant == "nan_token" and tokens:
        x[tokens // 2] = torch.nan
    x = x.to(checks.dtype_named(dtype))
    ids, factors = moe_inputs.routing(generator, tokens, num_experts, top_k, variant)
    kind = checks.dtype_named(weight_dtype)
    parts = moe_inputs.GLOBAL_SCALES.index(global_scale)
    w13, w13_scale, w13_global = moe_inputs.weights(
        generator, (num_experts, 2 * intermediate, hidden), weight_format, kind, parts
    )
    w2, w2_scale, w2_global = moe_inputs.weights(
        generator, (num_experts, hidden, intermediate), weight_format, kind, min(parts, 1)
    )
    args = Args(
        x,
        w13,
        w2,
        ids,
        factors,
        weight_format=weight_format,
        w13_scale=w13_scale,
        w2_scale=w2_scale,
        w13_global_scale=w13_global,
        w2_global_scale=w2_global,
        activation_format=activation_format,
        alpha=alpha,
        limit=limit,
        beta=beta,
    )
    if variant == "strided":
        for name in ("x", "w13", "w2", "topk_ids", "topk_weights", "w13_scale", "w2_scale"):
            value = getattr(args, name)
            setattr(args, name, None if value is None else moe_inputs.widened(value))
    return args


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """Products summed in another order, then one rounding; with quantised activations also a value on the other side
    of a decision point, which moves a whole row. For weights whose rows have a norm of about 1."""
    size = max(1.0, _largest(a.x)) * max(1.0, _largest(a.topk_weights))
    atol = 2e-6 * size
    if a.activation_format != "none":
        step = {"nvfp4": 1 / 3, "mxfp8": 1 / 8}[a.activation_format]
        atol += step * size / expert_weights.columns(a.w2, a.weight_format) ** 0.5
    return (Tolerance(rtol=2 * torch.finfo(a.x.dtype).eps, atol=atol),)


def _largest(x: Tensor) -> float:
    return float(x.abs().nan_to_num(nan=0.0, posinf=0.0).amax()) if x.numel() else 0.0


def cost(a: Args) -> Cost:
    """Weights of the experts that have a token are read once; products count two operations each."""
    experts, rows, _ = a.w13.shape
    hidden = a.x.shape[1]
    routed = a.topk_ids[(a.topk_ids >= 0) & (a.topk_ids < experts)]
    an_expert = expert_weights.bytes_of_expert(a.w13, a.w13_scale, a.w13_global_scale)
    an_expert += expert_weights.bytes_of_expert(a.w2, a.w2_scale, a.w2_global_scale)
    size = a.x.numel() * a.x.element_size()
    read = size + 8 * a.topk_ids.numel() + an_expert * routed.unique().numel()
    return Cost(read, size, routed.numel() * 3 * rows * hidden)


SPEC = OpSpec(
    name="moe",
    version=1,
    params="Tensor x, Tensor w13, Tensor w2, Tensor topk_ids, Tensor topk_weights, *, "
    'str weight_format="none", Tensor? w13_scale=None, Tensor? w2_scale=None, Tensor? w13_global_scale=None, '
    'Tensor? w2_global_scale=None, str activation_format="none", float alpha=1.702, float limit=7.0, '
    "float beta=1.0, Tensor(workspace!)? workspace=None",
    outputs=("out",),
    args=Args,
    check=check,
    meta=meta,
    reference=reference,
    facts_type=Facts,
    facts=facts,
    generate=generate,
    tolerance=tolerance,
    cost=cost,
    variants=moe_inputs.VARIANTS,
    mutates=("workspace",),
)
OP = register(SPEC)


@OP.public
def moe(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    *,
    weight_format: str = "none",
    w13_scale: Tensor | None = None,
    w2_scale: Tensor | None = None,
    w13_global_scale: Tensor | None = None,
    w2_global_scale: Tensor | None = None,
    activation_format: str = "none",
    alpha: float = swiglu.ALPHA,
    limit: float = swiglu.LIMIT,
    beta: float = swiglu.BETA,
    workspace: Tensor | None = None,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """out[t] = sum over slots s of topk_weights[t, s] * W2[e] @ act(W13[e] @ x[t]), with e = topk_ids[t, s].

    act is (up + beta) * gate * sigmoid(alpha * gate), the gate clipped above at `limit`, up to +-`limit`.
    Products are summed in fp32, slots in their order, and the sum is rounded once to x's dtype. A slot whose id is
    outside [0, E) adds nothing (experts of other ranks, padding; its weight is not looked at), and a token without
    any expert gets exactly 0. An expert that stands twice in a row counts twice. NaN in a token stays in its row.
    One expert, ids of 0 and weights of 1 make it a dense MLP or a shared expert.

    x: [T, H] fp32, bf16 or fp16. topk_ids: int32 [T, k]. topk_weights: fp32 [T, k].
    w13: [E, 2 I, H], the I rows of the gate and then the I rows of up (not interleaved). w2: [E, H, I].
    Rows are contiguous, other strides are free: a slice of experts is fine.

    weight_format, with G columns that share a scale; scales are linear, w13_scale [E, 2 I, H / G] and
    w2_scale [E, H, I / G]; H and I must be multiples of G, and of nothing more:
      "none": fp32, bf16 or fp16 weights, no scales.
      "nvfp4": G = 16; uint8 with two E2M1 codes a byte (w13 [E, 2 I, H / 2], w2 [E, H, I / 2]), E4M3 scales as
        uint8 or float8_e4m3fn.
      "mxfp8": G = 32; float8_e4m3fn, E8M0 scales as uint8.
      "mxfp4": G = 32; packed like nvfp4, E8M0 scales as uint8.
    w13_global_scale: fp32 [E], or [E, 2] for gate and up; w2_global_scale: fp32 [E]; NVFP4 only. They multiply:
    a weight is code * scale * global. compressed-tensors stores a divisor: give 1 / weight_global_scale.

    activation_format: "none", or "nvfp4" or "mxfp8" to quantise what enters each product, x and the activated
    intermediate, token by token: NVFP4 with the contract "m31" (a NaN becomes 0), MXFP8 with the defaults of
    quantize_mxfp8. The intermediate is quantised from fp32, with no rounding between.
    workspace: uint8 scratch memory, or None. out: receives the result. backend: name of a backend; see
    `msa_ops.explain("moe")`.

    Returns a tensor like x. Raises ValueError for arguments of another shape, dtype, stride or range.
    The reference gives a token the same bits in any batch; other backends promise the op's tolerance.
    Source: the experts of MiniMax-M3 in transformers; OCP Microscaling Formats v1.0 for the MX formats.
    """
    result: Tensor = OP.call(
        x,
        w13,
        w2,
        topk_ids,
        topk_weights,
        weight_format=weight_format,
        w13_scale=w13_scale,
        w2_scale=w2_scale,
        w13_global_scale=w13_global_scale,
        w2_global_scale=w2_global_scale,
        activation_format=activation_format,
        alpha=alpha,
        limit=limit,
        beta=beta,
        workspace=workspace,
        out=out,
        backend=backend,
    )
    return result
