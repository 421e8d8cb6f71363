"""Reads traces as docs/trace-format.md says, independent of the reader in C++; and writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

FILE = struct.Struct("<8sIIIIQQQII")
CHUNK = struct.Struct("<IIIIIIQQQ")
MAGIC = b"ALLODTRC"
CHUNK_MAGIC = int.from_bytes(b"CHNK", "little")
KINDS = ("free", "malloc", "calloc", "aligned", "realloc", "new", "delete")
FREES = ("free", "delete")
THREAD_ENDED, PROCESS_ENDED, EXEC = 1, 2, 4
VERSION = 2
# How many bytes a time takes, for each code.
TIME_BYTES = {1: (1, 2, 4, 8), 2: (0, 1, 3, 7)}


@dataclass(frozen=True)
class Event:
    """One call."""

    kind: str
    ticks: int
    address: int
    size: int = 0
    alignment: int = 0
    by_operator: bool = False
    took: int = 0
    moved_to: int = 0


@dataclass(frozen=True)
class Chunk:
    """What one thread wrote at once."""

    thread: int
    kernel_id: int
    flags: int
    base_ticks: int
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class Trace:
    """A whole file."""

    process: int
    forked: bool
    command: list[str]
    allocator: str
    chunks: list[Chunk]

    @property
    def events(self) -> list[Event]:
        return [event for chunk in self.chunks for event in chunk.events]

    @property
    def complete(self) -> bool:
        return bool(self.chunks and self.chunks[-1].flags & (PROCESS_ENDED | EXEC))

    def of_thread(self, number: int) -> list[Event]:
        """What one thread did, in order."""
        return [
            event
            for chunk in self.chunks
            if chunk.thread == number
            for event in chunk.events
        ]

    def sized(self, size: int) -> list[Event]:
        """The events that ask for just so much."""
        return [event for event in self.events if event.size == size]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fixed(self, count: int) -> int:
        value = int.from_bytes(self.data[self.at : self.at + count], "little")
        self.at += count
        return value

    def number(self) -> int:
        return self.fixed(1 << (self.data[self.at] & 3)) >> 2


def _signed(code: int) -> int:
    return -(code >> 1) - 1 if code & 1 else code >> 1


def _unsigned(value: int) -> int:
    return ~(value << 1) if value < 0 else value << 1


def decode_events(
    data: bytes, base_ticks: int, version: int = VERSION
) -> Iterator[Event]:
    """The events of a chunk."""
    reader, ticks, unit = _Reader(data), base_ticks, 0
    while reader.at < len(data):
        first = reader.fixed(1)
        kind = KINDS[first & 7]
        ticks += reader.fixed(TIME_BYTES[version][first >> 3 & 3])
        own = unit + _signed(reader.fixed(first >> 5))
        unit = own or unit
        event = Event(kind, ticks, own * 8)
        if kind not in FREES:
            event = replace(event, size=reader.number())
        if kind == "aligned":
            last = reader.fixed(1)
            event = replace(
                event, alignment=1 << (last & 63), by_operator=bool(last & 64)
            )
        if kind == "realloc":
            took = reader.number()
            ticks += took
            to = unit + _signed(reader.number())
            unit = to or unit
            event = replace(event, took=took, moved_to=to * 8)
        yield event


def decode(data: bytes) -> Trace:
    """A whole file, which must be in order."""
    header = FILE.unpack_from(data)
    assert header[0] == MAGIC
    names = data[FILE.size :]
    command = names[: header[8]].split(b"\0")[:-1]
    allocator = names[header[8] : header[8] + header[9]]
    chunks, at = [], header[2]
    while at < len(data):
        magic, size, count, thread, kernel, flags, base, _, _ = CHUNK.unpack_from(
            data, at
        )
        assert magic == CHUNK_MAGIC
        at += CHUNK.size
        events = list(decode_events(data[at : at + size], base, header[1]))
        assert len(events) == count
        chunks.append(Chunk(thread, kernel, flags, base, events))
        at += size
    return Trace(
        process=header[3],
        forked=bool(header[4] & 1),
        command=[part.decode() for part in command],
        allocator=allocator.decode(),
        chunks=chunks,
    )


def read(path: Path) -> Trace:
    """A trace file."""
    return decode(path.read_bytes())


def _number(value: int) -> bytes:
    code = sum(value >= 1 << bits for bits in (6, 14, 30))
    return (value << 2 | code).to_bytes(1 << code, "little")


def encode_events(
    events: Sequence[Event], base_ticks: int, version: int = VERSION
) -> bytes:
    """A chunk's events; the opposite of decode_events()."""
    data, ticks, unit = b"", base_ticks, 0
    for event in events:
        passed, own = event.ticks - ticks, event.address // 8
        widths = TIME_BYTES[version]
        code = next(i for i in range(4) if passed < 1 << 8 * widths[i])
        moved = _unsigned(own - unit)
        width = (moved.bit_length() + 7) // 8
        data += bytes([KINDS.index(event.kind) | code << 3 | width << 5])
        data += passed.to_bytes(widths[code], "little") + moved.to_bytes(
            width, "little"
        )
        ticks, unit = event.ticks, own or unit
        if event.kind not in FREES:
            data += _number(event.size)
        if event.kind == "aligned":
            power = event.alignment.bit_length() - 1
            data += bytes([power | (64 if event.by_operator else 0)])
        if event.kind == "realloc":
            to = event.moved_to // 8
            data += _number(event.took) + _number(_unsigned(to - unit))
            ticks, unit = ticks + event.took, to or unit
    return data


def encode(threads: Sequence[Sequence[Event]], version: int = VERSION) -> bytes:
    """A trace with one chunk for each thread, and 1 ns to a tick."""
    end = 1 + max(
        (event.ticks + event.took for events in threads for event in events), default=0
    )
    data = FILE.pack(MAGIC, version, FILE.size + 8, 77, 0, 0, 0, 0, 5, 3) + b"made\0lib"
    for number, events in enumerate(threads, 1):
        body = encode_events(events, 0, version)
        flags = PROCESS_ENDED if number == len(threads) else THREAD_ENDED
        data += CHUNK.pack(
            CHUNK_MAGIC, len(body), len(events), number, 1000 + number, flags, 0,
            end, end,
        )  # fmt: skip
        data += body
    return data
