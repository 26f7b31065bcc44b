"""Per-head RMS normalisation and partial NeoX rotation in fp32: what every query and key goes through."""

from __future__ import annotations

import torch
from torch import Tensor

from msa_ops.ops import rms_norm

ROPE_THETA = 5_000_000.0
"""Base of the rotation's frequencies in MiniMax-M3 and M3.1-Flash."""


def norm_heads(x: Tensor, weight: Tensor, eps: float, gemma: bool) -> Tensor:
    """rms_norm of each head of x [T, heads, 128] (fp32), all with the one weight [128]; fp32 out."""
    return rms_norm.reference(rms_norm.Args(x, weight, eps, gemma))[0]


def rotate(x: Tensor, cos_sin: Tensor) -> Tensor:
    """x [T, heads, 128] (fp32) with its first rotary_dim dimensions rotated by the token's row of cos_sin.

    cos_sin: fp32 [T, rotary_dim], the cosines of the rotary_dim / 2 frequencies, then their sines. Dimension i is
    paired with i + rotary_dim / 2 (NeoX half-split); dimensions from rotary_dim on pass through.
    Source: Su et al., RoFormer, 2021, section 3.2.2; the half-split pairing is that of GPT-NeoX.
    """
    rotary_dim = cos_sin.shape[-1]
    cos, sin = cos_sin.unsqueeze(1).chunk(2, dim=-1)
    first, second = x[..., :rotary_dim].chunk(2, dim=-1)
    rotated = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat((*rotated, x[..., rotary_dim:]), dim=-1)


def rows_at(cos_sin_cache: Tensor, positions: Tensor) -> Tensor:
    """Rows [T, rotary_dim] of the table at `positions`; a position outside the table takes the nearest row."""
    return cos_sin_cache[positions.long().clamp(0, cos_sin_cache.shape[0] - 1)]


def cos_sin_table(num_positions: int, rotary_dim: int, theta: float = ROPE_THETA, device: str = "cpu") -> Tensor:
    """fp32 [num_positions, rotary_dim]: cos(p * theta^(-2i / rotary_dim)) for i < rotary_dim / 2, then the sines.

    Angles are products in fp32, as in training: at position 500,000 a more exact product would be another angle.
    """
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device=device) / rotary_dim
    frequencies = 1.0 / theta**exponents
    angles = torch.arange(num_positions, dtype=torch.float32, device=device).unsqueeze(1) * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)
