"""Seeded weights and routings for tests and benchmarks of moe. Weights are drawn as codes, not quantised: big ones
are quick to make. A row has a norm of about 1, so that outputs are of the order of the inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from msa_ops.formats import e4m3
from msa_ops.ops import checks

VARIANTS = (
    "plain",
    "one_expert",
    "few_experts",
    "duplicates",
    "padding",
    "all_padding",
    "nan_token",
    "large",
    "strided",
)
GLOBAL_SCALES = ("none", "expert", "gate_up")

_E2M1_RMS = 2.93  # of codes drawn evenly
_E4M3_RMS = 0.6  # of bytes drawn evenly without the highest exponent bit


def weights(
    generator: torch.Generator,
    shape: tuple[int, int, int],
    weight_format: str,
    dtype: torch.dtype,
    global_parts: int,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Weight, scales and global scales of `shape` = (experts, rows, columns) values, on the generator's device.

    Scales are of many values, few of them powers of two (but for E8M0, which has no others).
    `global_parts`: NVFP4 global scales an expert: none (0), one, or one for each half of the rows (2).
    """
    experts, rows, columns = shape
    rms = columns**-0.5

    def bytes_between(low: int, high: int, width: int) -> Tensor:
        size = (experts, rows, width)
        return torch.randint(low, high + 1, size, dtype=torch.uint8, generator=generator, device=generator.device)

    if weight_format == "none":
        values = torch.empty(shape, dtype=dtype, device=generator.device)
        return values.normal_(0, rms, generator=generator), None, None
    if weight_format == "nvfp4":
        step, factor = rms / _E2M1_RMS, None
        if global_parts:
            factor = torch.rand(experts, global_parts, generator=generator, device=generator.device) + 0.5
            factor, step = factor.mul_(step).squeeze(-1) if global_parts == 1 else factor.mul_(step), 1.0
        low, high = e4m3.to_bytes(torch.tensor([0.6 * step, 1.6 * step])).tolist()
        return bytes_between(0, 255, columns // 2), bytes_between(max(low, 1), high, columns // 16), factor
    packed = weight_format == "mxfp4"
    exponent = 127 + round(math.log2(rms / (_E2M1_RMS if packed else _E4M3_RMS)))
    scales = bytes_between(exponent - 1, exponent + 1, columns // 32)
    if packed:
        return bytes_between(0, 255, columns // 2), scales, None
    return bytes_between(0, 255, columns).bitwise_and_(0xBF).view(torch.float8_e4m3fn), scales, None


def routing(
    generator: torch.Generator, tokens: int, num_experts: int, top_k: int, variant: str
) -> tuple[Tensor, Tensor]:
    """topk_ids int32 and topk_weights fp32, both [tokens, top_k]; slots without an expert have a NaN weight."""
    device = generator.device
    draw = torch.rand(tokens, num_experts, generator=generator, device=device)
    ids = draw.argsort(dim=-1)[:, :top_k].to(torch.int32)
    scores = torch.rand(tokens, top_k, generator=generator, device=device) + 0.1
    factors = 2 * scores / scores.sum(-1, keepdim=True)
    if variant == "one_expert":
        ids.fill_(num_experts - 1)
    elif variant == "few_experts":
        ids //= 2
    elif variant == "duplicates":
        ids[:] = ids[:, :1].clone()
    elif variant in ("padding", "all_padding"):
        strange = torch.tensor([-1, num_experts, -(2**31), 2**31 - 1], dtype=torch.int32, device=device)
        picked = torch.randint(0, 4, ids.shape, generator=generator, device=device)
        absent = torch.rand(ids.shape, generator=generator, device=device) < (0.5 if variant == "padding" else 2.0)
        ids = torch.where(absent, strange[picked], ids)
        factors = torch.where(absent, torch.nan, factors)
    return ids, factors


def widened(values: Tensor) -> Tensor:
    """The same values as a view of rows of twice the length; bytes between the rows are 0xFF."""
    data = values.contiguous().view(torch.uint8)
    return torch.cat((data, torch.full_like(data, 0xFF)), -1)[..., : data.shape[-1]].view(values.dtype)


def check(variant: str, global_scale: str, num_experts: int, top_k: int) -> None:
    checks.choice("variant", variant, VARIANTS)
    checks.choice("global_scale", global_scale, GLOBAL_SCALES)
    checks.between("top_k", top_k, 1, num_experts)
