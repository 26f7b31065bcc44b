"""rms_norm: root-mean-square normalisation over the last dimension, with an optional residual addition before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.ops import checks, fact_values
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

VARIANTS = ("plain", "large", "tiny", "zero_rows", "nan_row", "strided")


@dataclass(slots=True)
class Args:
    x: Tensor
    weight: Tensor
    eps: float = 1e-6
    gemma: bool = True
    residual: Tensor | None = None


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    ACCEPTED = fact_values.accepted(weight_dtype=fact_values.FLOATS)

    dtype: str = "bfloat16"
    hidden: int = 6144
    gemma: bool = True
    residual: bool = False
    weight_dtype: str = "bfloat16"


def check(a: Args) -> None:
    if a.x.dim() == 0:
        raise ValueError("x: a scalar; accepted: [..., hidden]")
    checks.tensor("x", a.x, (None,) * a.x.dim(), *checks.FLOATS)
    checks.contiguous_rows("x", a.x)
    checks.tensor("weight", a.weight, (a.x.shape[-1],), torch.float32, a.x.dtype)
    checks.positive_fp32("eps", a.eps)
    if a.residual is not None:
        checks.tensor("residual", a.residual, tuple(a.x.shape), a.x.dtype)
        checks.contiguous_rows("residual", a.residual)


def meta(a: Args) -> tuple[Tensor, ...]:
    return (torch.empty(a.x.shape, dtype=a.x.dtype, device=a.x.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    x = a.x.float()
    if a.residual is not None:
        x = x + a.residual.float()
        a.residual.copy_(x)
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + a.eps)
    weight = a.weight.float() + 1.0 if a.gemma else a.weight.float()
    return ((x * scale * weight).to(a.x.dtype),)


def facts(a: Args) -> Facts:
    dtype, weight_dtype = (str(tensor.dtype).removeprefix("torch.") for tensor in (a.x, a.weight))
    return Facts(dtype, a.x.shape[-1], a.gemma, a.residual is not None, weight_dtype)


def generate(
    seed: int,
    *,
    device: str = "cpu",
    tokens: int = 16,
    hidden: int = 6144,
    dtype: str = "bfloat16",
    residual: bool = False,
    gemma: bool = True,
    variant: str = "plain",
) -> Args:
    """Seeded inputs. Variants: large and tiny magnitudes, all-zero rows, one row of NaN, rows with a larger stride."""
    checks.choice("variant", variant, VARIANTS)
    generator = torch.Generator().manual_seed(seed)
    kind = checks.dtype_named(dtype)
    x = torch.randn(tokens, hidden * (2 if variant == "strided" else 1), generator=generator)
    x *= {"large": 1e4, "tiny": 1e-6}.get(variant, 1.0)
    if variant == "zero_rows":
        x[::2] = 0
    if variant == "nan_row" and tokens:
        x[0] = torch.nan
    x = x.to(device, kind)[:, :hidden]
    weight = (torch.randn(hidden, generator=generator) * 0.1).to(device, kind)
    added = torch.randn(tokens, hidden, generator=generator).to(device, kind) if residual else None
    return Args(x, weight, gemma=gemma, residual=added)


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """One unit in the last place of the result's dtype, twice."""
    return (Tolerance(rtol=2 * torch.finfo(a.x.dtype).eps, atol=1e-6),)


def cost(a: Args) -> Cost:
    size = a.x.numel() * a.x.element_size()
    passes = 2 if a.residual is not None else 1
    return Cost(size * passes + a.weight.numel() * a.weight.element_size(), size * passes, 4 * a.x.numel())


SPEC = OpSpec(
    name="rms_norm",
    version=1,
    params="Tensor x, Tensor weight, *, float eps=1e-06, bool gemma=True, Tensor(residual!)? residual=None",
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
    variants=VARIANTS,
    mutates=("residual",),
)
OP = register(SPEC)


@OP.public
def rms_norm(
    x: Tensor,
    weight: Tensor,
    *,
    eps: float = 1e-6,
    gemma: bool = True,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * (1 + weight), over the last dimension, computed in fp32.

    x: [..., hidden] fp32, bf16 or fp16, last dimension contiguous. weight: [hidden], fp32 or x's dtype.
    gemma: multiply by 1 + weight (MiniMax-M3 and Gemma); False multiplies by weight.
    residual: like x; if given, x + residual is normalised, and written back to residual. The sum is taken in fp32 and
        enters the norm before it is rounded to residual's dtype.
    out: receives the result. backend: name of a backend; see `msa_ops.explain("rms_norm")`.
    Returns a tensor like x. Raises ValueError for arguments of another shape, dtype or stride.
    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
    """
    result: Tensor = OP.call(x, weight, eps=eps, gemma=gemma, residual=residual, out=out, backend=backend)
    return result
