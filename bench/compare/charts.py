"""The kinds of charts on the page, as figures that plotly.js draws.

A figure is plain data. A trace belongs to an allocator by ``meta``, from which the
page gives it its colour, in light and in dark, and shows or hides it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.compare import wording

_BAR_HEIGHT = 26
_CURVE_HEIGHT = 340
# A bar longer than this many times the best is cut off; its figure stands beside it, and says so.
_LONGEST_BAR = 6.0
# Figures on the axis of a curve that spans more than this are spaced by their ratio.
_LOGARITHMIC_FROM = 16.0

Json = dict[str, Any]

# Each mark with all its digits: 20, 50, 100 instead of small figures between powers of ten.
_LOGARITHMIC: Json = {"type": "log", "dtick": "D2", "minorloglabels": "complete"}


@dataclass(frozen=True)
class Chart:
    """One figure; ``title`` says what it shows to those who do not see it, too."""

    title: str
    height: int
    data: list[Json]
    layout: Json


@dataclass(frozen=True)
class Bar:
    """A value with its interval, as text, and the values behind it."""

    name: str
    value: float
    low: float
    high: float
    shown: str
    single: Sequence[float] = ()


def bars(title: str, rows: Sequence[Bar], unit: str) -> Chart:
    """Horizontal bars from zero, with their intervals and the single values."""
    ticks = {bar.name: f"{bar.name}  {bar.shown}" for bar in rows}
    data: list[Json] = []
    for bar in rows:
        error = {
            "type": "data",
            "symmetric": False,
            "array": [bar.high - bar.value],
            "arrayminus": [bar.value - bar.low],
            "thickness": 1.5,
            "width": 4,
        }
        hover = f"{bar.name}: {bar.shown}<extra></extra>"
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": [bar.value],
                "y": [bar.name],
                "error_x": error,
                "hovertemplate": hover,
                "meta": {"peer": bar.name},
            }
        )
        if bar.single:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": list(bar.single),
                    "y": [bar.name] * len(bar.single),
                    "hoverinfo": "skip",
                    "meta": {"peer": bar.name, "runs": True},
                }
            )
    positive = [bar.value for bar in rows if bar.value > 0]
    longest = max((max(bar.high, *bar.single, bar.value) for bar in rows), default=1.0)
    reach = min(longest, _LONGEST_BAR * min(positive, default=1.0)) * 1.04 or 1.0
    lowest = min((bar.low for bar in rows), default=0.0)
    for bar in rows:
        if bar.value > reach:
            ticks[bar.name] += ", cut off"
    layout = {
        "xaxis": {"title": {"text": unit}, "range": [min(0.0, lowest), reach]},
        "yaxis": {
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
            "categoryorder": "array",
            "categoryarray": list(reversed(ticks)),
            "automargin": True,
            "fixedrange": True,
        },
        "barmode": "overlay",
        "bargap": 0.35,
    }
    return Chart(title, 90 + _BAR_HEIGHT * len(rows), data, layout)


def scatter(
    title: str, points: dict[str, tuple[float, float]], x: str, y: str
) -> Chart:
    """One mark for each allocator."""
    data: list[Json] = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [at[0]],
            "y": [at[1]],
            "marker": {"size": 12},
            "hovertemplate": f"{name}: %{{x:.4~g}}, %{{y:.4~g}}<extra></extra>",
            "meta": {"peer": name},
        }
        for name, at in points.items()
    ]
    across, up = zip(*points.values(), strict=True)
    layout = {
        "xaxis": span(across, x),
        "yaxis": {**span(up, y), "automargin": True},
        "hovermode": "closest",
    }
    return Chart(title, _CURVE_HEIGHT, data, layout)


def span(values: Sequence[float], title: str) -> Json:
    """An axis around the values, on which small differences stay small."""
    least, most = min(values), max(values)
    if least > 0 and most / least >= _LOGARITHMIC_FROM:
        return {**_LOGARITHMIC, "title": {"text": title}}
    margin = max(0.08 * (most - least), 0.25 * most - 0.5 * (most - least))
    return {"title": {"text": title}, "range": [max(0, least - margin), most + margin]}


def curve(
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    *,
    lines: bool = True,
    markers: bool = True,
) -> Json:
    """A trace of one allocator; only few points are marked on its line."""
    few = markers and len(x) <= 30
    return {
        "type": "scatter",
        "mode": "lines+markers" if lines and few else "lines" if lines else "markers",
        "x": list(x),
        "y": [float(f"{value:.5g}") for value in y],
        "hovertemplate": f"{name}: %{{x}}, %{{y:.4~g}}<extra></extra>",
        "meta": {"peer": name},
    }


def axis(values: Sequence[float], title: str = "") -> Json:
    """Logarithmic where the values span much."""
    least, most = min(values, default=0), max(values, default=0)
    wide = least > 0 and most / least >= _LOGARITHMIC_FROM
    kind = _LOGARITHMIC if wide else {"type": "linear", "rangemode": "tozero"}
    return {**kind, "title": {"text": title}}


def time_axis(nanoseconds: Sequence[float]) -> Json:
    """Marked in the units that people use."""
    found = axis(nanoseconds, "time")
    if found["type"] == "log":
        tenfold = range(
            math.floor(math.log10(min(nanoseconds))),
            math.ceil(math.log10(max(nanoseconds))) + 1,
        )
        ticks = [10.0**power for power in tenfold]
        found["tickvals"] = ticks
        found["ticktext"] = [wording.duration(each) for each in ticks]
    else:
        found["ticksuffix"] = " ns"
    return found


def size_ticks(sizes: Sequence[int]) -> Json:
    """A mark for every sixteenfold size."""
    units = ("B", "KiB", "MiB", "GiB")
    powers = range(0, max(sizes).bit_length(), 4)
    return {
        "title": {"text": "size"},
        "tickvals": [1 << power for power in powers],
        "ticktext": [f"{1 << power % 10} {units[power // 10]}" for power in powers],
    }


def curves(title: str, data: list[Json], x_axis: Json, y_axis: Json) -> Chart:
    """Traces of several allocators."""
    layout = {
        "xaxis": x_axis,
        "yaxis": {**y_axis, "automargin": True},
        "hovermode": "closest",
    }
    return Chart(title, _CURVE_HEIGHT, data, layout)
