"""What is different between two profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from allod import supplies
from allod.console import Failure
from allod.units import human

if TYPE_CHECKING:
    from allod.profile.model import Profile

KINDS = {"live": "in use", "peak": "at the peak", "total": "ever allocated"}


def _read(path: Path) -> Profile:
    from allod.profile import model, pprof, symbols

    if not path.is_file():
        raise Failure(f"no such file: {path}")
    if pprof.is_pprof(path):
        return pprof.read(path)
    profile = model.read_text(path)
    symbols.add_names(profile)
    return profile


def compare(first: Path, second: Path, kind: str, most: int) -> None:
    """Prints the functions whose bytes have changed most."""
    supplies.current().python_packages("profiles")
    from allod.profile import flame, names

    before = flame.by_function(_read(first), kind)
    after = flame.by_function(_read(second), kind)
    nothing = [0, 0, 0]
    changes = {
        name: [
            b - a
            for a, b in zip(
                before.get(name, nothing), after.get(name, nothing), strict=True
            )
        ]
        for name in before | after
    }
    rows = sorted(
        changes.items(), key=lambda item: (-abs(item[1][0]), -abs(item[1][1]), item[0])
    )
    table = Table(
        title=f"Bytes {KINDS[kind]}, from {first} to {second}", title_justify="left"
    )
    for heading in ("itself", "with callees", "blocks"):
        table.add_column(heading, justify="right")
    table.add_column("function", overflow="fold")
    for name, (own, all_, blocks) in rows[:most]:
        if own or all_:
            table.add_row(
                _signed(own), _signed(all_), f"{blocks:+,}", escape(names.short(name))
            )
    Console().print(table)


def _signed(number: int) -> str:
    sign = "-" if number < 0 else "+"
    return f"{sign}{human(abs(number))}" if number else "0"
