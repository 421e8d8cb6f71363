"""Names functions, files and lines in reports of the library, which knows what is exported."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from allod import supplies
from allod.console import Failure, say

if TYPE_CHECKING:
    from allod.profile.model import Frame

# A log may have written something in front of each line.
FRAME = re.compile(
    r"^(?P<front>.*?)allod:     #(?P<number>\d+) (?P<address>0x[0-9a-f]+)"
    r"(?: (?P<name>\S+)\+(?P<into>0x[0-9a-f]+))?"
    r" \((?P<path>.+)\+(?P<offset>0x[0-9a-f]+)\)$",
    re.ASCII,
)
ACCESS = re.compile(r"^.*?allod:   this access by thread \d+:$", re.ASCII)
# Of these, what the program has called is of interest, and not what that calls.
OWN = "liballod"
USUAL = {"cfree": "free", "__libc_free": "free", "__libc_malloc": "malloc"}
JSON_START = '{"allod":"error"'


# Of a file in a process: where its address 0 is, where it ends, its path.
File = tuple[int, int, str]


@dataclass(frozen=True)
class Place:
    """An instruction in a file, by the file's own addresses."""

    path: str
    address: int


@dataclass
class Line:
    """A line of a report, and the instruction that it tells of, if any."""

    text: str
    number: int = -1
    place: Place | None = None
    name: str = ""
    # What a log has written in front of it.
    front: str = ""


@dataclass
class Report:
    """Lines in order; and of the files what the report says to tell them by."""

    lines: list[Line] = field(default_factory=list)
    build_ids: dict[str, str] = field(default_factory=dict)
    # Where the process has found functions, by path: names and their addresses.
    names: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))


def symbolize(source: Path | None) -> None:
    """Copies a report to standard output with its frames named. None: from standard input."""
    supplies.current().python_packages("profiles")
    report = read_report(source)
    known = resolve(report, source)
    for line in named_lines(report, known):
        print(line)


def read_report(source: Path | None) -> Report:
    """The lines of a file, or of standard input, with JSON told as text."""
    if source is None:
        return parse(sys.stdin)
    try:
        with source.open(errors="surrogateescape") as file:
            return parse(file)
    except OSError as error:
        raise Failure(f"{source} cannot be read: {error.strerror}") from None


def parse(text: TextIO | Iterable[str]) -> Report:
    """Finds the frames in a text that may hold anything else besides."""
    report = Report()
    is_exact = False
    for raw in text:
        line = raw.rstrip("\r\n")
        if JSON_START in line:
            _add_json(report, line)
            continue
        frame = FRAME.match(line)
        if frame is None:
            # An access is where it happened; all other frames are where a call returns to.
            if "allod:" in line:
                is_exact = ACCESS.match(line) is not None
            report.lines.append(Line(line))
            continue
        offset = int(frame["offset"], 16)
        path = _path_of(frame["path"])
        _add_frame(report, line, int(frame["number"]), path, offset, is_exact)
        report.lines[-1].front = frame["front"]
        if frame["name"] is not None:
            report.lines[-1].name = frame["name"]
            report.names[path][frame["name"]] = offset - int(frame["into"], 16)
    return report


def _path_of(shown: str) -> str:
    # One that would mean something to a terminal is told as in JSON.
    if not shown.startswith('"'):
        return shown
    try:
        return str(json.loads(shown))
    except json.JSONDecodeError:
        return shown


def _add_frame(
    report: Report, text: str, number: int, path: str, offset: int, is_exact: bool
) -> None:
    address = offset if is_exact and number == 0 else offset - 1
    report.lines.append(Line(text, number, Place(path, address)))


def _add_json(report: Report, line: str) -> None:
    front, start, rest = line.partition(JSON_START)
    try:
        told, end = json.JSONDecoder().raw_decode(start + rest)
    except json.JSONDecodeError:
        report.lines.append(Line(line))
        return
    before = len(report.lines)
    _add_told(report, told)
    for each in report.lines[before:]:
        each.front = front
        each.text = front + each.text
    if behind := (start + rest)[end:].strip():
        report.lines.append(Line(behind))


