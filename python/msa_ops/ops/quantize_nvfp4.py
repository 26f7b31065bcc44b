"""quantize_nvfp4: E2M1 codes in groups of 16 with one E4M3 scale each, by the contract of MiniMax-M3.1 or another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.formats import e4m3, nvfp4
from msa_ops.formats.scale_layout import ScaleLayout
from msa_ops.ops import checks, fact_values, scaled
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register


@dataclass(slots=True)
class Args:
    x: Tensor
    global_scale: Tensor | None = None
    scale_floor: float = nvfp4.M31_SCALE_FLOOR
    division: str = "divide"
    scale_layout: str = "linear"


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    ACCEPTED = fact_values.accepted(
        columns=fact_values.Range(multiple=nvfp4.GROUP),
        scale_floor=fact_values.Range(0, e4m3.MAX),
        division=nvfp4.DIVISIONS,
    )

    dtype: str = "bfloat16"
    rows: int = 1
    columns: int = 6144
    global_scale: bool = False
    scale_floor: float = nvfp4.M31_SCALE_FLOOR
    division: str = "divide"
    scale_layout: str = "linear"
    contiguous: bool = True


def check(a: Args) -> None:
    scaled.check_values("x", a.x, nvfp4.GROUP, *checks.FLOATS)
    checks.scalar("global_scale", a.global_scale)
    checks.between("scale_floor", a.scale_floor, 0.0, e4m3.MAX)
    checks.choice("division", a.division, nvfp4.DIVISIONS)
    checks.choice("scale_layout", a.scale_layout, tuple(ScaleLayout))
    scaled.scale_shape(a.x.shape, nvfp4.GROUP, a.scale_layout)


def meta(a: Args) -> tuple[Tensor, ...]:
    codes = torch.empty((*a.x.shape[:-1], a.x.shape[-1] // 2), dtype=torch.uint8, device=a.x.device)
    shape = scaled.scale_shape(a.x.shape, nvfp4.GROUP, a.scale_layout)
    return codes, torch.empty(shape, dtype=torch.uint8, device=a.x.device)


def reference(a: Args) -> tuple[Tensor, ...]:
    codes, scales = nvfp4.quantize(a.x, global_scale=a.global_scale, scale_floor=a.scale_floor, division=a.division)
    return codes, scaled.store_scales(scales, a.scale_layout)


def facts(a: Args) -> Facts:
    return Facts(
        dtype=scaled.short(a.x.dtype),
        rows=math.prod(a.x.shape[:-1]),
        columns=a.x.shape[-1],
        global_scale=a.global_scale is not None,
        scale_floor=a.scale_floor,
        division=a.division,
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
    global_scale: float | None = None,
    scale_floor: float = nvfp4.M31_SCALE_FLOOR,
    division: str = "divide",
    scale_layout: str = "linear",
    variant: str = "plain",
) -> Args:
    """Seeded x [rows, columns]; see `scaled.generate_values` for the variants."""
    x = scaled.generate_values(
        seed, device=device, rows=rows, columns=columns, dtype=dtype, group=nvfp4.GROUP, variant=variant
    )
    scale = None if global_scale is None else torch.tensor(global_scale, device=device)
    return Args(x, scale, scale_floor, division, scale_layout)


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """Every bit is defined."""
    return Tolerance(exact=True), Tolerance(exact=True)


def cost(a: Args) -> Cost:
    written = a.x.numel() // 2 + math.prod(scaled.scale_shape(a.x.shape, nvfp4.GROUP, a.scale_layout))
    return Cost(a.x.numel() * a.x.element_size(), written, 3 * a.x.numel())


SPEC = OpSpec(
    name="quantize_nvfp4",
    version=1,
    params="Tensor x, *, Tensor? global_scale=None, float scale_floor=0.001953125, str division='divide', "
    "str scale_layout='linear'",
    outputs=("codes", "scales"),
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
def quantize_nvfp4(
    x: Tensor,
    *,
    global_scale: Tensor | None = None,
    scale_floor: float = nvfp4.M31_SCALE_FLOOR,
    division: str = "divide",
    scale_layout: str = "linear",
    out: tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """NVFP4 codes and scales of x; by default the contract of MiniMax-M3.1, which has no tensor scale.

    The scale of 16 values is E4M3(clamp(amax / (6 g), scale_floor, 448)); each value is divided by scale x g and
    rounded to nearest even on the E2M1 grid. -0 is never written. NaN becomes code 0 and does not count for amax.

    x: [..., n] fp32, bf16 or fp16, n a multiple of 16, last dimension contiguous.
    global_scale: g, one positive fp32 element on x's device; None means 1. If it is not positive and finite, all
        scales are NaN.
    scale_floor: lower clamp of a scale, 0 to 448. 1/512 is M3.1's; 0 is for writers that have none.
    division: "divide", or "reciprocal": multiply by fp32 1 / (scale x g), which moves some values to the neighbour.
    scale_layout: linear, token_quads or swizzle_128x4; the latter two take x as a matrix of all leading dimensions
        by n, and token_quads needs a multiple of 4 rows.
    out: receives the results (codes, scales). backend: name of a backend; see `msa_ops.explain("quantize_nvfp4")`.
    Returns codes uint8 [..., n / 2], the lower index in the low nibble, and scales uint8: [..., n / 16] if linear,
    [rows, n / 16] in token_quads, [rows padded to 128, n / 16 padded to 4] in swizzle_128x4 (padding 0).
    Raises ValueError for arguments of another shape, dtype, stride or value.
    Source: rtp-llm's NVFP4 KV cache of MiniMax-M3.1; `docs/formats.md` compares it with other writers.
    """
    codes, scales = OP.call(
        x,
        global_scale=global_scale,
        scale_floor=scale_floor,
        division=division,
        scale_layout=scale_layout,
        out=out,
        backend=backend,
    )
    return codes, scales
