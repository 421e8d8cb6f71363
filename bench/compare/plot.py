"""One picture: time and memory against the best peer, and the sweep's cost by size."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.compare.cases import CASES_BY_NAME
from bench.compare.peers import SUBJECT
from bench.compare.results import Ratios, Results, memory_ratios, time_ratios
from bench.compare.runner import CaseResult

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = (
    "#0072B2",
    "#999999",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
)
_CLIP = 3.0


def _colours(results: Results) -> dict[str, str]:
    names = sorted(
        (peer.name for peer in results.peers), key=lambda name: name != SUBJECT
    )
    offset = 0 if SUBJECT in names else 1
    return {
        name: _COLOURS[(i + offset) % len(_COLOURS)] for i, name in enumerate(names)
    }


def _bars(
    axes: Axes, title: str, rows: list[tuple[str, Ratios]], colours: dict[str, str]
) -> None:
    width = 0.8 / max(len(colours), 1)
    for index, (name, colour) in enumerate(colours.items()):
        for place, (_, ratios) in enumerate(rows):
            if name not in ratios.of:
                continue
            ratio = ratios.of[name]
            at = place + (index - (len(colours) - 1) / 2) * width
            shown = min(ratio.median, _CLIP)
            axes.bar(
                at, shown, width * 0.9, color=colour, label=name if place == 0 else None
            )
            if ratio.median > _CLIP:
                axes.text(
                    at,
                    _CLIP,
                    f"{ratio.median:.1f}",
                    ha="center",
                    va="bottom",
                    fontsize=7,
                )
            elif ratio.low is not None and ratio.high is not None:
                axes.vlines(
                    at, ratio.low, min(ratio.high, _CLIP), color="black", linewidth=1
                )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylim(0, _CLIP * 1.06)
    axes.set_xticks(np.arange(len(rows)), [name for name, _ in rows])
    axes.set_title(title, loc="left")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _sweep(axes: Axes, result: CaseResult, colours: dict[str, str]) -> None:
    for name in result.runs:
        points = result.points(name)
        axes.plot(
            [int(size) for size in points], list(points.values()), color=colours[name]
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(f"{result.case.name}: {result.case.about}", loc="left")
    axes.set_xlabel("size in bytes")
    axes.set_ylabel("ns for a pair")
    axes.grid(alpha=0.3)


def draw(results: Results, path: Path) -> None:
    """Writes the picture in the format that the path's suffix names."""
    colours = _colours(results)
    measured = [result for result in results.cases if result.runs]
    sweeps = [
        result
        for result in measured
        if CASES_BY_NAME[result.case.name].program == "sweep"
    ]
    panels = 2 + len(sweeps)
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(10, 3.2 * panels), layout="constrained")
        axes = list(np.atleast_1d(figure.subplots(panels, 1)))
        for panel, title, ratios_of in (
            (axes[0], "Time against the best peer (less is better)", time_ratios),
            (axes[1], "Peak resident size against the leanest peer", memory_ratios),
        ):
            rows = [
                (result.case.name, ratios)
                for result in measured
                if (ratios := ratios_of(result)) is not None
            ]
            _bars(panel, title, rows, colours)
        for panel, result in zip(axes[2:], sweeps, strict=True):
            _sweep(panel, result, colours)
        handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        figure.savefig(path, dpi=150)
