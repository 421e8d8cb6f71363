"""Plots of a trace: in one page without links to anything, or as files in a folder."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from allod.files import make_folder, write_whole
from allod.trace.summary import notes, summary
from allod.trace.tool import Info
from allod.units import human, human_time

# Two of Okabe and Ito's colours, which are told apart by colour-blind readers and on both grounds.
FIRST, SECOND = "#0072B2", "#D55E00"
# Drawn in this and then replaced: what is not data has the colour of the page's text.
INK = "#123456"
MOST_THREADS = 30
FEWEST_PLACES = 6
UNITS = ("B", "KiB", "MiB", "GiB")

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }}
h1 {{ font-size: 1.4rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 0; }}
pre {{ overflow-x: auto; font-size: 0.8rem; }}
section {{ overflow-x: auto; }}
svg {{ width: 100%; min-width: 34rem; height: auto; display: block; }}
</style>
<h1>{title}</h1>
{notes}<pre>{text}</pre>
{plots}
</html>
"""


def page(trace: Path, info: Info) -> str:
    """The text of one file that holds everything."""
    plots = "".join(
        f"<section>\n<h2>{html.escape(title)}</h2>\n{_svg(draw, info, title)}\n</section>\n"
        for title, draw in PLOTS.values()
    )
    remarks = "".join(f"<p>Note: {html.escape(note)}.</p>\n" for note in notes(info))
    return PAGE.format(
        title=html.escape(f"What {trace.name} allocates"),
        notes=remarks,
        text=html.escape(summary(trace, info)),
        plots=plots,
    )


def write_folder(path: Path, trace: Path, info: Info) -> None:
    """The summary as text and JSON, and each plot as a picture."""
    make_folder(path)
    write_whole(path / "summary.txt", summary(trace, info) + "\n")
    write_whole(path / "info.json", json.dumps(info))
    for name, (title, draw) in PLOTS.items():
        figure = _figure(draw, info)
        figure.suptitle(title, x=0.01, ha="left")
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=150)
        write_whole(path / f"{name}.png", picture.getvalue())


def _figure(
    draw: Callable[[Axes, Info], None], info: Info, ink: str = "black"
) -> Figure:
    settings: dict[Any, Any] = {
        "font.size": 9,
        "axes.edgecolor": ink,
        "axes.labelcolor": ink,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": ink,
        "legend.frameon": False,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        axes = figure.subplots()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.grid(axis="y", alpha=0.2)
        axes.set_axisbelow(True)
        draw(axes, info)
    return figure


def _svg(draw: Callable[[Axes, Info], None], info: Info, title: str) -> str:
    figure = _figure(draw, info, INK)
    text = io.StringIO()
    # Text stays text, so that it can be read and found.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    picture = text.getvalue()
    picture = picture[picture.index("<svg") :].replace(INK, "currentColor")
    # Names within a picture must not meet those of another.
    prefix = re.sub(r"\W", "", title)
    picture = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", picture)
    return picture.replace(
        "<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1
    )


def _legend(axes: Axes, *others: Axes) -> None:
    handles = [
        handle
        for each in (axes, *others)
        for handle in each.get_legend_handles_labels()[0]
    ]
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles)
    )


def _live(axes: Axes, info: Info) -> None:
    seconds, size, blocks = np.array(info["series"], dtype=float).T
    # So that the marks of the axis are round numbers.
    power = min(int(np.log2(max(size.max(), 1))) // 10, len(UNITS) - 1)
    size /= 1024**power
    axes.fill_between(seconds, size, color=FIRST, alpha=0.25, linewidth=0)
    axes.plot(seconds, size, color=FIRST, label="bytes")
    axes.set_xlabel("seconds")
    axes.set_ylabel(UNITS[power])
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.spines["top"].set_visible(False)
    other.plot(seconds, blocks, color=SECOND, linewidth=1, label="blocks")
    other.set_ylim(bottom=0)
    other.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    other.set_ylabel("blocks")
    _legend(axes, other)


def _bars(
    axes: Axes, bins: list[dict[str, int]], label: Callable[[float], str]
) -> None:
    """Shares of blocks and of bytes over bins whose widths grow with their values."""
    left = np.array([entry["from"] for entry in bins], dtype=float)
    right = np.array([entry["to"] for entry in bins], dtype=float)
    left = np.maximum(left, 0.5)
    right = np.maximum(right, left * 1.05)
    styles: dict[str, dict[str, Any]] = {
        "blocks": {"color": FIRST, "alpha": 0.5},
        "bytes": {"edgecolor": SECOND, "fill": False, "linewidth": 1.5},
    }
    for key, style in styles.items():
        amounts = np.array([entry[key] for entry in bins], dtype=float)
        share = 100 * amounts / max(amounts.sum(), 1)
        axes.bar(left, share, right - left, align="edge", label=key, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    axes.set_ylabel("% of all")
    _legend(axes)


def _sizes(axes: Axes, info: Info) -> None:
    bins = [{**entry, "to": entry["to"] + 1} for entry in info["sizes"]]
    _bars(axes, bins, human)


def _lifetimes(axes: Axes, info: Info) -> None:
    _bars(axes, info["lifetimes"], human_time)


def _threads(axes: Axes, info: Info) -> None:
    threads = info["busiest_threads"][:MOST_THREADS]
    at = np.arange(len(threads))

    def values(key: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([thread[key] for thread in threads], dtype=float)

    others = values("released_of_others")
    axes.bar(at - 0.2, values("allocated"), 0.38, color=FIRST, label="allocated")
    axes.bar(
        at + 0.2, values("released") - others, 0.38, color=SECOND, label="freed own"
    )
    axes.bar(
        at + 0.2,
        others,
        0.38,
        bottom=values("released") - others,
        color=SECOND,
        alpha=0.4,
        label="freed of other threads",
    )
    axes.set_xticks(at, [str(thread["thread"]) for thread in threads])
    axes.set_xlabel("thread, the busiest first")
    axes.set_ylabel("blocks")
    axes.set_xlim(-0.6, max(len(threads), FEWEST_PLACES) - 0.4)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _legend(axes)


PLOTS: dict[str, tuple[str, Callable[[Axes, Info], None]]] = {
    "live": ("Live bytes and blocks over time", _live),
    "sizes": ("Sizes of blocks", _sizes),
    "lifetimes": ("Lifetimes of freed blocks", _lifetimes),
    "threads": ("Blocks by thread", _threads),
}
