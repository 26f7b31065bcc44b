"""dequantize_nvfp4: values of NVFP4 codes and scales, exact or rounded once more to E4M3."""

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
    codes: Tensor
    scales: Tensor
    global_scale: Tensor | None = None
    scale_layout: str = "linear"
    rounding: str = "exact"
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    ACCEPTED = fact_values.accepted(columns=fact_values.Range(multiple=nvfp4.GROUP))

    rows: int = 1
    columns: int = 6144
    global_scale: bool = False
    scale_layout: str = "linear"
    rounding: str = "exact"
    dtype: str = "bfloat16"
    contiguous: bool = True


def _shape(a: Args) -> tuple[int, ...]:
    return (*a.codes.shape[:-1], a.codes.shape[-1] * 2)


def check(a: Args) -> None:
    scaled.check_values("codes", a.codes, nvfp4.GROUP, torch.uint8, packing=2)
    checks.choice("scale_layout", a.scale_layout, tuple(ScaleLayout))
    scaled.check_scales(a.scales, _shape(a), nvfp4.GROUP, a.scale_layout, torch.float8_e4m3fn)
    checks.scalar("global_scale", a.global_scale)
    checks.choice("rounding", a.rounding, e4m3.ROUNDINGS)
    checks.choice("dtype", scaled.short(a.dtype), [scaled.short(dtype) for dtype in checks.FLOATS])


def meta(a: Args) -> tuple[Tensor, ...]:
    return (torch.empty(_shape(a), dtype=a.dtype, device=a.codes.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    scales = scaled.load_scales(a.scales, _shape(a), nvfp4.GROUP, a.scale_layout)
    values = nvfp4.dequantize(a.codes, scales, global_scale=a.global_scale, rounding=a.rounding)
    return (values.to(a.dtype),)


def facts(a: Args) -> Facts:
    return Facts(
        rows=math.prod(a.codes.shape[:-1]),
        columns=_shape(a)[-1],
        global_scale=a.global_scale is not None,
        scale_layout=a.scale_layout,
        rounding=a.rounding,
        dtype=scaled.short(a.dtype),
        contiguous=a.codes.is_contiguous() and a.scales.is_contiguous(),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    rows: int = 12,
    columns: int = 128,
    global_scale: float | None = None,
    scale_layout: str = "linear",
    rounding: str = "exact",
    dtype: str = "float32",
    variant: str = "plain",
) -> Args:
    """Random codes and scale bytes (positive and finite in the plain variant); see `scaled.generate_stored`."""
    codes, scales = scaled.generate_stored(
        seed,
        device=device,
        rows=rows,
        columns=columns,
        group=nvfp4.GROUP,
        packing=2,
        scale_range=(0x01, 0x7E),
        scale_dtype=torch.float8_e4m3fn,
        layout=scale_layout,
        variant=variant,
    )
    scale = None if global_scale is None else torch.tensor(global_scale, device=device)
    return Args(codes, scales, scale, scale_layout, rounding, checks.dtype_named(dtype))


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """code x scale is exact in every dtype's fp32 intermediate; a tensor scale may be multiplied in either order."""
    return (Tolerance() if a.global_scale is None else Tolerance(rtol=2 * torch.finfo(a.dtype).eps),)


def cost(a: Args) -> Cost:
    values = a.codes.numel() * 2
    return Cost(a.codes.numel() + a.scales.numel(), values * a.dtype.itemsize, values)


SPEC = OpSpec(
    name="dequantize_nvfp4",
    version=1,
    params="Tensor codes, Tensor scales, *, Tensor? global_scale=None, str scale_layout='linear', "
    "str rounding='exact', ScalarType dtype=float32",
    outputs=("result",),
    args=Args,
    check=check,
    meta=meta,
    reference=reference,
    facts_type=Facts,
    facts=facts,
    generate=generate,
    tolerance=tolerance,
    cost=cost,
    variants=scaled.DEQUANTIZE_VARIANTS,
)
OP = register(SPEC)


@OP.public
def dequantize_nvfp4(
    codes: Tensor,
    scales: Tensor,
    *,
    global_scale: Tensor | None = None,
    scale_layout: str = "linear",
    rounding: str = "exact",
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Values of NVFP4 codes: code x scale, rounded as `rounding` says, x global_scale, then cast to dtype.

    codes: uint8 [..., n / 2], n a multiple of 16, the lower index in the low nibble, last dimension contiguous.
        All 16 codes are read; 8 is -0.
    scales: E4M3 bytes as uint8 or float8_e4m3fn: [..., n / 16] if linear; in the other layouts contiguous, of any
        shape, exactly rows x n / 16 bytes (token_quads) or those of the matrix padded to 128 rows and 4 columns
        (swizzle_128x4). All bytes are read; 0x7F and 0xFF are NaN, a sign bit negates.
    global_scale: one fp32 element, a multiplier; None means 1.
    scale_layout: linear, token_quads or swizzle_128x4.
    rounding: "exact", or "e4m3": code x scale is rounded once to E4M3 (nearest even, saturating at 448), as chips do
        that feed an FP8 matrix unit.
    dtype: of the result, fp32, bf16 or fp16.
    out: receives the result. backend: name of a backend; see `msa_ops.explain("dequantize_nvfp4")`.
    Returns [..., n] of dtype. Raises ValueError for arguments of another shape, dtype, stride or value.
    """
    result: Tensor = OP.call(
        codes,
        scales,
        global_scale=global_scale,
        scale_layout=scale_layout,
        rounding=rounding,
        dtype=dtype,
        out=out,
        backend=backend,
    )
    return result