def _add_told(report: Report, told: dict[str, Any]) -> None:
    files = [
        (int(each["base"], 16), int(each.get("end", "0x0"), 16), each["path"])
        for each in told.get("files", [])
    ]
    for each in told.get("files", []):
        if "build_id" in each:
            report.build_ids[each["path"]] = each["build_id"]
    report.lines.extend(Line(text) for text in _headlines(told))
    is_access = told["kind"].startswith("access_") or told["kind"] == "wrong_tag"
    for key, thread, what in (
        ("allocated_at", "allocating_thread", "allocated"),
        ("freed_at", "freeing_thread", "freed"),
        ("stack", "thread", "this access" if is_access else "this call"),
    ):
        if key not in told:
            continue
        report.lines.append(Line(f"allod:   {what} by thread {told[thread]}:"))
        is_exact = is_access and key == "stack"
        addresses = [int(frame, 16) for frame in told[key]]
        while len(addresses) > 1 and all(
            _is_own(_file_of(address, files)) for address in addresses[:2]
        ):
            addresses.pop(0)
        for number, address in enumerate(addresses):
            _add_address(report, number, address, files, is_exact)


def _headlines(told: dict[str, Any]) -> Iterator[str]:
    yield f"allod: error: {told['kind'].replace('_', ' ')}, address {told['address']}"
    if "block" in told:
        yield f"allod:   block {told['block']} of {told['block_bytes']} bytes"
    if "requested" in told:
        state = "in use" if told["in_use"] else "free"
        yield f"allod:   {state}, requested with {told['requested']} bytes"
    if "first_changed" in told:
        yield f"allod:   the first changed byte is byte {told['first_changed']}"


def _add_address(
    report: Report,
    number: int,
    address: int,
    files: Sequence[File],
    is_exact: bool,
) -> None:
    text = f"allod:     #{number} {address:#x}"
    found = _file_of(address, files)
    if found is None:
        report.lines.append(Line(text, number))
        return
    base, _, path = found
    offset = address - base
    _add_frame(report, f"{text} ({path}+{offset:#x})", number, path, offset, is_exact)


def _file_of(address: int, files: Sequence[File]) -> File | None:
    # A return address may be just behind the function that called. Not every libc tells the end.
    around = [each for each in files if each[0] < address <= (each[1] or address)]
    return max(around, default=None)


def _is_own(file: File | None) -> bool:
    return file is not None and Path(file[2]).name.startswith(OWN)


def resolve(report: Report, source: Path | None) -> dict[Place, tuple[Frame, ...]]:
    """What is at each place, innermost first, from files that are those of the report."""
    from allod.profile import symbols

    wanted: dict[str, set[int]] = defaultdict(set)
    for line in report.lines:
        if line.place is not None:
            wanted[line.place.path].add(line.place.address)
    known: dict[Place, tuple[Frame, ...]] = {}
    for path, addresses in wanted.items():
        complaint = _complaint(path, report, source)
        if complaint is not None:
            say(f"warning: {complaint}; its frames stay as they are")
            continue
        ordered = sorted(addresses)
        found = symbols.functions_at(path, ordered)
        for address, frames in zip(ordered, found):
            if frames:
                known[Place(path, address)] = frames
    return known


def _complaint(path: str, report: Report, source: Path | None) -> str | None:
    """Why the file cannot tell what the report means, or None."""
    from allod.profile import symbols

    file = Path(path)
    if not file.is_file():
        return f"no such file: {path}"
    noted = report.build_ids.get(path)
    if noted is not None:
        if symbols.build_id(path) != noted:
            return f"{path} has changed since the report"
        return None
    written = source.stat().st_mtime if source is not None else None
    if written is not None and file.stat().st_mtime > written:
        return f"{path} is newer than the report"
    exported = symbols.exported(path)
    for name, address in report.names.get(path, {}).items():
        if address not in exported.get(name, {address}):
            return f"{path} has changed since the report"
    return None


def named_lines(report: Report, known: dict[Place, tuple[Frame, ...]]) -> Iterator[str]:
    """The report; what was inlined has frames of its own."""
    number = 0
    for line in report.lines:
        if line.number < 0:
            yield line.text
            continue
        if line.number == 0:
            number = 0
        names = list(_names_of(line, known))
        if not names:
            text = line.text.removeprefix(line.front)
            yield line.front + re.sub(r"#\d+", f"#{number}", text, count=1)
            number += 1
        for name in names:
            yield f"{line.front}allod:     #{number} {name}"
            number += 1


def _names_of(line: Line, known: dict[Place, tuple[Frame, ...]]) -> Iterator[str]:
    if line.place is None:
        return
    frames = known.get(line.place, ())
    if Path(line.place.path).name.startswith(OWN):
        frames = frames[-1:]
    for frame in frames:
        function = frame.function
        if Path(line.place.path).name.startswith(OWN):
            # Several names lead there.
            function = line.name or USUAL.get(function, function)
        where = f"{frame.file}:{frame.line}" if frame.file else f"({line.place.path})"
        yield f"{function} {where}"
