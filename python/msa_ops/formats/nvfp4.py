"""NVFP4: E2M1 codes in groups of 16 that share one E4M3 scale, and optionally one fp32 scale for the tensor.

The contract "m31" of MiniMax-M3.1 (what `quantize` does by default):
scale = E4M3(clamp(amax / 6, 1/512, 448)); the value is divided by the stored scale and rounded to nearest even;
-0 is never written; there is no tensor scale; an all-zero group has scale byte 0x01 and codes 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from msa_ops.formats import e2m1, e4m3

GROUP = 16
M31_SCALE_FLOOR = e4m3.SMALLEST
DIVISIONS = ("divide", "reciprocal")


def quantize(
    x: Tensor,
    *,
    global_scale: Tensor | None = None,
    scale_floor: float = M31_SCALE_FLOOR,
    division: str = "divide",
) -> tuple[Tensor, Tensor]:
    """Packed codes [..., n / 2] uint8 and E4M3 scale bytes [..., n / 16] uint8 (linear) of x [..., n].

    `global_scale`: one fp32 element g (or [..., 1], which broadcasts); a value is code x scale x g.
    `scale_floor`: lower clamp of a group's scale (0 for writers that have none). `division`: "divide" by the
    stored scale (times g), or multiply by its fp32 "reciprocal", which can move a value across a decision point.
    A NaN becomes code 0 and does not take part in its group's maximum; an infinity becomes +-6. A group whose
    stored scale is 0 gets codes 0. With a g that is not positive and finite all scales are NaN and all codes 0.
    Raises ValueError for another `division`.
    """
    if division not in DIVISIONS:
        raise ValueError(f"division: {division!r}; accepted: {', '.join(DIVISIONS)}")
    groups = x.float().unflatten(-1, (x.shape[-1] // GROUP, GROUP))
    amax = groups.abs().nan_to_num(nan=0.0, posinf=torch.inf).amax(-1)
    # A tensor as divisor: torch multiplies CUDA tensors by the reciprocal of a Python scalar, which rounds twice.
    wanted = amax / amax.new_full((), e2m1.MAX)
    if global_scale is not None:
        global_scale = _broadcast(global_scale)
        wanted = torch.where((global_scale > 0) & global_scale.isfinite(), wanted / global_scale, torch.nan)
    scales = e4m3.to_bytes(wanted.clamp(scale_floor, e4m3.MAX))
    step = e4m3.from_bytes(scales)
    if global_scale is not None:
        step = step * global_scale
    step = step.unsqueeze(-1)
    scaled = groups / step if division == "divide" else groups * step.reciprocal()
    codes = e2m1.encode(torch.where(step > 0, scaled, 0.0))
    return e2m1.pack(codes.flatten(-2)), scales


def dequantize(
    codes: Tensor,
    scales: Tensor,
    *,
    global_scale: Tensor | None = None,
    rounding: str = "exact",
) -> Tensor:
    """fp32 values [..., n] of packed codes [..., n / 2] and linear scale bytes [..., n / 16] (or float8_e4m3fn).

    `rounding`: "exact" gives code x scale; "e4m3" rounds that product to E4M3 (nearest even, saturating at 448).
    The tensor scale (one fp32 element, or [..., 1], which broadcasts) is applied after the rounding. A NaN scale
    byte gives NaN; a scale byte with the sign bit set is a negative scale, as E4M3 has it, though no writer makes one.
    Raises ValueError for another `rounding`.
    """
    if rounding not in e4m3.ROUNDINGS:
        raise ValueError(f"rounding: {rounding!r}; accepted: {', '.join(e4m3.ROUNDINGS)}")
    values = e2m1.decode_packed(codes).unflatten(-1, (codes.shape[-1] * 2 // GROUP, GROUP))
    values = (values * e4m3.from_bytes(scales).unsqueeze(-1)).flatten(-2)
    if rounding == "e4m3":
        values = e4m3.round_to(values)
    return values if global_scale is None else values * _broadcast(global_scale)


def _broadcast(global_scale: Tensor) -> Tensor:
    """One element becomes a scalar, so that its shape adds no dimension."""
    return global_scale.reshape(()) if global_scale.numel() == 1 else global_scale
