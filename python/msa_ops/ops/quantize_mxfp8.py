"""quantize_mxfp8: E4M3 elements in groups of 32 with one E8M0 scale each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.formats import e8m0, mxfp8
from msa_ops.ops import checks, fact_values, scaled
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register


@dataclass(slots=True)
class Args:
    x: Tensor
    scale_rounding: str = "floor"
    scale_layout: str = "linear"


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    ACCEPTED = fact_values.accepted(
        columns=fact_values.Range(multiple=32),
        scale_layout=scaled.MX_LAYOUTS,
        scale_rounding=e8m0.SCALE_ROUNDINGS,
    )

    dtype: str = "bfloat16"
    rows: int = 1
    columns: int = 6144
    scale_rounding: str = "floor"
    scale_layout: str = "linear"
    contiguous: bool = True


def check(a: Args) -> None:
    scaled.check_values("x", a.x, mxfp8.GROUP, *checks.FLOATS)
    checks.choice("scale_rounding", a.scale_rounding, e8m0.SCALE_ROUNDINGS)
    checks.choice("scale_layout", a.scale_layout, scaled.MX_LAYOUTS)


def meta(a: Args) -> tuple[Tensor, ...]:
    shape = scaled.scale_shape(a.x.shape, mxfp8.GROUP, a.scale_layout)
    return (
        torch.empty(a.x.shape, dtype=torch.float8_e4m3fn, device=a.x.device),
        torch.empty(shape, dtype=torch.uint8, device=a.x.device),
    )


def reference(a: Args) -> tuple[Tensor, ...]:
    values, scales = mxfp8.quantize(a.x, scale_rounding=a.scale_rounding)
    return values, scaled.store_scales(scales, a.scale_layout)


def facts(a: Args) -> Facts:
    return Facts(
        dtype=scaled.short(a.x.dtype),
        rows=math.prod(a.x.shape[:-1]),
        columns=a.x.shape[-1],
        scale_rounding=a.scale_rounding,
        scale_layout=a.scale_layout,
        contiguous=a.x.is_contiguous(),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    rows: int = 12,
    columns: int = 128,
    dtype: str = "bfloat16",
    scale_rounding: str = "floor",
    scale_layout: str = "linear",
    variant: str = "plain",
) -> Args:
    """Seeded x [rows, columns]; see `scaled.generate_values` for the variants."""
    x = scaled.generate_values(
        seed, device=device, rows=rows, columns=columns, dtype=dtype, group=mxfp8.GROUP, variant=variant
    )
    return Args(x, scale_rounding, scale_layout)


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """Every bit is defined."""
    return Tolerance(exact=True), Tolerance(exact=True)


def cost(a: Args) -> Cost:
    written = a.x.numel() + math.prod(scaled.scale_shape(a.x.shape, mxfp8.GROUP, a.scale_layout))
    return Cost(a.x.numel() * a.x.element_size(), written, 3 * a.x.numel())


SPEC = OpSpec(
    name="quantize_mxfp8",
    version=1,
    params="Tensor x, *, str scale_rounding='floor', str scale_layout='linear'",
    outputs=("values", "scales"),
    args=Args,
    check=check,
    meta=meta,
    reference=reference,
    facts_type=Facts,
    facts=facts,
    generate=generate,
    tolerance=tolerance,
    cost=cost,
    variants=scaled.QUANTIZE_VARIANTS,
)
OP = register(SPEC)


@OP.public
def quantize_mxfp8(
    x: Tensor,
    *,
    scale_rounding: str = "floor",
    scale_layout: str = "linear",
    out: tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """MXFP8 elements and scales of x: groups of 32, each value divided by the group's power-of-two scale.

    Elements are rounded to nearest even, saturate at 448 and keep the sign of zero. A group with a NaN has scale 0xFF
    and elements 0 and so reads as NaN; an infinity reads as infinity.

    x: [..., n] fp32, bf16 or fp16, n a multiple of 32, last dimension contiguous.
    scale_rounding: how a group's scale follows from its largest magnitude: floor (the OCP specification), ceil, even
        or rceil (no element saturates); see `msa_ops.formats.e8m0.SCALE_ROUNDINGS`.
    scale_layout: linear, or swizzle_128x4, which takes x as a matrix of all leading dimensions by n.
    out: receives the results (values, scales). backend: name of a backend; see `msa_ops.explain("quantize_mxfp8")`.
    Returns values float8_e4m3fn [..., n], and scales uint8 (E8M0): [..., n / 32] if linear, [rows padded to 128,
    n / 32 padded to 4] in swizzle_128x4 (padding 0).
    Raises ValueError for arguments of another shape, dtype, stride or value.
    Source: OCP Microscaling Formats Specification v1.0.
    """
    values, scales = OP.call(x, scale_rounding=scale_rounding, scale_layout=scale_layout, out=out, backend=backend)
    return values, scales
