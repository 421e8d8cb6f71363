"""The heaps of running programs, in the terminal."""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from allod.console import Failure, say
from allod.files import deliver
from allod.units import human
from allod.watch import Gone, Json, Link, find

# What is known of the past, in points of the server's timeline.
KEPT_POINTS = 600
BARS = "▁▂▃▄▅▆▇█"
# Parts of the resident memory, as the page shows them.
PARTS = (
    ("live", "live", "green"),
    ("cached", "cached", "cyan"),
    ("free_in_slabs", "free in slabs", "yellow"),
    ("dirty", "dirty", "red"),
    ("metadata", "metadata", "magenta"),
    ("page", "page", "blue"),
    ("not_ours", "not ours", "bright_black"),
)
# Findings of the server in words: of growth, by which trend.
GROWTH = {
    "growth": ("live", "in use grows"),
    "growth_elsewhere": ("resident", "resident memory, but no blocks, grows"),
}
PART_WORDS = {
    "not_ours": "not Allod's",
    "free_in_slabs": "free between blocks in use",
    "dirty": "free, and waits to be given back",
    "cached": "kept at hand by threads",
}
# Lines of a table above its rows, of what is between the tables, and of a table that is worth it.
HEAD_LINES = 3
PAST_LINES = 5
FEWEST_ROWS = 2
# From so many columns on, there is room for all figures of a program.
WIDE = 110
COLUMNS = (
    "pid",
    "live",
    "peak",
    "resident",
    "held",
    "waste",
    "growth",
    "blocks",
    "threads",
    "program",
)


