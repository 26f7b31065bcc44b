from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from msa_ops.formats import mxfp4
from msa_ops.formats.e8m0 import SCALE_ROUNDINGS
from tests.formats import mx_behaviour


@pytest.mark.parametrize("rule", SCALE_ROUNDINGS)
def test_agrees_with_the_oracle(rule: str) -> None:
    mx_behaviour.agrees_with_the_oracle(mxfp4, "mxfp4", rule)


@pytest.mark.parametrize("rule", SCALE_ROUNDINGS)
def test_special_groups(rule: str) -> None:
    mx_behaviour.special_groups(mxfp4, rule)


@pytest.mark.parametrize("rule", SCALE_ROUNDINGS)
def test_scaling_by_powers_of_two_moves_the_scale_alone(rule: str) -> None:
    mx_behaviour.scaling_by_powers_of_two_moves_the_scale_alone(mxfp4, rule)


def test_empty_tensors() -> None:
    mx_behaviour.empty_tensors(mxfp4)


def test_all_codes_times_all_scale_bytes() -> None:
    """16 x 256 products in fp32 against ml_dtypes; both scale dtypes."""
    codes = torch.arange(256, dtype=torch.uint8).expand(256, 256).contiguous()
    scales = torch.arange(256, dtype=torch.uint8).unsqueeze(1).expand(256, 16).contiguous()
    nibbles = np.stack([codes.numpy() % 16, codes.numpy() // 16], -1).reshape(256, 512).astype(np.uint8)
    elements = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    factors = scales[:, :1].numpy().copy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = elements * factors
    for s in (scales, scales.view(torch.float8_e8m0fnu)):
        assert np.array_equal(mxfp4.dequantize(codes, s).numpy(), expected, equal_nan=True)
    assert np.isnan(expected[255]).all() and not np.isnan(expected[:255]).any()


def test_floor_saturates_and_rceil_does_not() -> None:
    x = torch.full((1, 32), 7.5)
    data, scales = mxfp4.quantize(x)
    assert scales.item() == 127 and mxfp4.dequantize(data, scales)[0, 0] == 6
    data, scales = mxfp4.quantize(x, scale_rounding="rceil")
    assert scales.item() == 128 and mxfp4.dequantize(data, scales)[0, 0] == 8  # 3.75 -> 4


def test_minus_zero_is_not_written() -> None:
    x = torch.full((1, 32), -0.01)
    x[0, 1] = 6.0
    codes, _ = mxfp4.quantize(x)
    assert codes[0].tolist() == [0x70] + [0] * 15
