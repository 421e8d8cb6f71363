"""A page of one file that needs nothing else: the live page's flame graph, and all functions."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from allod.files import write_whole
from allod.profile.model import Profile, Stack
from allod.profile.names import is_wrapper, short
from allod.units import human

KINDS = {"live": "in use now", "peak": "in use at the peak", "total": "ever allocated"}
HERE = Path(__file__).parent
# Narrower functions can be neither seen nor hit. The page's figures have at most so many bytes:
# where they have more, more is left out.
SMALLEST_SHARE = 1 / 4000
MOST_BYTES = 200_000
MOST_ROWS = 200
OUTERMOST = "all"


@dataclass
class Node:
    """A function as it was called on one way."""

    name: str
    values: dict[str, tuple[int, int]] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)

    def add(self, stack: Stack) -> None:
        """Counts a stack that passes through here."""
        for kind in KINDS:
            sums = getattr(stack, kind)
            size, blocks = self.values.get(kind, (0, 0))
            self.values[kind] = (size + sums.bytes, blocks + sums.blocks)

    def of(self, kind: str) -> tuple[int, int]:
        """Bytes and blocks."""
        return self.values.get(kind, (0, 0))


def tree(profile: Profile) -> Node:
    """All stacks, from the outermost function on."""
    root = Node(OUTERMOST)
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


class _Names:
    """The names of functions, each once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def index(self, name: str) -> int:
        return self._known.setdefault(name, len(self._known))

    def told(self) -> list[dict[str, str | int]]:
        """As the flame graph takes them: `s` is the short name, `w` a wrapper."""
        result: list[dict[str, str | int]] = []
        for name in self._known:
            less = short(name)
            told: dict[str, str | int] = {"n": name}
            if less != name:
                told["s"] = less
            if is_wrapper(less):
                told["w"] = 1
            result.append(told)
        return result


def _packed(root: Node, kind: str, least: float, names: _Names) -> list[Any]:
    """As page.js takes it: [name, bytes, blocks, children], without recursion."""
    whole: list[Any] = []
    waiting = [(root, whole)]
    while waiting:
        node, siblings = waiting.pop()
        size, blocks = node.of(kind)
        children: list[Any] = []
        siblings.append([names.index(node.name), size, blocks, children])
        waiting += [
            (child, children)
            for child in node.children.values()
            if child.of(kind)[0] >= least
        ]
    packed: list[Any] = whole[0]
    return packed


def error_of(size: int, blocks: int, interval: int) -> float:
    """Two standard deviations of an estimate of bytes in blocks, as flame_graph.js has them."""
    if interval <= 1 or size <= 0 or blocks <= 0:
        return 0.0
    one = size / blocks
    chance = -math.expm1(-one / interval)
    return 2.0 * math.sqrt(size * one / chance * (1.0 - chance))


def by_function(profile: Profile, kind: str) -> dict[str, list[int]]:
    """For each function the bytes that it allocated itself, or through functions that only pass
    allocations on; those with what it called, and their blocks."""
    result: dict[str, list[int]] = {}
    for stack in profile.stacks:
        sums = getattr(stack, kind)
        names = list(dict.fromkeys(frame.function for frame in stack.names()))
        who = next((name for name in names if not is_wrapper(short(name))), None)
        for name in names:
            row = result.setdefault(name, [0, 0, 0])
            row[0] += sums.bytes if name == (who or names[0]) else 0
            row[1] += sums.bytes
            row[2] += sums.blocks
    return result


def _figures(profile: Profile, root: Node, title: str, share: float) -> str:
    names = _Names()
    kinds = []
    for kind, words in KINDS.items():
        size, blocks = root.of(kind)
        if kind == "peak" and size == 0:
            continue  # The profile of a while has none.
        least = max(1.0, size * share)
        rows = sorted(by_function(profile, kind).items(), key=lambda row: -row[1][0])
        kinds.append(
            {
                "words": words,
                "bytes": size,
                "blocks": blocks,
                "root": _packed(root, kind, least, names),
                "rows": [
                    [names.index(name), *row]
                    for name, row in rows[:MOST_ROWS]
                    if row[1] >= least
                ],
            }
        )
    note = (
        f"Estimated from {profile.samples} samples, one for"
        f" {human(profile.interval)} on the average. Click a function to enlarge it."
        if profile.interval > 1
        else "Every allocation is counted. Click a function to enlarge it."
    )
    figures = {
        "title": title,
        "note": note,
        "interval": profile.interval,
        "first": 0 if root.of("live")[0] else 1,
        "kinds": kinds,
        "names": names.told(),
    }
    if profile.timeline is not None:
        figures["timeline"] = asdict(profile.timeline)
    return json.dumps(figures, separators=(",", ":"), ensure_ascii=False)


def write_page(profile: Profile, path: Path, title: str) -> None:
    """One file that holds everything."""
    root = tree(profile)
    share = SMALLEST_SHARE
    figures = _figures(profile, root, title, share)
    while len(figures.encode()) > MOST_BYTES and share < 1:
        share *= 2
        figures = _figures(profile, root, title, share)
    write_whole(path, _page(figures))


def _page(figures: str) -> str:
    code = _inline(("flame_graph.js", "timeline.js", "page.js"))
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    )
    # Of the text of a program, nothing may end the element.
    text = figures.replace("<", "\\u003c")
    parts = {
        "<!-- policy -->": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "/* flame graph */": (HERE / "flame_graph.css").read_text(),
        'id="data">': f'id="data">{text}',
        "<!-- code -->": f'<script type="module">{code}</script>',
    }
    page = (HERE / "page.html").read_text()
    for place, part in parts.items():
        page = page.replace(place, part, 1)
    return page


def _inline(files: Sequence[str]) -> str:
    """Modules as one."""
    text = "".join((HERE / name).read_text() for name in files)
    text = re.sub(r"^import .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE)
