"""swigluoai, the clipped gated activation of GPT-OSS and MiniMax-M3."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ALPHA = 1.702
LIMIT = 7.0
BETA = 1.0


def check(alpha: float, limit: float, beta: float) -> None:
    """Raises ValueError naming the parameter."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not math.isfinite(value):
            raise ValueError(f"{name}: {value}; accepted: a finite number")
    if not limit > 0:
        raise ValueError(f"limit: {limit}; accepted: a positive number (inf for no clipping)")


def swigluoai(gate_up: Tensor, *, alpha: float = ALPHA, limit: float = LIMIT, beta: float = BETA) -> Tensor:
    """(up + beta) * gate * sigmoid(alpha * gate), fp32 [..., I], of fp32 gate_up [..., 2 I] = [gate; up].

    The gate is clipped above at `limit` and has no lower clip; up is clipped to +-limit. NaN stays NaN: a clip
    written as IEEE maxNum would turn it into the limit. alpha 1, beta 0 and limit inf give the usual SwiGLU.
    It is computed in fp64 and rounded once: torch's fp32 sigmoid gives other bits in the tail of a tensor than in
    its vector part, so a value would depend on where it lies.
    Source: `apply_gate` of GPT-OSS and MiniMax-M3 in transformers, whose gate and up order here is M3's.
    """
    gate, up = gate_up.double().chunk(2, dim=-1)
    gate = gate.clamp(max=limit)
    up = up.clamp(min=-limit, max=limit)
    return ((up + beta) * (gate * torch.sigmoid(alpha * gate))).float()
