"""Pictures for documents that cannot hold the page: SVG by matplotlib."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.compare import charts, palette
from bench.compare.palette import Look
from bench.compare.peers import SUBJECT
from bench.compare.results import Results, overviews
from bench.compare.rounds import CaseResult
from bench.compare.stats import Mean

_CLIP = 3.0
_MOST_PANELS = 4
_DASHES: dict[str, Any] = {
    "solid": "-",
    "dot": ":",
    "dash": "--",
    "dashdot": "-.",
    "longdash": (0, (8, 2)),
}

Panel = Callable[[Axes], None]


def draw(results: Results, folder: Path, prefix: str) -> list[tuple[str, Path]]:
    """Writes the pictures that the results have something for; titles and paths."""
    looks = palette.looks(peer.name for peer in results.peers)
    written = []
    for name, title, panels in _pictures(results, looks):
        path = folder / f"{prefix}{name}.svg"
        _save(panels, looks if name != "overview" else {}, path)
        written.append((title, path))
    return written


def _pictures(
    results: Results, looks: dict[str, Look]
) -> Iterator[tuple[str, str, list[Panel]]]:
    panels: list[Panel] = []
    for found in overviews(results):
        for what, means in (("time", found.time), ("peak memory", found.memory)):
            title = f"{found.title}: {what}, × best peer"
            panels.append(_means(title, means, looks))
    if panels:
        yield "overview", "Geometric means of time and of peak memory", panels
    kinds: tuple[tuple[str, str, Callable[[CaseResult], Iterable[Panel]]], ...] = (
        ("sizes", "Cost of a malloc and a free by size", lambda r: _sweep(r, looks)),
        ("memory", "Resident size over time", lambda r: _series(r, looks)),
        ("latency", "Percentiles of latency", lambda r: _latency(r, looks)),
    )
    for name, title, panels_of in kinds:
        panels = [panel for result in results.measured for panel in panels_of(result)]
        if panels:
            yield name, title, panels[:_MOST_PANELS]


def _save(panels: Sequence[Panel], legend: dict[str, Look], path: Path) -> None:
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    # Text stays text, and equal results make equal files.
    style: dict[Any, Any] = {
        "font.size": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "allod",
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
        axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
        for panel, place in zip(panels, axes, strict=False):
            panel(place)
        for spare in axes[len(panels) :]:
            spare.set_axis_off()
        handles = [
            Line2D([], [], color=look.light, linestyle=_DASHES[look.dash], label=name)
            for name, look in legend.items()
        ]
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=5)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def _means(title: str, means: dict[str, Mean], looks: dict[str, Look]) -> Panel:
    def panel(axes: Axes) -> None:
        names = list(means)
        values = [means[name].value for name in names]
        widths = [mean.value * mean.half_width for mean in means.values()]
        axes.barh(
            names,
            [min(value, _CLIP) for value in values],
            xerr=widths,
            color=[looks[name].light for name in names],
            error_kw={"linewidth": 1},
        )
        for place, value in enumerate(values):
            axes.annotate(
                f"{value:.2f}",
                (0, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                color="white",
            )
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.invert_yaxis()
        axes.set_title(title, loc="left")
        axes.set_xlim(0, min(max(values, default=1.0), _CLIP) * 1.1)

    return panel


def _line(
    axes: Axes, name: str, x: Sequence[float], y: Sequence[float], look: Look
) -> None:
    width = 2.0 if name == SUBJECT else 1.2
    axes.plot(x, y, color=look.light, linestyle=_DASHES[look.dash], linewidth=width)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)


def _sweep(result: CaseResult, looks: dict[str, Look]) -> Iterator[Panel]:
    def panel(axes: Axes) -> None:
        for name in result.runs:
            points = result.points(name)
            sizes = [int(size) for size in points]
            _line(axes, name, sizes, list(points.values()), looks[name])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        most = max(int(size) for name in result.runs for size in result.points(name))
        ticks = charts.size_ticks([most])
        axes.set_xticks(ticks["tickvals"], ticks["ticktext"])
        _label(axes, result.case.name, "size", "ns")

    if result.case.program == "sweep":
        yield panel


def _series(result: CaseResult, looks: dict[str, Look]) -> Iterator[Panel]:
    if result.case.group != "memory over time":
        return
    first = {name: result.series(name)[:1] for name in result.runs}
    units = {(each.x, each.y) for found in first.values() for each in found}
    for x, y in sorted(units)[:1]:

        def panel(axes: Axes, x: str = x, y: str = y) -> None:
            scale, unit = (1024, "MiB") if y == "KiB" else (1, y)
            what = next(each.name for found in first.values() for each in found)
            for name, found in first.items():
                for each in found:
                    across = [point[0] for point in each.points]
                    up = [point[1] / scale for point in each.points]
                    _line(axes, name, across, up, looks[name])
            axes.set_ylim(bottom=0)
            _label(axes, result.case.name, x, unit or what)

        yield panel


def _latency(result: CaseResult, looks: dict[str, Look]) -> Iterator[Panel]:
    distributions = {name: result.percentiles(name) for name in result.runs}
    for what in dict.fromkeys(key for each in distributions.values() for key in each):

        def panel(axes: Axes, what: str = what) -> None:
            for name, found in distributions.items():
                # The places of percentiles: one over the part that is above.
                # No more than the clock itself costs is nothing on a logarithmic axis.
                points = sorted(
                    (100 / (100 - float(percentile)), max(value, 1.0))
                    for percentile, value in found.get(what, {}).items()
                    if float(percentile) < 100
                )
                across, up = [at for at, _ in points], [value for _, value in points]
                _line(axes, name, across, up, looks[name])
            axes.set_xscale("log")
            axes.set_yscale("log")
            places = [2, 10, 100, 1e3, 1e4, 1e5]
            labels = ["50", "90", "99", "99.9", "99.99", "99.999"]
            axes.set_xticks(places, labels)
            axes.set_xticks([], minor=True)
            _label(axes, f"{result.case.name}: {what}", "percentile", "ns")

        yield panel
