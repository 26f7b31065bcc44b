"""What MXFP8 and MXFP4 must do alike; their test modules run each function for their format."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch

from msa_ops.formats import e8m0
from tests.contract.oracles import block_scaled


def samples(seed: int = 0) -> torch.Tensor:
    """Normal groups at many magnitudes, and groups of small integers, which meet ties and powers of two."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.linspace(-149, 120, 60).round()
    normal = torch.randn(60, 96, generator=generator) * torch.exp2(exponents).unsqueeze(1)
    integers = torch.randint(-30, 31, (60, 96), generator=generator) * torch.exp2(exponents).unsqueeze(1)
    return torch.cat([normal, integers])


def agrees_with_the_oracle(module: ModuleType, name: str, rule: str) -> None:
    x = samples()
    data, scales = module.quantize(x, scale_rounding=rule)
    expected_data, expected_scales = block_scaled.mx_quantize(x.numpy(), name, rule)
    assert np.array_equal(scales.numpy(), expected_scales)
    assert np.array_equal(data.view(torch.uint8).numpy(), expected_data)
    with np.errstate(over="ignore"):
        values = block_scaled.mx_dequantize(expected_data, expected_scales, name).astype(np.float32)
    assert np.array_equal(module.dequantize(data, scales).numpy(), values)


def special_groups(module: ModuleType, rule: str) -> None:
    """A zero group is zero, an infinity is read as one, a NaN makes its group NaN and no other."""
    x = torch.ones(5, 32)
    x[0], x[1, 0], x[2, 5], x[3] = 0.0, -torch.inf, torch.nan, 2.0**-149
    data, scales = module.quantize(x, scale_rounding=rule)
    values = module.dequantize(data, scales)
    assert scales[0] == 0 and not values[0].any()
    assert values[1, 0] == -torch.inf and torch.isfinite(values[1, 1:]).all()
    assert scales[2] == e8m0.NAN and not data[2].view(torch.uint8).any() and values[2].isnan().all()
    assert scales[3] == 0 and not values[3].any()
    assert torch.equal(values[4], x[4])


def scaling_by_powers_of_two_moves_the_scale_alone(module: ModuleType, rule: str) -> None:
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(2))
    data, scales = module.quantize(x, scale_rounding=rule)
    for exponent in (-60, -1, 3, 70):
        moved, shifted = module.quantize(x * 2.0**exponent, scale_rounding=rule)
        assert torch.equal(moved.view(torch.uint8), data.view(torch.uint8))
        assert torch.equal(shifted.int(), scales.int() + exponent)


def empty_tensors(module: ModuleType) -> None:
    for shape in ((0, 64), (3, 0), (2, 0, 32)):
        data, scales = module.quantize(torch.empty(shape))
        assert scales.shape == (*shape[:-1], shape[-1] // 32)
        assert module.dequantize(data, scales).shape == shape
