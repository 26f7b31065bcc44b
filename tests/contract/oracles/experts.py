"""A mixture of experts by hand: numpy in fp64, a loop over tokens and slots, number formats decoded by ml_dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor


def values(tensor: Tensor) -> np.ndarray:
    """fp64 values of a float tensor."""
    return tensor.double().numpy()


def _bytes(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.contiguous().view(torch.uint8).numpy())


def decode_e2m1(packed: np.ndarray) -> np.ndarray:
    """fp64 [..., n] of bytes [..., n / 2], the low nibble first."""
    codes = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), dtype=np.uint8)
    codes[..., 0::2], codes[..., 1::2] = packed & 15, packed >> 4
    return codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def decode_weight(weight: Tensor, scale: Tensor | None, factor: Tensor | None, weight_format: str) -> np.ndarray:
    """fp64 [E, rows, columns]."""
    if weight_format == "none":
        return values(weight)
    data = _bytes(weight)
    found = data.view(ml_dtypes.float8_e4m3fn).astype(np.float64) if weight_format == "mxfp8" else decode_e2m1(data)
    kind = ml_dtypes.float8_e4m3fn if weight_format == "nvfp4" else ml_dtypes.float8_e8m0fnu
    scales = _bytes(scale).view(kind).astype(np.float64)
    found *= scales.repeat(found.shape[-1] // scales.shape[-1], axis=-1)
    if factor is not None:
        factors = values(factor).reshape(len(found), -1)
        found *= factors.repeat(found.shape[1] // factors.shape[1], axis=1)[..., None]
    return found


def round_nvfp4(x: np.ndarray) -> np.ndarray:
    """A row through NVFP4 and back, by the contract of MiniMax-M3.1."""
    groups = x.astype(np.float32).reshape(-1, 16)
    wanted = np.nanmax(np.abs(groups), axis=1, initial=0.0) / np.float32(6.0)
    scales = np.clip(wanted, 2.0**-9, 448.0).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)[:, None]
    codes = np.clip(np.nan_to_num(groups / scales, nan=0.0), -6.0, 6.0).astype(ml_dtypes.float4_e2m1fn)
    return (codes.astype(np.float64) * scales).reshape(x.shape)


def round_mxfp8(x: np.ndarray) -> np.ndarray:
    """A row of finite numbers, or with NaN, through MXFP8 and back; the scale is the power of two below the maximum."""
    groups = x.astype(np.float32).astype(np.float64).reshape(-1, 32)
    result = np.zeros_like(groups)
    for row, group in zip(result, groups, strict=True):
        largest = np.abs(group).max()
        if np.isnan(largest):
            row[:] = np.nan
        elif largest > 0:
            scale = 2.0 ** (np.floor(np.log2(largest)) - 8)
            row[:] = np.clip(group / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale
    return result.reshape(x.shape)


ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "nvfp4": round_nvfp4,
    "mxfp8": round_mxfp8,
}


def activation(gate: np.ndarray, up: np.ndarray, alpha: float, limit: float, beta: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return (up + beta) * gate / (1.0 + np.exp(-alpha * gate))


def moe(a: Any) -> Tensor:
    """fp64 [T, H] of an argument record of the op."""
    w13 = decode_weight(a.w13, a.w13_scale, a.w13_global_scale, a.weight_format)
    w2 = decode_weight(a.w2, a.w2_scale, a.w2_global_scale, a.weight_format)
    quantize = ROUND[a.activation_format]
    result = np.zeros(tuple(a.x.shape))
    for token, x in enumerate(values(a.x)):
        for expert, weight in zip(a.topk_ids[token].tolist(), a.topk_weights[token].tolist(), strict=True):
            if 0 <= expert < len(w13):
                gate, up = np.split(w13[expert] @ quantize(x), 2)
                result[token] += weight * (w2[expert] @ quantize(activation(gate, up, a.alpha, a.limit, a.beta)))
    return torch.from_numpy(result)
