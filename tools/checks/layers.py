"""Checks that every file includes only files of its own folder or of lower ones.

The layers of the engine lie below include/allod/, the rooms of the libraries in src/, and the live
server in live/. The highest layer also sees the C API, and files in no layer stand above all.
Within a room, no units form a circle; a unit is a header with the source of its name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import click

LAYERS = ("base", "os", "sizes", "space", "slab", "heap", "heaps", "thread", "api")
# Composed heaps stand beside the C++ interface of the C API, and use nothing of it.
RANK = {name: rank for rank, name in enumerate(LAYERS)} | {"tailored": len(LAYERS) - 1}
C_API = "allod.h"
# The rooms of src/, from the bottom to the top: what each of them may include besides itself.
ROOMS: dict[str, tuple[str, ...]] = {
    "libc": (),
    "text": (),
    "settings": ("libc", "text"),
    "image": (),
    "unwind": ("text", "image"),
    "python": ("unwind",),
    "stop": ("libc", "image"),
    "instance": ("settings",),
    "scan": ("image", "instance"),
    "guards": ("text", "unwind", "instance"),
    "report": ("text", "settings", "unwind", "instance", "guards"),
    "hardened": ("text", "settings", "stop", "instance", "scan", "report"),
    "profile": (
        *("text", "settings", "image", "unwind", "python", "instance"),
        *("scan", "guards", "hardened"),
    ),
    "leaks": (
        *("text", "settings", "stop", "instance", "scan"),
        *("guards", "hardened", "profile"),
    ),
    "statistics": ("text", "settings", "instance"),
    "attach": ("libc", "settings", "image", "stop", "instance"),
    "process": (
        *("libc", "text", "settings", "image", "stop", "instance", "guards"),
        *("report", "hardened", "profile", "leaks", "statistics", "attach"),
    ),
    "entry": (
        *("libc", "text", "settings", "stop", "instance", "scan", "guards"),
        *("report", "hardened", "profile", "statistics", "process"),
    ),
    # Libraries of their own.
    "record": ("libc", "text"),
    "copies": (),
    "ends": ("libc",),
    "live": ("libc", "text"),
    # The libraries for other systems.
    "portable": ("text", "settings"),
    "windows": ("text", "settings", "portable"),
    "bsd": ("text", "settings", "portable"),
    "darwin": ("text", "portable", "bsd"),
    "freebsd": ("portable", "bsd"),
}
# The highest layer that a room knows. Those that are not named see all.
HIGHEST = dict.fromkeys(
    ("libc", "text", "image", "unwind", "python", "stop", "record"), "os"
)
HIGHEST |= {"copies": "base", "live": "base", "settings": "heap"}
SUFFIXES = {".h", ".hpp", ".inc", ".ipp"}
# Conditionals on the system stand in these layers alone.
SYSTEM = re.compile(
    r"^[ \t]*#[ \t]*(?:el)?if.*\b"
    r"(_WIN32|_WIN64|__MINGW\w+|_MSC_VER|__linux__|__APPLE__|__FreeBSD__)\b",
    re.MULTILINE,
)
KNOWS_SYSTEM = ("base", "os")
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


def system_violations(*folders: Path) -> Iterator[str]:
    """Conditionals on the system outside of the layers that know it."""
    know: set[tuple[str, ...]] = {("allod", layer) for layer in KNOWS_SYSTEM}
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.relative_to(folder).parts[:2] in know:
                continue
            if file.suffix not in SUFFIXES | {".cpp", ".S"}:
                continue
            text = file.read_text()
            for match in SYSTEM.finditer(text):
                line = text.count(chr(10), 0, match.start()) + 1
                yield f"{file}:{line}: only base and os know {match[1]}"


def room_violations(source: Path, live: Path) -> Iterator[str]:
    """What is wrong with the includes of the rooms in `source`, and of the server in `live`."""
    for file in sorted(source.rglob("*")):
        if file.suffix in SUFFIXES | {".cpp"}:
            room = file.relative_to(source).parts[0]
            yield from _room_violations_in(file, room)
    for file in sorted(live.glob("*.?pp")):
        yield from _room_violations_in(file, "live")
    try:
        TopologicalSorter(_units(source)).prepare()
    except CycleError as error:
        yield f"{source}: circle of units: {' -> '.join(error.args[1])}"


def _units(source: Path) -> dict[str, set[str]]:
    """What the units in `source` include."""
    units: dict[str, set[str]] = {}
    for file in sorted(source.rglob("*.?pp")):
        unit = file.relative_to(source).with_suffix("")
        for match in INCLUDE.finditer(file.read_text()):
            target = Path(match[2])
            if (source / target).exists() and target.with_suffix("") != unit:
                units.setdefault(str(unit), set()).add(str(target.with_suffix("")))
    return units


def _room_violations_in(file: Path, room: str) -> Iterator[str]:
    if room not in ROOMS:
        yield f"{file}: {room} is not a room"
        return
    text = file.read_text()
    highest = RANK[HIGHEST.get(room, LAYERS[-1])]
    for match in INCLUDE.finditer(text):
        where = f"{file}:{text.count(chr(10), 0, match.start()) + 1}"
        parts = PurePosixPath(match[2]).parts
        if parts[0] == "allod" and len(parts) > 2:
            if RANK.get(parts[1], len(LAYERS)) > highest:
                yield f"{where}: {room} must not include {parts[1]} ({match[2]})"
        elif ".." in parts:
            yield f"{where}: {match[2]} leaves its folder"
        elif parts[0] in ROOMS and len(parts) > 1:
            if parts[0] not in (room, *ROOMS[room]):
                yield f"{where}: {room} must not include {parts[0]} ({match[2]})"
        elif match[1] == '"' and room != "live" and match[2] != C_API:
            yield f"{where}: {match[2]} belongs to no room"


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
def main() -> None:
    """Prints the violations and fails if there are any."""
    found = [
        *violations(ROOT / "include"),
        *room_violations(ROOT / "src", ROOT / "live"),
        *system_violations(ROOT / "include", ROOT / "src", ROOT / "live"),
    ]
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
