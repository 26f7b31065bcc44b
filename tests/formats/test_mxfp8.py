from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from msa_ops.formats import mxfp8
from msa_ops.formats.e8m0 import SCALE_ROUNDINGS
from tests.formats import mx_behaviour


@pytest.mark.parametrize("rule", SCALE_ROUNDINGS)
def test_agrees_with_the_oracle(rule: str) -> None:
    mx_behaviour.agrees_with_the_oracle(mxfp8, "mxfp8", rule)


@pytest.mark.parametrize("rule", SCALE_ROUNDINGS)
def test_special_groups(rule: str) -> None:
    mx_behaviour.special_groups(mxfp8, rule)


@pytest.mark.parametrize("rule", SCALE_ROUNDINGS)
def test_scaling_by_powers_of_two_moves_the_scale_alone(rule: str) -> None:
    mx_behaviour.scaling_by_powers_of_two_moves_the_scale_alone(mxfp8, rule)


def test_empty_tensors() -> None:
    mx_behaviour.empty_tensors(mxfp8)


def test_all_elements_times_all_scale_bytes() -> None:
    """256 x 256 products in fp32 against ml_dtypes; both byte dtypes."""
    values = torch.arange(256, dtype=torch.uint8).expand(256, 256)
    scales = torch.arange(256, dtype=torch.uint8).unsqueeze(1).expand(256, 8)
    elements = values.numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    factors = scales[:, :1].numpy().copy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = elements * factors
    for typed in (False, True):
        v, s = values.contiguous(), scales.contiguous()
        if typed:
            v, s = v.view(torch.float8_e4m3fn), s.view(torch.float8_e8m0fnu)
        found = mxfp8.dequantize(v, s).numpy()
        assert np.array_equal(found, expected, equal_nan=True)
    assert np.isinf(expected).any() and np.isnan(expected).sum() == 256 + 2 * 255


def test_floor_saturates_and_rceil_does_not() -> None:
    x = torch.full((1, 32), 500.0)
    data, scales = mxfp8.quantize(x)
    assert scales.item() == 127 and mxfp8.dequantize(data, scales)[0, 0] == 448
    data, scales = mxfp8.quantize(x, scale_rounding="rceil")
    assert scales.item() == 128 and mxfp8.dequantize(data, scales)[0, 0] == 512  # 250 -> 256


def test_result_dtype_and_sign_of_zero() -> None:
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 1] = -1e-9, 1.0
    data, _ = mxfp8.quantize(x)
    assert data.dtype == torch.float8_e4m3fn and data.view(torch.uint8)[0, 0] == 0x80
