"""Medians with their uncertainty.

Run times are skewed and not normal, so nothing here assumes a distribution: the
interval of a median comes from order statistics (the quantile test of Conover,
*Practical Nonparametric Statistics*), the spread is the median absolute deviation,
and the interval of a change is Efron's bootstrap percentile interval (1979).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

CONFIDENCE = 0.95
# Fewer values have no interval of 95 %: even their extremes are nearer together.
FEWEST_FOR_INTERVAL = 6
_RESAMPLES = 2000


@dataclass(frozen=True)
class Summary:
    """A median, its 95 % interval, and the spread.

    Fewer than six values have no such interval; their range stands in for it.
    """

    count: int
    median: float
    low: float | None
    high: float | None
    deviation: float
    smallest: float
    largest: float

    @property
    def interval(self) -> tuple[float, float]:
        """The interval, or the range that stands in for it."""
        if self.low is None or self.high is None:
            return self.smallest, self.largest
        return self.low, self.high

    def half_width(self) -> float:
        """How exactly the median is known: half the interval, relative to it.

        A single value says nothing about that: it counts as not known at all.
        """
        if self.count == 1:
            return 1.0
        low, high = self.interval
        return (high - low) / 2 / abs(self.median) if self.median else high - low


@cache
def _ranks(count: int) -> tuple[float, float]:
    """The places, from 1, of the sorted values between which the interval lies."""
    # Here, and not above: --help must do without the packages.
    from scipy import stats

    # The published stubs take the interval for a number.
    test: Any = stats.quantile_test(range(1, count + 1), p=0.5)
    interval = test.confidence_interval(CONFIDENCE)
    return float(interval.low), float(interval.high)


def summarise(values: Sequence[float]) -> Summary:
    """The median of at least one value."""
    ordered = sorted(values)
    low, high = _ranks(len(ordered))
    known = math.isfinite(low) and math.isfinite(high)
    middle = statistics.median(ordered)
    return Summary(
        count=len(ordered),
        median=middle,
        low=ordered[int(low) - 1] if known else None,
        high=ordered[int(high) - 1] if known else None,
        deviation=statistics.median(abs(value - middle) for value in ordered),
        smallest=ordered[0],
        largest=ordered[-1],
    )


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Summary:
    """The ratio round by round: what disturbs a whole round disturbs both its sides."""
    return summarise(
        [value / other for value, other in zip(values, base, strict=False)]
    )


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios; ``half_width`` is relative to it."""

    value: float
    half_width: float
    count: int


def geometric_mean(ratios: Sequence[Summary]) -> Mean:
    """The mean of at least one ratio, all of which are independent."""
    logarithms = [math.log(ratio.median) for ratio in ratios]
    widths = [ratio.half_width() for ratio in ratios]
    return Mean(
        math.exp(math.fsum(logarithms) / len(ratios)),
        math.hypot(*widths) / len(ratios),
        len(ratios),
    )


@dataclass(frozen=True)
class Change:
    """The ratio of two medians that were measured apart, and its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        return self.low > 1 or self.high < 1


def change(new: Sequence[float], old: Sequence[float]) -> Change:
    """How the median changed; with few values, their range stands for the interval."""
    import numpy as np

    ratio = float(np.median(new) / np.median(old))
    if min(len(new), len(old)) < FEWEST_FOR_INTERVAL:
        return Change(ratio, min(new) / max(old), max(new) / min(old))
    random = np.random.default_rng(1)
    medians = [
        np.median(random.choice(values, (_RESAMPLES, len(values))), axis=1)
        for values in (new, old)
    ]
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians[0] / medians[1], [edge, 1 - edge])
    return Change(ratio, float(low), float(high))
