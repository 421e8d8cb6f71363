"""What the tools make of traces: whole ones, damaged ones, and ones that tests made up."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from workshop.paths import ROOT

from . import decoder
from .conftest import Record, Tools
from .decoder import Event

DOCUMENT = ROOT / "docs" / "trace-format.md"


def write(path: Path, *threads: list[Event], version: int = decoder.VERSION) -> Path:
    """A trace of these events, with 1 ns to a tick."""
    path.write_bytes(decoder.encode(threads, version))
    return path


def test_the_summary_of_a_known_program_is_right(
    record: Record, programs: Path, tools: Tools
) -> None:
    idle = tools.info(record(programs / "calls", "2", "0").trace)
    info = tools.info(record(programs / "calls", "2", "500").trace)
    each = 2 * 500

    def more(*names: str) -> int:
        found, base = info, idle
        for name in names:
            found, base = found[name], base[name]
        assert isinstance(found, int) and isinstance(base, int)
        return found - base

    assert more("allocated", "blocks") == 9 * each + 8
    assert more("resized") == 3 * each
    assert more("released") == 8 * each + 8
    assert more("failed") == each
    assert more("released_by_others") == each
    assert more("left", "blocks") == each
    assert more("left", "bytes") == 7 * each
    assert dict(info["alignments"]) == {64: each, 256: each, 4096: each}
    assert info["complete"] and not info["forked"]
    assert info["unknown_releases"] == info["missing_releases"] == 0
    assert info["threads"] == 3
    by_thread = {entry["thread"]: entry for entry in info["busiest_threads"]}
    assert by_thread[2]["released_of_others"] == by_thread[3]["released_of_others"]
    assert by_thread[1]["released_by_others"] == each
    assert info["peak"]["bytes"] >= max(point[1] for point in info["series"])
    sizes = {entry["from"]: entry["blocks"] for entry in info["sizes"]}
    assert sizes[7] >= each and sizes[32] >= each


def test_every_number_of_a_small_trace(tools: Tools, tmp_path: Path) -> None:
    trace = write(
        tmp_path / "trace",
        [
            Event("malloc", 10, 0x1000, 100),
            Event("calloc", 20, 0x2000, 50),
            Event("malloc", 25, 0, 1 << 40),
            Event("realloc", 30, 0x1000, 300, took=5, moved_to=0x3000),
            Event("free", 40, 0x2000),
            Event("realloc", 50, 0x4000, 0, moved_to=0),
        ],
        [
            Event("aligned", 45, 0x4000, 64, alignment=64),
            Event("delete", 60, 0x3000),
        ],
    )
    info = tools.info(trace)
    assert info["kinds"] == {
        "free": 1,
        "malloc": 2,
        "calloc": 1,
        "aligned": 1,
        "realloc": 2,
        "new": 0,
        "delete": 1,
    }
    assert info["allocated"] == {"blocks": 3, "bytes": 214}
    assert (info["resized"], info["moved"]) == (1, 1)
    assert (info["released"], info["released_by_others"]) == (3, 2)
    assert info["failed"] == 1
    assert info["peak"] == {"blocks": 2, "bytes": 364}
    assert info["left"] == {"blocks": 0, "bytes": 0}
    # 20 and 20 and 25 ticks; a block that was moved lives on as another.
    assert info["lifetimes"] == [
        {"from": 4, "to": 8, "blocks": 1, "bytes": 64},
        {"from": 16, "to": 32, "blocks": 3, "bytes": 450},
    ]
    assert info["alignments"] == [[64, 1]]
    assert info["command"] == "made" and info["allocator"] == "lib"


def test_a_release_of_another_thread_counts_only_after_its_allocation(
    tools: Tools, tmp_path: Path
) -> None:
    """Whatever small errors the time stamps have."""
    trace = write(
        tmp_path / "trace",
        [Event("malloc", 1000, 0x1000, 8), Event("malloc", 2001, 0x1000, 16)],
        # Before the first allocation by its stamp, and at the time of the second.
        [Event("free", 990, 0x1000), Event("free", 2001, 0x1000)],
        [Event("malloc", 1999, 0x1000, 32), Event("free", 1999, 0x1000)],
    )
    info = tools.info(trace)
    assert (info["unknown_releases"], info["missing_releases"]) == (0, 0)
    assert info["released"] == 3
    assert info["left"]["blocks"] == 0


def test_what_a_trace_lacks_is_counted(tools: Tools, tmp_path: Path) -> None:
    trace = write(
        tmp_path / "trace",
        [
            Event("free", 5, 0x9000),
            Event("malloc", 10, 0x1000, 8),
            Event("malloc", 20, 0x1000, 16),
            Event("realloc", 30, 0x8000, 24, moved_to=0x2000),
        ],
        [Event("malloc", 15, 0x3000, 8), Event("malloc", 1_000_000, 0x3000, 8)],
    )
    info = tools.info(trace)
    assert info["unknown_releases"] == 2
    assert info["missing_releases"] == 2
    assert info["left"] == {"blocks": 3, "bytes": 48}
    assert tools.replay(tools.prepare(trace))["ops"] == 7


def random_threads(seed: int) -> list[list[Event]]:
    """Threads that allocate, resize, hand over and free, in one order of time."""
    chance = random.Random(seed)
    threads: list[list[Event]] = [[] for _ in range(chance.randint(1, 5))]
    ticks = 0
    live: dict[int, int] = {}
    free = [0x7F0000000000 + 32 * i for i in range(200)]
    for _ in range(chance.randint(0, 1500)):
        ticks += 1 + int(chance.expovariate(1 / 400)) ** chance.choice((1, 1, 2))
        events = chance.choice(threads)
        size = chance.choice((0, 1, 63, 64, 16383, 16384, 1 << 30, 3 << 40))
        action = chance.random()
        if not live or (action < 0.5 and free):
            address = free.pop(chance.randrange(len(free)))
            live[address] = size
            kind = chance.choice(("malloc", "calloc", "aligned", "new"))
            event = Event(kind, ticks, address, size)
            if kind == "aligned":
                event = Event(
                    kind, ticks, address, size, 1 << chance.randrange(20), seed % 2 == 0
                )
            events.append(event)
        elif action < 0.7 and free:
            old = chance.choice(list(live))
            moved = chance.choice((old, free.pop(chance.randrange(len(free)))))
            if old != moved:
                del live[old]
                free.append(old)
            live[moved] = size
            took = chance.randrange(5000)
            events.append(
                Event("realloc", ticks, old, size or 1, took=took, moved_to=moved)
            )
            ticks += took
        else:
            address = chance.choice(list(live))
            del live[address]
            free.append(address)
            events.append(Event(chance.choice(decoder.FREES), ticks, address))
    return threads


@pytest.mark.parametrize(
    ("version", "seed"),
    [*((2, seed) for seed in range(20)), *((1, seed) for seed in range(3))],
)
def test_all_that_is_written_is_read(
    tools: Tools, tmp_path: Path, version: int, seed: int
) -> None:
    threads = random_threads(seed)
    trace = write(tmp_path / "trace", *threads, version=version)
    assert [chunk.events for chunk in decoder.read(trace).chunks] == threads
    found: dict[int, list[str]] = defaultdict(list)
    for line in tools.run("dump", trace).stdout.splitlines():
        thread, rest = line.split(" ", 1)
        found[int(thread)].append(rest)
    for number, events in enumerate(threads, 1):
        assert found[number] == [described(event) for event in events]
    info = tools.info(trace)
    assert info["events"] == sum(map(len, threads))
    assert info["unknown_releases"] == info["missing_releases"] == 0
    kinds = Counter(event.kind for events in threads for event in events)
    assert {name: count for name, count in info["kinds"].items() if count} == kinds


def described(event: Event) -> str:
    """An event as the tool prints it."""
    parts = [str(event.ticks), event.kind, hex(event.address)]
    if event.kind == "realloc":
        parts.append(hex(event.moved_to))
    if event.kind not in decoder.FREES:
        parts.append(str(event.size))
    if event.kind == "aligned":
        parts.append(str(event.alignment))
    return " ".join(parts)


@pytest.fixture
def long_trace(record: Record, programs: Path) -> Path:
    """One with many chunks."""
    return record(programs / "calls", "2", "5000").trace


def test_a_truncated_trace_is_read_as_far_as_it_goes(
    tools: Tools, long_trace: Path
) -> None:
    data = long_trace.read_bytes()
    whole = decoder.decode(data)
    ends = [0]
    for chunk in whole.chunks:
        ends.append(ends[-1] + len(chunk.events))
    for share in (0.9, 0.5, 0.2):
        cut = long_trace.with_name("cut")
        cut.write_bytes(data[: int(len(data) * share)])
        info = tools.info(cut)
        assert info["events"] in ends[:-1]
        assert info["unusable_bytes"] > 0
        assert not info["complete"]
        assert tools.replay(tools.prepare(cut))["ops"] > 0


def test_a_damaged_chunk_is_left_out(tools: Tools, long_trace: Path) -> None:
    data = bytearray(long_trace.read_bytes())
    whole = decoder.decode(bytes(data))
    second = data.index(b"CHNK", data.index(b"CHNK") + 1)
    data[second : second + 4] = b"\0\0\0\0"
    damaged = long_trace.with_name("damaged")
    damaged.write_bytes(data)
    info = tools.info(damaged)
    assert info["events"] == len(whole.events) - len(whole.chunks[1].events)
    assert info["unusable_bytes"] > 0


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is not a trace: it is too short"),
        (b"#!/bin/sh\n" + b"x" * 100, "is not a trace"),
        (decoder.encode([[]])[:60], "ends within its header"),
        (b"ALLODTRC\0" + bytes(100), "version 0"),
        (b"ALLODTRC\3" + bytes(100), "version 3"),
    ],
)
def test_what_is_not_a_trace_is_refused(
    tools: Tools, tmp_path: Path, data: bytes, complaint: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    for done in (tools.run("info", path), tools.run("prepare", path, path)):
        assert done.returncode == 1
        assert complaint in done.stderr


def test_no_damage_makes_the_tool_crash(tools: Tools, tmp_path: Path) -> None:
    good = decoder.encode(random_threads(3))
    chance = random.Random(1)
    path = tmp_path / "file"
    for _ in range(60):
        data = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(56, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        done = tools.run("info", path)
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        assert (
            done.returncode == 0 or "damaged" in done.stderr or "trace" in done.stderr
        )


def test_the_document_s_example_is_what_it_says() -> None:
    text = DOCUMENT.read_text()
    block = re.search(r"```hexdump\n(.*?)```", text, re.DOTALL)
    assert block is not None
    data = bytes.fromhex(
        "".join(line.split("|")[0].split(":", 1)[1] for line in block[1].splitlines())
    )
    trace = decoder.decode(data)
    listed = re.findall(
        r"^\| `(\w+)\((.*?)\)` +\| (\d+) +\| `(\w+)` +\|", text, re.MULTILINE
    )
    assert len(listed) == len(trace.events)
    for (name, _, ticks, result), event in zip(listed, trace.events, strict=True):
        assert (event.kind, event.ticks) == (name, int(ticks))
        assert int(result, 16) == (event.moved_to or event.address)