class Watch:
    """One program, and its last answer."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.state: Json = {}
        self._thinned = 0
        self._points: deque[list[int]] = deque(maxlen=KEPT_POINTS)

    def refresh(self) -> None:
        """Asks again, and for the points only that are not known yet."""
        last = self._points[-1][0] if self._points else 0
        state = self.link.ask(f"/api/state?since={last}&thinned={self._thinned}")
        try:
            history = state["history"]
            if history["thinned"] != self._thinned:
                self._points.clear()
            self._thinned = int(history["thinned"])
            self._points.extend(history["points"])
            self.state = state
            self.row()
        except (KeyError, TypeError, ValueError, IndexError):
            raise Gone(f"{self.link.authority} is not a live page") from None

    def row(self) -> dict[str, int | str]:
        """The columns of the table of programs; bytes, and bytes a second."""
        now, process = self.state["now"], self.state["process"]
        return {
            "pid": int(process["id"]),
            "live": int(now["live"]),
            "peak": int(now["peak_live"]),
            "resident": int(now["resident"]),
            "held": int(now["held"]),
            "waste": int(self.state["waste"]) + self.rounding(),
            "growth": round(self.pace("live")),
            "blocks": int(now["live_blocks"]),
            "threads": int(now["threads"]),
            "program": plain(process["name"]),
        }

    def rounding(self) -> int:
        """What size classes add to the sizes that were asked for; estimated from samples."""
        sampled = self.state["profile"]["live"]
        if not sampled["bytes"] or not sampled["requested"]:
            return 0
        asked = float(sampled["requested"]) / float(sampled["bytes"])
        in_memory = float(self.state["residency"]["live"])
        return max(0, round(in_memory * (1.0 - asked)))

    def pace(self, field: str) -> float:
        """How much a figure grows in a second, as the server judges it; 0 where it is not sure."""
        trend = self.state["trends"][field]
        return float(trend["rate"]) / 60.0 if trend["sure"] else 0.0

    def findings(self) -> Iterator[str]:
        """What matters most, in words."""
        trends = self.state["trends"]
        for finding in self.state["findings"]:
            what, size = str(finding["what"]), human(int(finding["bytes"]))
            if what in GROWTH:
                trend = trends[GROWTH[what][0]]
                error = human(round((float(trend["high"]) - float(trend["low"])) / 2))
                rate = human(round(float(trend["rate"])))
                yield f"{GROWTH[what][1]} by {rate} (± {error}) a minute"
            elif what in PART_WORDS:
                more = self._pool() if what == "not_ours" else ""
                yield f"{size} {PART_WORDS[what]}{more}"

    def _pool(self) -> str:
        """Whose memory it is likely to be, and what to set."""
        foreign = self.state["foreign"]
        known = sum(int(foreign[name]) for name in ("code", "stacks", "files"))
        if not foreign["pool"] or int(foreign["other"]) < known / 2:
            return ""
        return f", likely {plain(foreign['pool'])} ({plain(foreign['remedy'])})"

    def past(self, field: str, width: int) -> str:
        """The last points as a line of bars, from zero to the largest."""
        value = self.state["history"]["fields"].index(field)
        values = [point[value] for point in self._points][-width:]
        most = max(values, default=0)
        return "".join(
            BARS[min(len(BARS) - 1, each * len(BARS) // max(1, most))]
            for each in values
        )


def plain(text: str) -> str:
    """Text of a program, which could hold commands for the terminal."""
    return "".join(each if each.isprintable() else "?" for each in str(text))


def print_once(
    targets: Sequence[str],
    sort: str,
    *,
    as_json: bool = False,
    output: Path | None = None,
) -> None:
    """One table of words and plain numbers; the name, which may have spaces, comes last."""
    watches = [Watch(link) for link in find(targets)]
    lost = _refresh(watches)
    rows = _sorted(watches, sort)
    if as_json and rows:
        known = {watch.row()["pid"]: watch.state for watch in watches}
        told = [
            {
                **row,
                **{name: known[row["pid"]][name] for name in ("trends", "findings")},
            }
            for row in rows
        ]
        deliver(json.dumps(told, indent=1) + "\n", output)
    elif rows:
        words = [[str(row[name]) for name in COLUMNS] for row in rows]
        lines = [[name.upper() for name in COLUMNS], *words]
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = ""
        for line in lines:
            padded = [word.rjust(width) for word, width in zip(line[:-1], widths[:-1])]
            text += "  ".join([*padded, line[-1]]) + "\n"
        deliver(text, output)
    for reason in lost[:-1] if not rows else lost:
        say(f"warning: {reason}")
    if not rows:
        raise Failure(lost[-1])
    if lost and targets:
        sys.exit(1)


def show(targets: Sequence[str], every: float, sort: str) -> None:
    """Fills the terminal until q is pressed or all programs have ended."""
    watches = [Watch(link) for link in find(targets)]
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("allod top needs a terminal; use --once for one table", 2)
    lost = _refresh(watches)
    if not watches:
        raise Failure(lost[-1])
    console = Console()
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while watches:
            live.update(screen(watches, sort, console.width, console.height))
            live.refresh()
            if _quits(every):
                return
            lost = _refresh(watches) or lost
    say(lost[-1])


def _refresh(watches: list[Watch]) -> list[str]:
    """Asks all, drops those that are gone, and says why."""
    lost = []
    for watch in list(watches):
        try:
            watch.refresh()
        except Gone as reason:
            watches.remove(watch)
            lost.append(_farewell(watch, reason))
    return lost


def _farewell(watch: Watch, reason: Gone) -> str:
    process = watch.state.get("process")
    if process is None or os.path.exists(f"/proc/{int(process['id'])}"):
        return str(reason)
    return f"process {int(process['id'])} has ended"


def _sorted(watches: Sequence[Watch], sort: str) -> list[dict[str, int | str]]:
    rows = [watch.row() for watch in watches]
    return sorted(rows, key=lambda row: row[sort], reverse=sort != "pid")


@contextmanager
def _keys() -> Iterator[None]:
    """Keys arrive one by one, and are not shown."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quits(seconds: float) -> bool:
    """Waits for the next refresh; whether a key, or the end of the input, has ended it."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready) and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b"")
    except KeyboardInterrupt:
        return True


# What is on the screen


def screen(
    watches: Sequence[Watch], sort: str, width: int, height: int
) -> RenderableType:
    """Everything, cut to the size of the terminal."""
    rows = _sorted(watches, sort)
    programs = _programs(rows[: max(1, height - HEAD_LINES)], width)
    if len(rows) != 1:
        return programs
    left = height - programs.row_count - HEAD_LINES - PAST_LINES
    return Group(programs, *_past(watches[0], width), *_details(watches[0], left))


def _programs(rows: Sequence[dict[str, int | str]], width: int) -> Table:
    """A line for each program, with what there is room for."""
    wide = width >= WIDE
    names = ["pid", "in use", "a second", "resident", "waste"]
    names += ["peak", "held", "blocks", "threads"] if wide else []
    table = _table((*names, "program"))
    for row in rows:
        held = max(1, int(row["held"]))
        more = (
            human(int(row["peak"])),
            human(held),
            f"{row['blocks']:,}",
            str(row["threads"]),
        )
        table.add_row(
            str(row["pid"]),
            Text(human(int(row["live"])), "bold green"),
            _signed(int(row["growth"])),
            human(int(row["resident"])),
            f"{100 * int(row['waste']) / held:.0f} %",
            *(more if wide else ()),
            str(row["program"]),
        )
    return table


def _table(names: Sequence[str]) -> Table:
    """Numbers under their names, at the right; the last column is text that may be cut."""
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
        expand=True,
    )
    *numbers, text = names
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(text, no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _signed(growth: int) -> Text:
    if abs(growth) < 1024:
        return Text("steady", "dim")
    sign, style = ("+", "red") if growth > 0 else ("−", "green")
    return Text(f"{sign}{human(abs(growth))}", style)


def _past(watch: Watch, width: int) -> Iterator[Text]:
    """Memory over time, and a bar of what resident memory consists of."""
    line = Text("\nin use    ", "bold")
    yield line.append(watch.past("live", max(1, width - 11)), "green")
    parts = watch.state["residency"]
    whole = max(1, sum(int(parts[name]) for name, _, _ in PARTS))
    bar = Text("resident  ", "bold", no_wrap=True)
    names = Text("          ", no_wrap=True, overflow="ellipsis")
    for name, shown, color in PARTS:
        cells = round((width - 11) * int(parts[name]) / whole)
        bar.append("█" * cells, color)
        names.append("■ ", color).append(f"{shown} {human(int(parts[name]))}  ")
    yield bar
    yield names
    found = Text("findings  ", "bold", no_wrap=True, overflow="ellipsis")
    yield found.append("; ".join(watch.findings()) or "none", "yellow")


def _details(watch: Watch, lines: int) -> Iterator[RenderableType]:
    """Tables of what is inside, as far as there is room."""
    tables = [
        table
        for table in (
            _stacks(watch),
            _threads(watch.state),
            _sizes(watch.state),
            _heaps(watch.state),
        )
        if table[1]
    ]
    # Where there is little room, the first ones only.
    tables = tables[: lines // (HEAD_LINES + FEWEST_ROWS)]
    for index, (names, rows) in enumerate(tables):
        # Each takes its share of what those before it have left.
        room = lines // (len(tables) - index) - HEAD_LINES
        table = _table(names)
        for row in rows[:room]:
            table.add_row(*row)
        lines -= min(room, len(rows)) + HEAD_LINES
        yield Text()
        yield table


Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]


def _stacks(watch: Watch) -> Rows:
    """Who holds most: the innermost functions, and who called them."""
    try:
        flame = watch.link.ask("/api/flame?of=live")
        whole = max(1, int(flame["bytes"]))
        sums = _by_stack(flame["root"])
    except (Gone, KeyError, TypeError, ValueError, RecursionError):
        return ((), [])
    rows = sorted(sums.items(), key=lambda item: -item[1])
    return (
        ("bytes", "share", "held by"),
        [
            (human(size), f"{100 * size / whole:.0f} %", plain(name))
            for name, size in rows
        ],
    )


def _by_stack(root: Json) -> dict[str, int]:
    """Bytes of each call stack, without functions that only pass allocations on."""
    sums: dict[str, int] = {}
    waiting: list[tuple[Any, tuple[Any, ...]]] = [(root, ())]
    while waiting:
        node, callers = waiting.pop()
        children = node.get("c", [])
        waiting += [(child, (child, *callers)) for child in children]
        # What is too small to be told apart counts here.
        own = int(node["v"]) - sum(int(child["v"]) for child in children)
        if own > 0:
            first = 0
            while first < len(callers) - 1 and callers[first].get("w"):
                first += 1
            names = [str(each.get("s", each["n"])) for each in callers[first:]]
            name = " ← ".join(names) or "many others"
            sums[name] = sums.get(name, 0) + own
    return sums


def _threads(state: Json) -> Rows:
    rows = sorted(state["threads"], key=lambda row: -int(row["live"]))
    return (
        ("in use", "peak", "allocated", "blocks", "thread"),
        [
            (
                human(int(row["live"])),
                human(int(row["peak"])),
                human(int(row["allocated"])),
                f"{int(row['blocks']):,}",
                plain(row["name"]) if row["thread"] else "shared, or of ended threads",
            )
            for row in rows
        ],
    )


def _sizes(state: Json) -> Rows:
    rows = sorted(state["classes"], key=lambda row: -int(row["live_bytes"]))
    return (
        ("in use", "blocks", "free", "slabs", "full", "size"),
        [
            (
                human(int(row["live_bytes"])),
                f"{int(row['live']):,}",
                f"{int(row['free']) + int(row['cached']):,}",
                f"{int(row['slabs']):,}",
                f"{100 * int(row['live_bytes']) / max(1, int(row['held'])):.0f} %",
                human(int(row["size"])) if row["size"] else "larger",
            )
            for row in rows
            if row["live"]
        ],
    )


def _heaps(state: Json) -> Rows:
    rows = sorted(state["heaps"], key=lambda row: -int(row["live"]))
    return (
        ("in use", "peak", "held", "blocks", "heap"),
        [
            (
                *(human(int(row[name])) for name in ("live", "peak_live", "held")),
                f"{int(row['live_blocks']):,}",
                plain(row["name"]) or f"without a name ({int(row['id'])})",
            )
            for row in rows
        ],
    )
