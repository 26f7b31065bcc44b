"""How much a time may move by chance: a band for each case, from repeated runs of the same code (A/A baselines).

    band = max(floor, FACTOR * between, FACTOR * within)

between: 1.4826 * MAD of the runs' quartiles over their centre, the largest of the three quartiles.
within:  1.2533 * 1.4826 * MAD of the samples of a run over its median, / sqrt(number of samples): the standard error
         of a median. The largest of the runs.
With fewer than MIN_BASELINES runs nothing is known of the spread between runs: the floor is SINGLE_FLOOR, and the band
is at least the widest interquartile range of a run over its median: runs of a busy machine differ as its samples do.
Sources: 1.4826 MAD estimates a normal distribution's standard deviation (Hampel 1974); a median's standard error is
sqrt(pi / 2) times a mean's.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FLOOR = 0.02
SINGLE_FLOOR = 0.05
FACTOR = 3.0
MIN_BASELINES = 3
MIN_SAMPLES = 5

Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class NoiseModel:
    """`floor`: smallest band with enough baselines; `single_floor`: without. Relative (0.02 is 2 %)."""

    floor: float = FLOOR
    single_floor: float = SINGLE_FLOOR
    factor: float = FACTOR

    def __post_init__(self) -> None:
        for name in ("floor", "single_floor", "factor"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name}: {value}; accepted: positive numbers")

    def band(self, baselines: Sequence[Sequence[float]], new: Sequence[float]) -> float:
        """The band for `new` against runs of the baseline, each a list of samples in seconds."""
        within = max(_standard_error(samples) for samples in [*baselines, new])
        if len(baselines) < MIN_BASELINES:
            spread = max((third - first) / median for first, median, third in map(quartiles, [*baselines, new]))
            return max(self.single_floor, self.factor * within, spread)
        between = max(
            1.4826 * _mad(column) / statistics.median(column) for column in zip(*map(quartiles, baselines), strict=True)
        )
        return max(self.floor, self.factor * between, self.factor * within)


def quartiles(samples: Sequence[float]) -> Quartiles:
    """First quartile, median and third quartile, with linear interpolation."""
    ordered = sorted(samples)

    def at(share: float) -> float:
        position = share * (len(ordered) - 1)
        low = math.floor(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (position - low) * (ordered[high] - ordered[low])

    return at(0.25), at(0.5), at(0.75)


def centre(runs: Sequence[Sequence[float]]) -> Quartiles:
    """Quartiles of several runs: the median of each run's."""
    first, second, third = zip(*map(quartiles, runs), strict=True)
    return statistics.median(first), statistics.median(second), statistics.median(third)


def trend(samples: Sequence[float]) -> tuple[float, float]:
    """Drift within a run: last third's median over the first third's, less 1; and z of Kendall's trend test.

    z compares the number of rising against falling pairs with what chance gives (Mann 1945, Kendall 1975), without
    correction for ties. Both are 0 for fewer than 6 samples.
    """
    count = len(samples)
    if count < 6:
        return 0.0, 0.0
    third = count // 3
    shift = statistics.median(samples[-third:]) / statistics.median(samples[:third]) - 1
    score = 0
    earlier: list[float] = []  # sorted
    for sample in samples:
        score += bisect.bisect_left(earlier, sample) - (len(earlier) - bisect.bisect_right(earlier, sample))
        bisect.insort(earlier, sample)
    variance = count * (count - 1) * (2 * count + 5) / 18
    return shift, (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0


def _mad(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def _standard_error(samples: Sequence[float]) -> float:
    """Of the median, relative to it."""
    return 1.2533 * 1.4826 * _mad(samples) / statistics.median(samples) / math.sqrt(len(samples))
