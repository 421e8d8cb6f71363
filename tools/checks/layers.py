"""Checks that every file of a layer includes only files of its own or of a lower layer.

The highest layer also sees the C API, and files that are in no layer stand above all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import click

LAYERS = ("base", "os", "sizes", "space", "slab", "heap", "thread", "api")
# Composed heaps stand beside the C++ interface of the C API, and use nothing of it.
RANK = {name: rank for rank, name in enumerate(LAYERS)} | {"tailored": len(LAYERS) - 1}
C_API = "allod.h"
SUFFIXES = {".h", ".hpp", ".inc", ".ipp"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
ROOT = Path(__file__).resolve().parents[2]


def violations(include: Path) -> Iterator[str]:
    """What is wrong with the includes of the files below `include`/allod."""
    core = include / "allod"
    for layer in sorted(path for path in core.iterdir() if path.is_dir()):
        if layer.name not in RANK:
            yield f"{layer}: {layer.name} is not a layer"
    for file in sorted(core.rglob("*")):
        if file.suffix in SUFFIXES:
            yield from _violations_in(file, include)


def _violations_in(file: Path, include: Path) -> Iterator[str]:
    own = file.relative_to(include / "allod").parts[0]
    text = file.read_text()
    for match in INCLUDE.finditer(text):
        where = f"{file}:{text.count(chr(10), 0, match.start()) + 1}"
        target = _target(match[1] == '"', match[2], file, include)
        if target is None:
            continue
        if target == "" and match[2] == C_API and own not in LAYERS[:-1]:
            continue
        if target == "":
            yield f"{where}: {match[2]} is outside the layers"
        elif target not in RANK:
            yield f"{where}: {match[2]} belongs to no layer"
        elif own in RANK and RANK[target] > RANK[own]:
            yield f"{where}: {own} must not include {target} ({match[2]})"


def _target(quoted: bool, name: str, file: Path, include: Path) -> str | None:
    """The layer that an include names; None for the system's headers, "" for what is ours and in
    no layer."""
    path = PurePosixPath(name)
    if path.parts[0] == "allod" and len(path.parts) > 1:
        return path.parts[1] if len(path.parts) > 2 else ""
    beside = (file.parent / name).resolve()
    if quoted and beside.exists():
        core = (include / "allod").resolve()
        if not beside.is_relative_to(core):
            return ""
        parts = beside.relative_to(core).parts
        return parts[0] if len(parts) > 1 else ""
    # A quoted name, or one that is found below include/, is not the system's.
    return "" if quoted or (include / name).exists() else None


@click.command(help=__doc__)
@click.option(
    "--include",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT / "include",
    help="The folder that holds allod/.",
)
def main(include: Path) -> None:
    """Prints the violations and fails if there are any."""
    found = list(violations(include))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
