"""Medians with their uncertainty.

Run times are skewed and not normal, so nothing here assumes a distribution: the
interval of a median comes from order statistics (the quantile test of Conover,
*Practical Nonparametric Statistics*), the spread is the median absolute deviation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


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

    def half_width(self) -> float:
        """How exactly the median is known: half the interval, relative to it."""
        if self.low is None or self.high is None:
            return (self.largest - self.smallest) / 2 / self.median
        return (self.high - self.low) / 2 / self.median


def summarise(values: Sequence[float]) -> Summary:
    """The median of at least one value."""
    # The published stubs take the interval for a number.
    interval: Any = stats.quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    return Summary(
        count=len(values),
        median=float(np.median(values)),
        low=low if math.isfinite(low) else None,
        high=high if math.isfinite(high) else None,
        deviation=float(stats.median_abs_deviation(values)),
        smallest=min(values),
        largest=max(values),
    )


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Summary:
    """The ratio round by round: what disturbs a whole round disturbs both its sides."""
    return summarise(
        [value / other for value, other in zip(values, base, strict=False)]
    )
