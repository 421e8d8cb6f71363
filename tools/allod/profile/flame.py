"""A flame graph on one page that needs nothing else, drawn by Plotly."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go

from allod.files import write_whole
from allod.profile.model import Profile, Stack
from allod.units import human

KINDS = {"live": "in use now", "peak": "in use at the peak", "total": "ever allocated"}
# Narrower ones can be neither seen nor hit.
SMALLEST_SHARE = 0.001

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; }}
h1 {{ font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }}
p {{ margin: 0; }}
</style>
<h1>{title}</h1>
<p>{text}</p>
{plot}
</html>
"""


@dataclass
class Node:
    """A function as it was called on one way."""

    name: str
    values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    children: dict[str, Node] = field(default_factory=dict)

    def add(self, stack: Stack) -> None:
        """Counts a stack that passes through here."""
        for kind in KINDS:
            self.values[kind] += getattr(stack, kind).bytes


def tree(profile: Profile) -> Node:
    """All stacks, from the outermost function on."""
    root = Node("all")
    for stack in profile.stacks:
        node = root
        node.add(stack)
        for frame in reversed(list(stack.names())):
            node = node.children.setdefault(frame.function, Node(frame.function))
            node.add(stack)
    return root


def folded(profile: Profile, kind: str = "live") -> str:
    """One line for each stack, as flamegraph.pl and its relatives read them."""
    lines: dict[str, int] = {}
    for stack in profile.stacks:
        names = ";".join(
            frame.function.replace(";", ":") for frame in reversed(list(stack.names()))
        )
        lines[names] = lines.get(names, 0) + getattr(stack, kind).bytes
    return "".join(f"{names} {bytes_}\n" for names, bytes_ in lines.items() if bytes_)


def write_page(profile: Profile, path: Path, title: str) -> None:
    """One file that holds everything."""
    root = tree(profile)
    first = "live" if root.values["live"] else "peak"
    figure = go.Figure([_chart(root, kind, kind == first) for kind in KINDS])
    buttons = [
        {
            "label": f"{words}: {human(root.values[kind])}",
            "method": "update",
            "args": [{"visible": [other == kind for other in KINDS]}],
        }
        for kind, words in KINDS.items()
    ]
    figure.update_layout(
        margin={"t": 50, "l": 0, "r": 0, "b": 0},
        height=800,
        paper_bgcolor="rgba(0,0,0,0)",
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "buttons": buttons,
                "active": list(KINDS).index(first),
                "x": 0,
                "xanchor": "left",
                "y": 1,
                "yanchor": "bottom",
            }
        ],
    )
    note = (
        f"Estimated from {profile.samples} samples, one for"
        f" {human(profile.interval)} on the average. Click a function to enlarge it."
        if profile.interval > 1
        else "Every allocation is counted. Click a function to enlarge it."
    )
    text = PAGE.format(
        title=html.escape(title),
        text=html.escape(note),
        plot=figure.to_html(full_html=False, include_plotlyjs=True),
    )
    write_whole(path, text)


def _chart(root: Node, kind: str, visible: bool) -> go.Icicle:
    least = max(1, root.values[kind] * SMALLEST_SHARE)
    ids, parents, labels, values, texts = [], [], [], [], []
    waiting: list[tuple[Node, str, str]] = [(root, "0", "")]
    while waiting:
        node, name, parent = waiting.pop()
        ids.append(name)
        parents.append(parent)
        labels.append(html.escape(node.name))
        values.append(node.values[kind])
        texts.append(human(node.values[kind]))
        for number, child in enumerate(node.children.values()):
            if child.values[kind] >= least:
                waiting.append((child, f"{name}.{number}", name))
    return go.Icicle(
        ids=ids,
        parents=parents,
        labels=labels,
        values=values,
        text=texts,
        branchvalues="total",
        tiling={"orientation": "v"},
        textinfo="label+text",
        hovertemplate="%{label}<br>%{text}<br>%{percentRoot:.1%} of all<extra></extra>",
        visible=visible,
        name=kind,
    )
