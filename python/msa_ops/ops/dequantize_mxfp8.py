"""dequantize_mxfp8: values of E4M3 elements with E8M0 scales."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.formats import mxfp8
from msa_ops.ops import checks, fact_values, scaled
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register


@dataclass(slots=True)
class Args:
    values: Tensor
    scales: Tensor
    scale_layout: str = "linear"
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    ACCEPTED = fact_values.accepted(columns=fact_values.Range(multiple=32), scale_layout=scaled.MX_LAYOUTS)

    rows: int = 1
    columns: int = 6144
    scale_layout: str = "linear"
    dtype: str = "bfloat16"
    contiguous: bool = True


def check(a: Args) -> None:
    scaled.check_values("values", a.values, mxfp8.GROUP, torch.float8_e4m3fn, torch.uint8)
    checks.choice("scale_layout", a.scale_layout, scaled.MX_LAYOUTS)
    scaled.check_scales(a.scales, a.values.shape, mxfp8.GROUP, a.scale_layout, torch.float8_e8m0fnu)
    checks.choice("dtype", scaled.short(a.dtype), [scaled.short(dtype) for dtype in checks.FLOATS])


def meta(a: Args) -> tuple[Tensor, ...]:
    return (torch.empty(a.values.shape, dtype=a.dtype, device=a.values.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    scales = scaled.load_scales(a.scales, a.values.shape, mxfp8.GROUP, a.scale_layout)
    return (mxfp8.dequantize(a.values, scales).to(a.dtype),)


def facts(a: Args) -> Facts:
    return Facts(
        rows=math.prod(a.values.shape[:-1]),
        columns=a.values.shape[-1],
        scale_layout=a.scale_layout,
        dtype=scaled.short(a.dtype),
        contiguous=a.values.is_contiguous() and a.scales.is_contiguous(),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    rows: int = 12,
    columns: int = 128,
    scale_layout: str = "linear",
    dtype: str = "float32",
    variant: str = "plain",
) -> Args:
    """Random element bytes and scale bytes (2^-30 to 2^20 in the plain variant); see `scaled.generate_stored`."""
    data, scales = scaled.generate_stored(
        seed,
        device=device,
        rows=rows,
        columns=columns,
        group=mxfp8.GROUP,
        packing=1,
        scale_range=(97, 147),
        scale_dtype=torch.float8_e8m0fnu,
        layout=scale_layout,
        variant=variant,
    )
    values = data.view(torch.float8_e4m3fn) if variant == "typed" else data
    return Args(values, scales, scale_layout, checks.dtype_named(dtype))


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """One rounding, that of dtype."""
    return (Tolerance(),)


def cost(a: Args) -> Cost:
    values = a.values.numel()
    return Cost(values + a.scales.numel(), values * a.dtype.itemsize, values)


SPEC = OpSpec(
    name="dequantize_mxfp8",
    version=1,
    params="Tensor values, Tensor scales, *, str scale_layout='linear', ScalarType dtype=float32",
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
def dequantize_mxfp8(
    values: Tensor,
    scales: Tensor,
    *,
    scale_layout: str = "linear",
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Values of MXFP8 elements: element x scale in fp32, then cast to dtype.

    values: [..., n] float8_e4m3fn, or the bytes as uint8; n a multiple of 32, last dimension contiguous.
    scales: E8M0 bytes as uint8 or float8_e8m0fnu: [..., n / 32] if linear; in swizzle_128x4 contiguous, of any shape,
        exactly the bytes of the matrix padded to 128 rows and 4 columns. 0xFF is NaN.
    scale_layout: linear or swizzle_128x4.
    dtype: of the result, fp32, bf16 or fp16; what is beyond its range becomes infinite.
    out: receives the result. backend: name of a backend; see `msa_ops.explain("dequantize_mxfp8")`.
    Returns [..., n] of dtype. Raises ValueError for arguments of another shape, dtype, stride or value.
    """
    result: Tensor = OP.call(values, scales, scale_layout=scale_layout, dtype=dtype, out=out, backend=backend)
    return result
