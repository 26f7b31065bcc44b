"""Approximate functions of fp32: within the errors that the PTX manual gives, and the special values it lists."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.programs import apply
from tests.emulator.test_float import NAN, flushed, operands

INF = np.inf


def result(opcode: str, a: np.ndarray) -> np.ndarray:
    return apply(f"{opcode}.f32 D, A", "float32", a.astype(np.float32))


def inputs(low: float, high: float, count: int = 4000) -> np.ndarray:
    """Numbers of every size between the two, evenly over their logarithms and over themselves."""
    rng = np.random.default_rng(5)
    sizes = np.exp2(rng.uniform(np.log2(low), np.log2(high), count))
    return np.concatenate([sizes, rng.uniform(low, high, count)]).astype(np.float32)


def relative(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got / expected - 1).max())


# Greatest errors of the PTX manual: relative, over the full range of normal operands and results.
RELATIVE = {
    "rcp.approx": (lambda x: 1 / x, 2.0**-23, (2.0**-125, 2.0**125)),
    "rcp.approx.ftz": (lambda x: 1 / x, 2.0**-23, (2.0**-125, 2.0**125)),
    "rsqrt.approx": (lambda x: 1 / np.sqrt(x), 2.0**-22.9, (2.0**-126, 2.0**127)),
    "rsqrt.approx.ftz": (lambda x: 1 / np.sqrt(x), 2.0**-22.9, (2.0**-126, 2.0**127)),
    "sqrt.approx": (np.sqrt, 2.0**-23, (2.0**-126, 2.0**127)),
    "sqrt.approx.ftz": (np.sqrt, 2.0**-23, (2.0**-126, 2.0**127)),
    "tanh.approx": (np.tanh, 2.0**-11, (2.0**-126, 2.0**127)),
}


@pytest.mark.parametrize("opcode", RELATIVE)
def test_relative_error(opcode: str) -> None:
    function, error, (low, high) = RELATIVE[opcode]
    a = inputs(low, high)
    assert relative(result(opcode, a).astype(np.float64), function(a.astype(np.float64))) <= error


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_logarithm(ftz: str) -> None:
    a = inputs(0.5, 2)
    assert np.abs(result(f"lg2.approx{ftz}", a) - np.log2(a.astype(np.float64))).max() <= 2.0**-22
    for a in (inputs(2.0**-126, 0.5), inputs(2, 2.0**127)):
        assert relative(result(f"lg2.approx{ftz}", a), np.log2(a.astype(np.float64))) <= 2.0**-22


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_exponential(ftz: str) -> None:
    a = np.concatenate([inputs(2.0**-126, 127), -inputs(2.0**-126, 125)])
    assert relative(result(f"ex2.approx{ftz}", a), np.exp2(a.astype(np.float64))) <= 2.0**-22


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circle(name: str, ftz: str) -> None:
    a = inputs(2.0**-126, 6.28)
    a = np.concatenate([a, -a])
    exact = getattr(np, name)(a.astype(np.float64))
    # The manual says 2^-20.5; the chip's cosine, which these bits are, is off by 2^-20.46 at 4.8984184.
    assert np.abs(result(f"{name}.approx{ftz}", a) - exact).max() <= 2.0**-20.4


def test_without_ftz_subnormal_numbers_count() -> None:
    rng = np.random.default_rng(6)
    tiny = rng.integers(1, 1 << 23, 500, dtype=np.uint32).view(np.float32)
    wide = tiny.astype(np.float64)
    with np.errstate(over="ignore"):
        inverse = (1 / wide).astype(np.float32)
    got = result("rcp.approx", tiny)
    assert np.array_equal(np.isinf(got), np.isinf(inverse))
    assert relative(got[np.isfinite(got)], inverse[np.isfinite(got)]) <= 2.0**-22
    assert relative(result("rsqrt.approx", tiny), 1 / np.sqrt(wide)) <= 2.0**-22
    assert relative(result("sqrt.approx", tiny), np.sqrt(wide)) <= 2.0**-22
    assert relative(result("lg2.approx", tiny), np.log2(wide)) <= 2.0**-22
    low = np.float32(-126.5) - rng.uniform(0, 20, 500).astype(np.float32)
    assert np.abs(result("ex2.approx", low) - np.exp2(low.astype(np.float64))).max() <= 2.0**-148
    large = inputs(2.0**126.1, 2.0**127.9)
    assert np.abs(result("rcp.approx", large) - 1 / large.astype(np.float64)).max() <= 2.0**-148


@pytest.mark.parametrize("name", ["rcp", "rsqrt", "sqrt", "lg2", "ex2"])
def test_with_ftz_subnormal_numbers_are_zeros(name: str) -> None:
    tiny = np.array([1, 0x7FFFFF, 0x80000001, 0x807FFFFF], np.uint32).view(np.float32)
    zero = np.copysign(np.float32(0), tiny)
    got, expected = (result(f"{name}.approx.ftz", a).view(np.uint32) for a in (tiny, zero))
    np.testing.assert_array_equal(got, expected)
    (a,) = operands(1)
    got = result(f"{name}.approx.ftz", a)
    np.testing.assert_array_equal(flushed(got).view(np.uint32), got.view(np.uint32))


SPECIAL = {
    "rcp": [(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (np.nan, np.nan)],
    "rsqrt": [(-INF, np.nan), (-1.0, np.nan), (-0.0, -INF), (0.0, INF), (INF, 0.0), (np.nan, np.nan)],
    "sqrt": [(-INF, np.nan), (-1.0, np.nan), (-0.0, -0.0), (0.0, 0.0), (INF, INF), (np.nan, np.nan)],
    "lg2": [(-INF, np.nan), (-1.0, np.nan), (-0.0, -INF), (0.0, -INF), (INF, INF), (np.nan, np.nan)],
    "ex2": [(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (np.nan, np.nan)],
    "sin": [(-INF, np.nan), (-0.0, -0.0), (0.0, 0.0), (INF, np.nan), (np.nan, np.nan)],
    "cos": [(-INF, np.nan), (-0.0, 1.0), (0.0, 1.0), (INF, np.nan), (np.nan, np.nan)],
}


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str, ftz: str) -> None:
    a, expected = np.array(SPECIAL[name], np.float32).T
    bits = np.where(np.isnan(expected), NAN, expected.view(np.uint32))
    np.testing.assert_array_equal(result(f"{name}.approx{ftz}", a).view(np.uint32), bits)


def test_special_values_of_tanh() -> None:
    a = np.array([-INF, -0.0, 0.0, INF, np.nan], np.float32)
    bits = np.array([0xBF800000, 0x80000000, 0, 0x3F800000, 0x7FFFFFFF], np.uint32)
    np.testing.assert_array_equal(result("tanh.approx", a).view(np.uint32), bits)
