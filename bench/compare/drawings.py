"""The charts of the overview and of each case."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.compare import charts, stats, tables, wording
from bench.compare.charts import Chart, Json
from bench.compare.lines import Lines
from bench.compare.results import Overview
from bench.compare.rounds import CaseResult
from bench.compare.run import Series

# The places of percentiles: one over the part that is above.
_PERCENTILE_TICKS = {
    "50": 2.0,
    "90": 10.0,
    "99": 100.0,
    "99.9": 1e3,
    "99.99": 1e4,
    "99.999": 1e5,
    "100": 1e6,
}

# So many points are all named on their axis.
_FEW = 8


def overview(found: Overview) -> list[Chart]:
    """Both means as bars, and one against the other."""
    time, memory = found.time, found.memory
    drawn = []
    for what, means in (("time", time), ("peak memory", memory)):
        bars = [
            charts.Bar(
                name,
                mean.value,
                mean.value * (1 - mean.half_width),
                mean.value * (1 + mean.half_width),
                f"{mean.value:.2f}",
            )
            for name, mean in means.items()
        ]
        title = f"{found.title}: {what} against the best peer of each, geometric mean"
        drawn.append(charts.bars(title, bars, "times the best"))
    points = {name: (time[name].value, memory[name].value) for name in time}
    title = f"{found.title}: time and peak memory, geometric means"
    return [
        *drawn,
        charts.scatter(title, points, "time, × best", "peak memory, × best"),
    ]


def case(result: CaseResult) -> list[Chart]:
    """Everything that the runs of a case give to see."""
    names = tables.by_time(result)
    if not names:
        return []
    scale, unit = wording.time_unit(median(result.times(names[0])))
    drawn = [_time_bars(result, names, scale, unit)]
    drawn += _points(result, names)
    drawn += _percentiles(result, names)
    drawn += _series(result, names)
    drawn += _figures(result, names)
    drawn += _instructions(result, names)
    points = {
        name: (median(result.times(name)) / scale, median(result.peaks(name)) / 1024)
        for name in names
    }
    title = f"{result.case.name}: time and peak memory"
    drawn.append(charts.scatter(title, points, f"time, {unit}", "peak, MiB"))
    return drawn


def _time_bars(
    result: CaseResult, names: Sequence[str], scale: float, unit: str
) -> Chart:
    bars = []
    for name in names:
        times = [value / scale for value in result.times(name)]
        summary = stats.summarise(times)
        shown = wording.duration(summary.median * scale)
        bars.append(charts.Bar(name, summary.median, *summary.interval, shown, times))
    return charts.bars(f"{result.case.name}: time of an operation", bars, unit)


def _points(result: CaseResult, names: Sequence[str]) -> list[Chart]:
    points = {name: result.points(name) for name in names}
    keys = list(dict.fromkeys(key for each in points.values() for key in each))
    if not keys:
        return []
    title = f"{result.case.name}: each point"
    numeric = all(key.isdecimal() for key in keys)
    data = []
    for name, values in points.items():
        x: list[Any] = [int(key) for key in values] if numeric else list(values)
        data.append(charts.curve(name, x, list(values.values()), lines=numeric))
    places = [int(key) for key in keys] if numeric else []
    x_axis: Json = (
        charts.axis(places) if numeric else {"type": "category", "automargin": True}
    )
    if result.case.program == "sweep":
        x_axis |= charts.size_ticks(places)
    elif numeric and len(places) <= _FEW:
        x_axis |= {"tickvals": places, "ticktext": keys}
    flat = [value for each in points.values() for value in each.values()]
    return [charts.curves(title, data, x_axis, charts.time_axis(flat))]


def _percentiles(result: CaseResult, names: Sequence[str]) -> list[Chart]:
    found = {name: result.percentiles(name) for name in names}
    whats = dict.fromkeys(what for each in found.values() for what in each)
    drawn = []
    for what in whats:
        data = []
        for name in names:
            values = {
                # No more than the clock itself costs is nothing on a logarithmic axis.
                _percentile_place(float(percentile)): max(value, 1.0)
                for percentile, value in found[name].get(what, {}).items()
            }
            places = sorted(values)
            data.append(charts.curve(name, places, [values[at] for at in places]))
        x_axis = {
            "type": "log",
            "title": {"text": "percentile"},
            "tickvals": list(_PERCENTILE_TICKS.values()),
            "ticktext": ["max" if k == "100" else k for k in _PERCENTILE_TICKS],
        }
        flat = [value for each in data for value in each["y"]]
        title = f"{result.case.name}: percentiles of {what}"
        drawn.append(charts.curves(title, data, x_axis, charts.time_axis(flat)))
    return drawn


def _percentile_place(percentile: float) -> float:
    above = 1.0 - percentile / 100
    return min(1 / above, _PERCENTILE_TICKS["100"]) if above > 1e-9 else 1e6


def _series(result: CaseResult, names: Sequence[str]) -> list[Chart]:
    found: dict[str, dict[str, Series]] = {}
    for name in names:
        for series in result.series(name):
            found.setdefault(series.name, {})[name] = series
    drawn = []
    for what, by_peer in found.items():
        axes = next(iter(by_peer.values()))
        # Thousands of KiB are read more easily as MiB.
        scale, unit = (1024, "MiB") if axes.y == "KiB" else (1, axes.y)
        data = [
            charts.curve(
                name,
                [x for x, _ in series.points],
                [y / scale for _, y in series.points],
                markers=False,
            )
            for name, series in by_peer.items()
        ]
        title = f"{result.case.name}: {what} over {axes.x}"
        x_axis = {"title": {"text": axes.x}}
        y_axis = {"title": {"text": unit or what}, "rangemode": "tozero"}
        drawn.append(charts.curves(title, data, x_axis, y_axis))
    return drawn


def _figures(result: CaseResult, names: Sequence[str]) -> list[Chart]:
    units = {
        each.name: (each.unit, each.better)
        for name in names
        for run in result.runs[name]
        for each in run.figures
    }
    drawn = []
    for figure, (unit, better) in units.items():
        bars = []
        for name in names:
            values = result.figures(name).get(figure)
            if values:
                summary = stats.summarise(values)
                shown = wording.number(summary.median)
                bars.append(
                    charts.Bar(name, summary.median, *summary.interval, shown, values)
                )
        bars.sort(key=lambda bar: bar.value, reverse=better == "more")
        label = f"{unit}, {better} is better" if unit else f"{better} is better"
        drawn.append(charts.bars(f"{result.case.name}: {figure}", bars, label))
    return drawn


def _instructions(result: CaseResult, names: Sequence[str]) -> list[Chart]:
    bars = [
        charts.Bar(name, value, value, value, wording.number(value))
        for name in names
        if name in result.counts
        and (value := result.counts[name].events.get("instructions")) is not None
    ]
    bars.sort(key=lambda bar: bar.value)
    title = f"{result.case.name}: instructions for each operation"
    return [charts.bars(title, bars, "instructions")] if bars else []


def lines(case: str, counted: Sequence[Lines]) -> Chart:
    """Cache lines that travel, by the number of threads."""
    by_peer: dict[str, dict[int, float]] = {}
    for each in counted:
        by_peer.setdefault(each.peer, {})[each.threads] = each.per_op
    threads = sorted({each.threads for each in counted})
    data = [
        charts.curve(name, [*values], [*values.values()])
        for name, values in by_peer.items()
    ]
    x_axis = {
        "type": "log",
        "title": {"text": "threads"},
        "tickvals": threads,
        "ticktext": [str(number) for number in threads],
    }
    y_axis = charts.axis([each.per_op for each in counted], "lines for each operation")
    return charts.curves(f"{case}: cache lines that travel", data, x_axis, y_axis)
