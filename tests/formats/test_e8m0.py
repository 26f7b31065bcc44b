from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from msa_ops.formats import e8m0, mxfp4, mxfp8
from tests.contract.oracles import block_scaled

EVERY_BYTE = torch.arange(256, dtype=torch.uint8)
ELEMENTS = {"mxfp8": mxfp8.ELEMENT, "mxfp4": mxfp4.ELEMENT}


def boundaries() -> np.ndarray:
    """Magnitudes where a rule may change its mind, and their fp32 neighbours, at every exponent of fp32."""
    mantissas = np.array([1, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875], np.float64)
    exponents = np.arange(-149, 128, dtype=np.float64)
    x = (mantissas * 2.0 ** exponents[:, None]).astype(np.float32).flatten()
    x = np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))])
    return np.unique(np.concatenate([x, [0, np.inf, np.finfo(np.float32).max]]).astype(np.float32))


def test_every_byte_reads_as_in_ml_dtypes() -> None:
    expected = EVERY_BYTE.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    for data in (EVERY_BYTE, EVERY_BYTE.view(torch.float8_e8m0fnu)):
        values = e8m0.from_bytes(data).numpy()
        assert np.array_equal(values, expected, equal_nan=True)
    assert Fraction(float(values[0])) == Fraction(1, 2**127) and np.isnan(values[255])


def test_powers_of_two_come_back() -> None:
    values = e8m0.from_bytes(EVERY_BYTE)
    for rounding in ("up", "down"):
        assert torch.equal(e8m0.to_bytes(values, rounding=rounding), EVERY_BYTE)


@pytest.mark.parametrize("rounding", ["up", "down"])
def test_other_scales_are_rounded_as_named(rounding: str) -> None:
    """sglang#25733: a scale that is not a power of two must not lose its mantissa without a rule."""
    x = boundaries()
    values = [Fraction(float(v)) for v in x[np.isfinite(x)]]
    scales = [Fraction(2) ** (b - 127) for b in range(255)]
    found = e8m0.to_bytes(torch.from_numpy(x[np.isfinite(x)]), rounding=rounding).tolist()
    for value, byte in zip(values, found, strict=True):
        if rounding == "up":
            assert byte == 254 or scales[byte] >= value
            assert byte == 0 or scales[byte - 1] < value
        else:
            assert byte == 0 or scales[byte] <= value
            assert byte == 254 or scales[byte + 1] > value


def test_values_without_a_scale() -> None:
    x = torch.tensor([0.0, -0.0, 2.0**-149, torch.inf, torch.nan, -1.0, -torch.inf])
    assert e8m0.to_bytes(x).tolist() == [0, 0, 0, 254, 255, 255, 255]
    with pytest.raises(ValueError, match="rounding: 'nearest'; accepted: up, down"):
        e8m0.to_bytes(x, rounding="nearest")


@pytest.mark.parametrize("rule", e8m0.SCALE_ROUNDINGS)
@pytest.mark.parametrize("element", ["mxfp8", "mxfp4"])
def test_every_rule_at_every_exponent(element: str, rule: str) -> None:
    """ROCm/aiter#3212: back ends that differ in their E8M0 rounding."""
    amax = np.append(boundaries(), np.float32(np.nan))
    expected = block_scaled.e8m0_scales(amax, element, rule)
    assert e8m0.group_scales(torch.from_numpy(amax), ELEMENTS[element], rule).tolist() == expected.tolist()


@pytest.mark.parametrize("element", ["mxfp8", "mxfp4"])
def test_rules_keep_their_promises(element: str) -> None:
    """rceil and ceil never saturate; rceil is never larger than ceil; floor is the smallest of all."""
    x = boundaries()
    x = torch.from_numpy(x[np.isfinite(x) & (x >= 2.0**-110)])
    largest = ELEMENTS[element].max
    value = {r: e8m0.from_bytes(e8m0.group_scales(x, ELEMENTS[element], r)).double() for r in e8m0.SCALE_ROUNDINGS}
    assert (x.double() <= largest * value["rceil"]).all()
    assert (x.double() > largest * value["rceil"] / 2).all(), "the next smaller scale would do"
    for rule in ("even", "ceil", "rceil"):
        assert (value["floor"] <= value[rule]).all() and (value[rule] <= value["ceil"]).all()
    saturating = x.double() > largest * value["floor"]
    assert saturating.any() and (value["rceil"] == value["floor"] * (1 + saturating.double())).all()


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="scale_rounding: 'nearest'; accepted: floor, ceil, even, rceil"):
        e8m0.group_scales(torch.ones(1), mxfp8.ELEMENT, "nearest")


def test_normalize_is_exact_at_both_ends() -> None:
    groups = torch.tensor([[2.0**-149, 2.0**-120], [2.0**127, 2.0**100], [1.0, torch.inf], [3.0, -1.0]])
    scales = torch.tensor([0, 254, 254, 255], dtype=torch.uint8)
    expected = [[2.0**-22, 2.0**7], [1.0, 2.0**-27], [2.0**-127, torch.inf], [0.0, 0.0]]
    assert e8m0.normalize(groups, scales).tolist() == expected
