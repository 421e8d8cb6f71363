"""Names of code that no file holds, from what compilers at run time write for perf:
/tmp/perf-PID.map, and jitdump files."""

from __future__ import annotations

import bisect
import itertools
import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from allod.profile.model import Frame, Profile

MOST_BYTES = 1 << 28
MOST_PIECES = 1 << 20
# Clocks of files tick coarsely.
SLACK_SECONDS = 2.0
LINE = re.compile(rb"(?:0x)?([0-9a-fA-F]+) (?:0x)?([0-9a-fA-F]+) (.*)")
PYTHON = re.compile(r"py::(?P<function>[^:]*):(?P<file>.+)")
V8 = re.compile(
    r"(?:[A-Za-z]+:)?[~^*+]?(?P<function>.*?) "
    r"(?P<file>(?:/|file:|node:).*?|\S+?):(?P<line>\d+)(?::\d+)?"
)
# https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jitdump-specification.txt
DUMP_MAGIC = 0x4A695444
LOAD, MOVE, LINES = range(3)


@dataclass(frozen=True)
class Piece:
    """Some code; of two at an address, the later one is there."""

    start: int
    size: int
    name: str
    # Addresses and what is from there on, in order.
    lines: tuple[tuple[int, str, int], ...] = ()


class CodeMaps:
    """What the compilers of one process have written."""

    def __init__(self, profile: Profile) -> None:
        pieces: list[Piece] = []
        if profile.process:
            path = Path(f"/tmp/perf-{profile.process}.map")
            pieces += _pieces(_map_pieces(_own(path, profile)))
            for dump in sorted(_dumps(profile)):
                pieces += _pieces(_dump_pieces(_own(dump, profile)))
        self._starts: list[int] = []
        self._pieces: list[Piece] = []
        # Later pieces come behind those that they overlap.
        self._largest = max((piece.size for piece in pieces), default=0)
        for _, piece in sorted(enumerate(pieces), key=lambda it: (it[1].start, it[0])):
            self._starts.append(piece.start)
            self._pieces.append(piece)
        self._order = {id(piece): number for number, piece in enumerate(pieces)}

    def at(self, address: int) -> Frame | None:
        """The function at an address."""
        last = bisect.bisect_right(self._starts, address)
        first = bisect.bisect_left(self._starts, address - self._largest)
        there = [
            piece
            for piece in self._pieces[first:last]
            if address < piece.start + piece.size
        ]
        if not there:
            return None
        piece = max(there, key=lambda each: self._order[id(each)])
        frame = split_name(piece.name)
        place = bisect.bisect_right([each[0] for each in piece.lines], address) - 1
        if place >= 0:
            _, file, line = piece.lines[place]
            return Frame(frame.function, file, line)
        return frame


def split_name(name: str) -> Frame:
    """Function, file and line of what runtimes write as one."""
    for form in (PYTHON, V8):
        found = form.fullmatch(name)
        if found is not None:
            line = found.groupdict().get("line")
            return Frame(
                found["function"] or "(anonymous)", found["file"], int(line or 0)
            )
    return Frame(name)


def _own(path: Path, profile: Profile) -> bytes:
    """The contents of a file of the user whose process it was; empty: it is none of its."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(file, "rb") as contents:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != profile.owner:
            return b""
        if found.st_mtime + SLACK_SECONDS < profile.began:
            return b""
        return contents.read(MOST_BYTES)


def _dumps(profile: Profile) -> set[Path]:
    """The process has mapped its jitdump, which makes it known to perf."""
    name = f"jit-{profile.process}.dump"
    found = {Path(each.path) for each in profile.mappings if each.path.endswith(name)}
    return {path for path in found if path.name == name} or {Path("/tmp") / name}


def _pieces(found: Iterator[Piece]) -> list[Piece]:
    return list(itertools.islice(found, MOST_PIECES))


def _map_pieces(text: bytes) -> Iterator[Piece]:
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        if found is not None:
            name = found[3].decode(errors="replace")
            yield Piece(int(found[1], 16), int(found[2], 16), name)


def _dump_pieces(data: bytes) -> Iterator[Piece]:
    if len(data) < 40 or struct.unpack_from("=I", data)[0] != DUMP_MAGIC:
        return
    at = int(struct.unpack_from("=I", data, 8)[0])
    lines: dict[int, tuple[tuple[int, str, int], ...]] = {}
    loaded: dict[int, Piece] = {}
    while at + 16 <= len(data):
        kind, size = struct.unpack_from("=II", data, at)
        if size < 16 or at + size > len(data):
            return
        record = data[at + 16 : at + size]
        try:
            if kind == LOAD:
                start, code_bytes = struct.unpack_from("=16xQQ", record)
                name = _text(record, 40)
                loaded[start] = Piece(start, code_bytes, name, lines.get(start, ()))
                yield loaded[start]
            elif kind == MOVE:
                before, start, code_bytes = struct.unpack_from("=16xQQQ", record)
                if before in loaded:
                    old = loaded[before]
                    moved = tuple(
                        (address - before + start, file, line)
                        for address, file, line in old.lines
                    )
                    loaded[start] = Piece(start, code_bytes, old.name, moved)
                    yield loaded[start]
            elif kind == LINES:
                start = struct.unpack_from("=Q", record)[0]
                lines[start] = tuple(_dump_lines(record))
        except struct.error:
            return
        at += size


def _dump_lines(record: bytes) -> Iterator[tuple[int, str, int]]:
    count = struct.unpack_from("=8xQ", record)[0]
    at = 16
    file = ""
    for _ in range(count):
        if at + 16 > len(record):
            return
        address, line = struct.unpack_from("=QI", record, at)
        length = record.find(b"\0", at + 16) - at - 16
        if length < 0:
            return
        # This stands for the name of the entry before.
        if record[at + 16 : at + 16 + length] != b"\xff":
            file = _text(record, at + 16)
        yield address, file, line
        at += 16 + length + 1


def _text(record: bytes, at: int) -> str:
    end = record.find(b"\0", at)
    return record[at : end if end >= 0 else len(record)].decode(errors="replace")
