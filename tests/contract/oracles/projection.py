"""x @ W^T in numpy float64, with the bound of what fp32 accumulation may be off, and MXFP8 read by ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from tests.contract.oracles.insert import Interval, array

SUM_NOISE = 2.0**-20  # of the sum of magnitudes; fp32 sums of some hundred products stay well below


def mxfp8_values(elements: torch.Tensor, scales: torch.Tensor) -> np.ndarray:
    """float64 [..., n] of E4M3 elements [..., n] and E8M0 bytes [..., n / 32]."""
    values = elements.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    powers = scales.view(torch.uint8).numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return values * np.repeat(powers, 32, axis=-1)


def mxfp8_rounded(x: np.ndarray) -> np.ndarray:
    """float64 values of x after MXFP8 with the scale 2^(floor(log2(amax)) - 8) of OCP MX 1.0, section 6.3."""
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    amax = np.abs(groups).max(-1, keepdims=True)
    exponent = np.frexp(np.where(amax > 0, amax, 1.0))[1] - 1 - 8
    scale = np.where(amax > 0, 2.0 ** np.clip(exponent, -127, 127), 2.0**-127)
    elements = np.clip(groups / scale, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    return (elements.astype(np.float64) * scale).reshape(x.shape)


def project(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None, input_format: str) -> Interval:
    left = mxfp8_rounded(array(x)) if input_format == "mxfp8" else array(x)
    right = array(weight) if scale is None else mxfp8_values(weight, scale)
    return Interval(left @ right.T, SUM_NOISE * (np.abs(left) @ np.abs(right).T))
