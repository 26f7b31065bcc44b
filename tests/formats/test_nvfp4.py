from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from msa_ops.formats import e2m1, e4m3, nvfp4
from tests.contract.oracles import block_scaled

SCALES = np.arange(1, 127, dtype=np.uint8)
"""Every positive finite scale byte."""

SCALE_VALUES = SCALES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def every_product() -> tuple[torch.Tensor, torch.Tensor]:
    """Groups that hold all 16 codes, one for each of the 256 scale bytes."""
    codes = e2m1.pack(torch.arange(16, dtype=torch.uint8).expand(256, 16))
    return codes, torch.arange(256, dtype=torch.uint8).unsqueeze(1)


def decision_groups(points: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """For every positive finite scale s: a group with amax 6 s, so that s is its scale, and 15 values below.

    They are the points times s with both fp32 neighbours, five points at a time; also the same values in fp32.
    """
    middle = SCALE_VALUES[:, None] * points.astype(np.float32)  # exact: at most 4 + 3 bits
    x = np.stack([np.nextafter(middle, np.float32(0)), middle, np.nextafter(middle, np.float32(1e9))], -1)
    x = x.reshape(len(SCALES), -1)
    return torch.from_numpy(np.concatenate([6 * SCALE_VALUES[:, None], x], 1)), x


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
def test_all_codes_times_all_scale_bytes(rounding: str) -> None:
    codes, scales = every_product()
    values = nvfp4.dequantize(codes, scales, rounding=rounding).numpy()
    expected = block_scaled.nvfp4_dequantize(codes.numpy(), scales.numpy(), rounding).astype(np.float32)
    assert np.array_equal(np.isnan(values), np.isnan(expected)) and np.isnan(values).sum() == 32
    finite = ~np.isnan(values)
    assert np.array_equal(values[finite].view(np.int32), expected[finite].view(np.int32)), "bits, sign of zero too"
    typed = nvfp4.dequantize(codes, scales.view(torch.float8_e4m3fn), rounding=rounding).numpy()
    assert np.array_equal(values, typed, equal_nan=True)


def test_facts_about_the_products() -> None:
    """The counts that research and kernels rely on, in exact arithmetic."""
    scales = [Fraction(0)] + [Fraction(float(s)) for s in SCALE_VALUES]
    magnitudes = [Fraction(m) for m in e2m1.MAGNITUDES]
    products = [s * m for s in scales for m in magnitudes]
    assert len(products) == 1016
    rounded = e4m3.round_to(torch.tensor([float(p) for p in products])).tolist()
    inexact = [(p, r) for p, r in zip(products, rounded, strict=True) if p != r]
    halfway = [p for p, _ in inexact if any(p - a == b - p for a, b in itertools.pairwise(scales))]
    saturated = [p for p, _ in inexact if p > scales[-1]]
    flushed = [p for p, r in inexact if r == 0]
    assert (len(inexact), len(halfway), len(saturated), len(flushed)) == (275, 95, 63, 1)
    assert flushed == [Fraction(1, 2**10)]
    assert max(s for s in scales if s * 6 <= 448) == 72
    errors = [
        abs(s * m - Fraction(e4m3.round_to(torch.tensor(float(s * m))).item())) / (s * m)
        for s in scales
        if Fraction(1, 32) <= s <= 72
        for m in magnitudes[1:]
    ]
    assert 0.047 < max(errors) < 0.048


@pytest.mark.parametrize("points", [(0.25, 0.75, 1.25, 1.75, 2.5), (2.5, 3.5, 5.0, 5.0, 0.25)])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_decision_point_at_every_scale(points: tuple[float, ...], sign: int) -> None:
    """fp32 division loses no decision: codes are those of exact rational arithmetic, at each of 126 scales."""
    groups, x = decision_groups(np.array(points))
    codes, scales = nvfp4.quantize(sign * groups)
    assert scales.flatten().tolist() == SCALES.tolist()
    found = e2m1.unpack(codes)[:, 1:].numpy()
    for row, scale in enumerate(SCALE_VALUES):
        for column, value in enumerate(x[row]):
            exact = Fraction(float(value)) / Fraction(float(scale))
            distances = [abs(exact - Fraction(m)) for m in e2m1.MAGNITUDES]
            best = [i for i, d in enumerate(distances) if d == min(distances)]
            expected = next(i for i in best if len(best) == 1 or i % 2 == 0)
            if sign < 0 and expected:
                expected += 8
            assert found[row, column] == expected, (float(scale), float(value))


def test_reciprocal_moves_values_across_decision_points() -> None:
    """What `division="reciprocal"` costs: some neighbours of decision points land on the other side, no other value."""
    points = np.array([0.25, 0.75, 1.25, 1.75, 2.5])
    groups, _ = decision_groups(points)
    exact, scales = nvfp4.quantize(groups)
    moved, same = nvfp4.quantize(groups, division="reciprocal")
    assert torch.equal(scales, same)
    difference = e2m1.unpack(moved).int() - e2m1.unpack(exact).int()
    assert 0 < (difference != 0).sum() < difference.numel() // 4 and difference.abs().max() == 1
    expected, _ = block_scaled.nvfp4_quantize(groups.numpy(), division="reciprocal")
    assert np.array_equal(moved.numpy(), expected)


def test_contract_m31() -> None:
    """Zero groups, tiny groups, saturation, and -0, as the contract states them."""
    x = torch.zeros(5, 16)
    x[1, 3], x[2, 0], x[3, 0], x[4, :2] = 1 / 1024, 1e6, 2688.0, torch.tensor([6.0, -0.2])
    codes, scales = nvfp4.quantize(x)
    assert scales.flatten().tolist() == [0x01, 0x01, 0x7E, 0x7E, 0x38]
    assert e2m1.unpack(codes)[0].tolist() == [0] * 16
    assert e2m1.unpack(codes)[1, 3] == 1, "1/1024 is half of 1/512"
    assert e2m1.unpack(codes)[2, 0] == 7 and e2m1.unpack(codes)[3, 0] == 7
    assert e2m1.unpack(codes)[4, :2].tolist() == [7, 0]


def test_writers_without_a_floor() -> None:
    """pytorch/ao#4713 and others: a zero group has scale 0 and codes 0, not NaN; tiny groups are lost."""
    x = torch.zeros(3, 16)
    x[1, 0], x[2] = -(2.0**-11), 2.0**-149
    for division in nvfp4.DIVISIONS:
        codes, scales = nvfp4.quantize(x, scale_floor=0.0, division=division)
        assert not scales.any() and not codes.any()
        assert not nvfp4.dequantize(codes, scales).any()


def test_special_inputs() -> None:
    x = torch.ones(4, 16)
    x[0, 0], x[1, 0], x[2, 0], x[3] = torch.nan, torch.inf, -torch.inf, torch.nan
    codes, scales = nvfp4.quantize(x)
    assert scales.flatten().tolist() == [int(e4m3.to_bytes(torch.tensor(1 / 6))), 0x7E, 0x7E, 0x01]
    assert e2m1.unpack(codes)[:, :2].tolist() == [[0, 7], [7, 0], [15, 0], [0, 0]]


@pytest.mark.parametrize("g", [0.0, -1.0, torch.nan, torch.inf])
def test_useless_global_scale_is_seen(g: float) -> None:
    codes, scales = nvfp4.quantize(torch.randn(2, 32), global_scale=torch.tensor(g))
    assert (scales == e4m3.NAN).all() and not codes.any()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_global_scale(shape: tuple[int, ...]) -> None:
    """Quantising x with g is quantising x / g without, when g is a power of two; its shape adds no dimension."""
    x, g = torch.randn(3, 64), torch.full(shape, 2.0**-7)
    codes, scales = nvfp4.quantize(x, global_scale=g)
    other_codes, other_scales = nvfp4.quantize(x * 2.0**7)
    assert torch.equal(codes, other_codes) and torch.equal(scales, other_scales)
    for rounding in e4m3.ROUNDINGS:
        values = nvfp4.dequantize(codes, scales, global_scale=g, rounding=rounding)
        assert torch.equal(values, nvfp4.dequantize(codes, scales, rounding=rounding) * 2.0**-7)


def test_global_scale_of_each_row() -> None:
    x, g = torch.randn(3, 32), torch.tensor([[0.5], [0.01], [3.0]])
    codes, scales = nvfp4.quantize(x, global_scale=g)
    for row in range(3):
        expected = nvfp4.quantize(x[row], global_scale=g[row])
        assert torch.equal(codes[row], expected[0]) and torch.equal(scales[row], expected[1])


def test_dequantised_values_are_fixed_points() -> None:
    """Values that NVFP4 can hold come back, if their group's maximum is 6 or 4 times the scale."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 8, (200, 16), generator=generator, dtype=torch.uint8)
    codes[:, 0] = 7
    scales = torch.randint(1, 127, (200, 1), generator=generator).to(torch.uint8)
    again, same = nvfp4.quantize(nvfp4.dequantize(e2m1.pack(codes), scales))
    assert torch.equal(same, scales) and torch.equal(again, e2m1.pack(codes))


def test_negation_flips_signs_alone() -> None:
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    (codes, scales), (negated, same) = nvfp4.quantize(x), nvfp4.quantize(-x)
    assert torch.equal(scales, same)
    assert torch.equal(nvfp4.dequantize(codes, scales), -nvfp4.dequantize(negated, scales))


def test_empty_tensors_and_dtypes() -> None:
    for shape in ((0, 32), (3, 0), (2, 0, 16)):
        codes, scales = nvfp4.quantize(torch.empty(shape))
        assert codes.shape == (*shape[:-1], shape[-1] // 2) and scales.shape == (*shape[:-1], shape[-1] // 16)
        assert nvfp4.dequantize(codes, scales).shape == shape
    x = torch.randn(4, 32).bfloat16()
    assert torch.equal(nvfp4.quantize(x)[0], nvfp4.quantize(x.float())[0])


def test_unknown_names_are_refused() -> None:
    x = torch.ones(1, 16)
    with pytest.raises(ValueError, match="division: 'fast'; accepted: divide, reciprocal"):
        nvfp4.quantize(x, division="fast")
    with pytest.raises(ValueError, match="rounding: 'bf16'; accepted: exact, e4m3"):
        nvfp4.dequantize(*nvfp4.quantize(x), rounding="bf16")
