"""The files of a recording, by their headers alone."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure

MAGIC = b"ALLODTRC"
FILE_HEADER = struct.Struct("<8sIIIIQQQII")
CHUNK_HEADER = struct.Struct("<IIIIIIQQQ")
CHUNK_MAGIC = 0x4B4E4843


@dataclass(frozen=True)
class Recording:
    """What the headers of a trace say, without a look at its events."""

    path: Path
    command: str
    bytes: int
    events: int
    threads: int


def is_trace(path: Path) -> bool:
    """Whether a file begins as a trace does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def recordings(path: Path) -> list[Path]:
    """The trace at a path, and those of further processes beside it."""
    name = re.compile(re.escape(path.name) + r"\.\d+(\.\d+)?")
    beside = [other for other in path.parent.iterdir() if name.fullmatch(other.name)]
    return [
        found
        for found in (path, *sorted(beside))
        if found.is_file() and is_trace(found)
    ]


def read_headers(path: Path) -> Recording:
    """Counts what is in the chunks, as far as the file is in order."""
    size = path.stat().st_size
    events, threads = 0, set()
    with path.open("rb") as file:
        header = file.read(FILE_HEADER.size)
        if len(header) < FILE_HEADER.size:
            return Recording(path, "", size, 0, 0)
        fields = FILE_HEADER.unpack(header)
        offset, command = fields[2], file.read(fields[8])
        while offset + CHUNK_HEADER.size <= size:
            file.seek(offset)
            chunk = CHUNK_HEADER.unpack(file.read(CHUNK_HEADER.size))
            if chunk[0] != CHUNK_MAGIC:
                break
            offset += CHUNK_HEADER.size + chunk[1]
            events += chunk[2]
            if chunk[2] > 0:
                threads.add(chunk[3])
    text = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return Recording(path, " ".join(text.split()), size, events, len(threads))


def clear(paths: Sequence[Path]) -> None:
    """Removes traces of an earlier recording."""
    for path in paths:
        path.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Refuses to write over anything but a trace."""
    if not path.exists() or not path.is_file():
        return
    if path.stat().st_size > 0 and not is_trace(path):
        raise Failure(
            f"{path} is there and is not a trace: choose another with --output"
        )
