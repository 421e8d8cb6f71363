"""What one process measured, as it reports it in one JSON object."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from bench.compare.cases import Case

# A run whose single thread was kept from the processor this much longer than it ran.
DISTURBED = 1.05


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


@dataclass(frozen=True)
class Series:
    """Something over time, or over another quantity; ``x`` and ``y`` name the axes."""

    name: str
    x: str
    y: str
    points: tuple[tuple[float, float], ...]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        points = tuple((_finite(x), _finite(y)) for x, y in given["points"])
        return cls(given["name"], given["x"], given["y"], points)


@dataclass(frozen=True)
class Figure:
    """A further number of a workload; ``better`` is ``less`` or ``more``."""

    name: str
    value: float
    unit: str
    better: str

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        better = given["better"]
        if better not in ("less", "more"):
            raise ValueError(f"better is {better!r}, not 'less' or 'more'")
        return cls(
            given["name"], _finite(given["value"]), given.get("unit", ""), better
        )


@dataclass(frozen=True)
class Run:
    """What one process measured; ``percentiles`` holds nanoseconds by percentile."""

    peer: str
    round: int
    seconds: float
    user_seconds: float
    system_seconds: float
    nanoseconds: float
    ops: int
    checksum: str
    peak_rss_kib: int
    final_rss_kib: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    disturbed: bool
    compiler: str
    params: dict[str, Any]
    points: dict[str, float]
    percentiles: dict[str, dict[str, float]]
    figures: tuple[Figure, ...]
    series: tuple[Series, ...]

    @classmethod
    def read(
        cls, report: Mapping[str, Any], case: Case, peer: str, number: int
    ) -> Self:
        """From a workload's report; KeyError, TypeError and ValueError: a bad one."""
        seconds, ops = _finite(report["seconds"]), int(report["ops"])
        if seconds <= 0 or ops <= 0 or int(report["peak_rss_kib"]) <= 0:
            raise ValueError("seconds, ops and peak_rss_kib must be positive")
        points = {
            point["name"]: _finite(point["nanoseconds"])
            for point in report.get("points", [])
        }
        # In a sweep every size counts alike, however long its memory takes to touch.
        nanoseconds = (
            statistics.geometric_mean(points.values())
            if case.program == "sweep"
            else seconds / ops * 1e9
        )
        processor = float(report["user_seconds"]) + float(report["system_seconds"])
        alone = case.threads == 1 and not case.script
        return cls(
            peer=peer,
            round=number,
            nanoseconds=nanoseconds,
            disturbed=alone and seconds > DISTURBED * processor,
            points=points,
            percentiles={
                entry["name"]: {
                    percentile: _finite(value)
                    for percentile, value in entry["nanoseconds"].items()
                }
                for entry in report.get("percentiles", [])
            },
            figures=tuple(map(Figure.read, report.get("figures", []))),
            series=tuple(map(Series.read, report.get("series", []))),
            **{name: report[name] for name in _AS_REPORTED},
        )

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Self:
        """From what :func:`store` returned; fields of a later format are ignored."""
        known = {entry.name: stored[entry.name] for entry in fields(cls)}
        known["figures"] = tuple(map(Figure.read, stored["figures"]))
        known["series"] = tuple(map(Series.read, stored["series"]))
        return cls(**known)

    def store(self, *, with_series: bool) -> dict[str, Any]:
        return asdict(self if with_series else replace(self, series=()))


_AS_REPORTED = (
    *("seconds", "user_seconds", "system_seconds", "ops", "checksum"),
    *("peak_rss_kib", "final_rss_kib", "minor_faults", "major_faults"),
    *("voluntary_switches", "involuntary_switches", "compiler", "params"),
)
