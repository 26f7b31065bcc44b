from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import torch

from msa_ops.formats import e4m3

EVERY_BYTE = torch.arange(256, dtype=torch.uint8)
POSITIVE = [float(v) for v in np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int32)


def test_every_byte_reads_as_in_ml_dtypes() -> None:
    expected = torch.from_numpy(EVERY_BYTE.numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    values = e4m3.from_bytes(EVERY_BYTE)
    finite = ~expected.isnan()
    assert finite.sum() == 254
    assert torch.equal(bits(values[finite]), bits(expected[finite])) and values[~finite].isnan().all()
    typed = e4m3.from_bytes(EVERY_BYTE.view(torch.float8_e4m3fn))
    assert torch.equal(typed.isnan(), values.isnan()) and torch.equal(typed[finite], values[finite])


def test_every_byte_comes_back() -> None:
    """NaN is written as 0x7F alone."""
    expected = torch.where(EVERY_BYTE == 0xFF, 0x7F, EVERY_BYTE)
    assert torch.equal(e4m3.to_bytes(e4m3.from_bytes(EVERY_BYTE)), expected)


def test_every_decision_point_and_its_neighbours() -> None:
    """Midpoints of neighbours go to the even byte; one fp32 step beside them to the nearer one."""
    for byte, (low, high) in enumerate(itertools.pairwise(POSITIVE)):
        middle = np.float32((Fraction(low) + Fraction(high)) / 2)
        below, above = np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(1e9))
        even = byte if byte % 2 == 0 else byte + 1
        x = torch.tensor([below, middle, above, -below, -middle, -above])
        expected = [byte, even, byte + 1]
        assert e4m3.to_bytes(x).tolist() == expected + [b + 128 for b in expected]


def test_saturation_and_special_values() -> None:
    """Model-Optimizer#1397: values of 480 and more must not become NaN."""
    x = torch.tensor([448.0, 463.9, 464.0, 465.0, 480.0, 1e30, torch.inf, -torch.inf, torch.nan, -torch.nan, -0.0])
    assert e4m3.to_bytes(x).tolist() == [126] * 7 + [254, 127, 127, 128]


def test_round_to_keeps_what_is_representable() -> None:
    x = torch.tensor(POSITIVE)
    assert torch.equal(e4m3.round_to(x), x) and torch.equal(e4m3.round_to(-x), -x)
    assert e4m3.round_to(torch.tensor([2.0**-10, 3 * 2.0**-11])).tolist() == [0.0, 2.0**-9]


def test_constants() -> None:
    assert max(POSITIVE) == e4m3.MAX and POSITIVE[1] == e4m3.SMALLEST
    assert 2.0**e4m3.MAX_EXPONENT <= e4m3.MAX < 2.0 ** (e4m3.MAX_EXPONENT + 1)
    assert sum(1 <= v < 2 for v in POSITIVE) == 2**e4m3.MANTISSA_BITS
