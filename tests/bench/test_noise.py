from __future__ import annotations

import random
import statistics
import time

import numpy as np
import pytest

from msa_ops.bench.noise import NoiseModel, centre, quartiles, trend
from tests.bench.synthetic import normal


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10, 31])
def test_quartiles_are_numpy_s(count: int) -> None:
    samples = normal(count, count)
    assert quartiles(samples) == pytest.approx(tuple(np.percentile(samples, [25, 50, 75])))


def test_centre_is_the_median_run() -> None:
    runs = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [100.0, 200.0, 300.0]]
    assert centre(runs) == (3.0, 4.0, 5.0)


def test_quiet_runs_get_the_floor() -> None:
    quiet = [[1.0] * 10] * 3
    assert NoiseModel().band(quiet, quiet[0]) == 0.02
    assert NoiseModel(floor=0.01).band(quiet, quiet[0]) == 0.01
    assert NoiseModel().band(quiet[:2], quiet[0]) == 0.05, "two runs say little about the spread between runs"


def test_spread_between_runs_widens_the_band() -> None:
    runs = [[1.0] * 10, [1.04] * 10, [0.96] * 10]
    assert NoiseModel().band(runs, runs[0]) == pytest.approx(3 * 1.4826 * 0.04)
    assert NoiseModel(factor=5).band(runs, runs[0]) == pytest.approx(5 * 1.4826 * 0.04)


def test_spread_within_a_run_widens_the_band_less_with_more_samples() -> None:
    """Against the standard error of a median of normal samples, from simulation."""
    quiet = [[1.0] * 10] * 3
    few, many = (NoiseModel().band(quiet, normal("n", count, 1.0, 0.1)) for count in (10, 160))
    medians = [statistics.median(normal(seed, 160, 1.0, 0.1)) for seed in range(300)]
    assert many == pytest.approx(3 * statistics.stdev(medians), rel=0.3)
    assert few > 2 * many


def test_one_wild_run_does_not_hide_everything() -> None:
    runs = [[1.0] * 10, [1.001] * 10, [0.999] * 10, [1.0] * 10, [3.0] * 10]
    assert NoiseModel().band(runs, runs[0]) == 0.02


@pytest.mark.parametrize("name", ["floor", "single_floor", "factor"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_models(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        NoiseModel(**{name: value})


def test_trend_counts_pairs() -> None:
    """z of Kendall's test from all pairs; ties count for neither side."""
    for seed in range(20):
        samples = [round(sample, 2) for sample in normal(seed, 25, 1.0, 0.05)]
        score = sum((b > a) - (b < a) for place, a in enumerate(samples) for b in samples[place + 1 :])
        expected = (score - (score > 0) + (score < 0)) / (25 * 24 * 55 / 18) ** 0.5
        assert trend(samples)[1] == pytest.approx(expected)


def test_trend_of_many_samples_takes_no_minutes() -> None:
    start = time.perf_counter()
    assert trend([1e-4 + 1e-12 * step for step in range(50_000)])[1] > 100
    assert time.perf_counter() - start < 10


def test_trend_is_rarely_seen_in_noise_and_always_in_a_ramp() -> None:
    false = sum(abs(trend(normal(seed, 30))[1]) >= 3 for seed in range(400))
    assert false <= 6
    generator = random.Random(1)
    ramp = [1 + 0.2 * step / 30 + 0.01 * generator.gauss(0, 1) for step in range(30)]
    shift, z = trend(ramp)
    assert 0.1 < shift < 0.2 and z > 5
    shift, z = trend(ramp[::-1])
    assert shift < -0.1 and z < -5
    assert trend([1.0, 2.0, 3.0]) == (0.0, 0.0)
    assert trend([1.0] * 10) == (0.0, 0.0)


def test_one_wide_baseline_run_makes_a_wide_band() -> None:
    """A busy machine: samples spread by a third, so a second run may be off by as much."""
    wide = [1.0 + 0.01 * (i * 37 % 60) for i in range(60)]
    tight = [1.0 + 0.0001 * (i % 7) for i in range(60)]
    model = NoiseModel()
    first, median, third = quartiles(wide)
    assert model.band([wide], tight) >= (third - first) / median > 0.2
    assert model.band([tight], wide) >= (third - first) / median
    assert model.band([tight], tight) == model.single_floor
    assert model.band([wide] * 3, wide) < 0.2, "with three runs the spread between them is known"
