from __future__ import annotations

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msa_ops.formats import e2m1

EVERY_CODE = torch.arange(16, dtype=torch.uint8)


def test_values_are_those_of_ml_dtypes() -> None:
    expected = EVERY_CODE.numpy().view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    values = e2m1.decode(EVERY_CODE)
    assert torch.equal(values.view(torch.int32), torch.from_numpy(expected).view(torch.int32))
    assert math.copysign(1, values[8].item()) == -1


def test_decode_ignores_the_high_nibble() -> None:
    assert torch.equal(e2m1.decode(EVERY_CODE | 0x50), e2m1.decode(EVERY_CODE))


def test_values_come_back_and_minus_zero_is_not_written() -> None:
    expected = torch.where(EVERY_CODE == 8, 0, EVERY_CODE)
    assert torch.equal(e2m1.encode(e2m1.decode(EVERY_CODE)), expected)


def test_every_decision_point_and_its_neighbours() -> None:
    """Exact rational distances decide; the even code takes the tie."""
    grid = [Fraction(str(m)) for m in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
    points = [(a + b) / 2 for a, b in itertools.pairwise(grid)]
    assert [float(p) for p in points] == [point for point, _ in e2m1.DECISION_POINTS]
    for index, point in enumerate(points):
        middle = np.float32(point)
        for x in (middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(9))):
            low, high = Fraction(float(x)) - grid[index], grid[index + 1] - Fraction(float(x))
            even = index if index % 2 == 0 else index + 1
            expected = even if low == high else index if low < high else index + 1
            codes = e2m1.encode(torch.tensor([x, -x])).tolist()
            assert codes == [expected, expected + 8 if expected else 0], x


def test_special_values() -> None:
    x = torch.tensor([0.0, -0.0, -0.1, torch.inf, -torch.inf, 1e30, torch.nan, 2.0**-149, -(2.0**-149)])
    assert e2m1.encode(x).tolist() == [0, 0, 0, 7, 15, 7, 0, 0, 0]


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=50))
@settings(max_examples=200, deadline=None)
def test_encode_agrees_with_ml_dtypes(values: list[float]) -> None:
    x = np.array(values, np.float32)
    expected = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    expected = np.where(expected == 8, 0, expected)
    assert e2m1.encode(torch.from_numpy(x)).tolist() == expected.tolist()


def test_pack_puts_the_lower_index_in_the_low_nibble() -> None:
    assert e2m1.pack(torch.tensor([1, 15, 8, 2], dtype=torch.uint8)).tolist() == [0xF1, 0x28]


def test_pack_and_unpack_are_inverse_on_every_byte() -> None:
    data = torch.arange(256, dtype=torch.uint8).view(4, 64)
    assert torch.equal(e2m1.pack(e2m1.unpack(data)), data)
    assert e2m1.unpack(data).shape == (4, 128)
    assert e2m1.pack(e2m1.unpack(data[:, :0])).shape == (4, 0)
    assert e2m1.pack(e2m1.unpack(data[:0])).shape == (0, 64)
