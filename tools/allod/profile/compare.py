"""What is different between two profiles."""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from allod import supplies
from allod.console import Failure
from allod.files import deliver
from allod.units import human

if TYPE_CHECKING:
    from allod.profile.model import Profile

# Columns of a table in a file.
FILE_WIDTH = 120
KINDS = {"live": "in use", "peak": "at the peak", "total": "ever allocated"}


@dataclass(frozen=True)
class Change:
    """Bytes that a function allocated itself, and with what it called; `error` is two standard
    deviations of the latter."""

    function: str
    own: int
    all: int
    blocks: int
    error: int


def read(source: str) -> Profile:
    """A profile of pprof's format, or the library's text with its names; or that of a process now,
    by its id or the link of its live page."""
    from allod.profile import model, pprof, served, symbols

    path = Path(source)
    if not path.is_file():
        if source.isdecimal() or "://" in source:
            return served.profile_of(source)
        raise Failure(f"no such file: {source}")
    if pprof.is_pprof(path):
        return pprof.read(path)
    profile = model.read_text(path)
    symbols.add_names(profile)
    return profile


def place_of(source: str) -> str:
    """What a person reads of it: a link without its secret."""
    if Path(source).is_file():
        return source
    return f"process {source}" if source.isdecimal() else urlsplit(source).netloc


def compare(
    first: str,
    second: str,
    kind: str,
    most: int,
    *,
    as_json: bool = False,
    output: Path | None = None,
) -> None:
    """Prints the functions whose bytes have changed most."""
    supplies.current().python_packages("profiles")
    from allod.profile import flame, names

    profiles = [read(first), read(second)]
    before, after = (flame.by_function(profile, kind) for profile in profiles)
    nothing = [0, 0, 0]
    changes = []
    for name in before | after:
        old, new = before.get(name, nothing), after.get(name, nothing)
        own, all_, blocks = (b - a for a, b in zip(old, new))
        errors = [
            flame.error_of(row[1], row[2], profile.interval)
            for row, profile in zip((old, new), profiles)
        ]
        changes.append(Change(name, own, all_, blocks, round(math.hypot(*errors))))
    changes.sort(key=lambda it: (-abs(it.own), -abs(it.all), it.function))
    rows = [each for each in changes[:most] if each.own or each.all]
    if as_json:
        told = {"kind": kind, "rows": [asdict(row) for row in rows]}
        return deliver(json.dumps(told, indent=1) + "\n", output)
    places = " to ".join(place_of(source) for source in (first, second))
    table = Table(title=f"Bytes {KINDS[kind]}, from {places}", title_justify="left")
    for heading in ("itself", "with callees", "±", "blocks"):
        table.add_column(heading, justify="right", min_width=9)
    table.add_column("function", overflow="fold")
    for row in rows:
        table.add_row(
            _signed(row.own),
            _signed(row.all),
            human(row.error) if row.error else "",
            f"{row.blocks:+,}",
            escape(names.short(row.function)),
        )
    if output is None:
        Console().print(table)
        return None
    text = io.StringIO()
    Console(file=text, width=FILE_WIDTH).print(table)
    return deliver(text.getvalue(), output)


def _signed(number: int) -> str:
    sign = "-" if number < 0 else "+"
    return f"{sign}{human(abs(number))}" if number else "0"
