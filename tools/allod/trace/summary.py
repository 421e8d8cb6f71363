"""The summary of a trace, as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from allod.console import shown
from allod.trace.tool import Info
from allod.units import counted, human, human_time

MOST_THREADS_SHOWN = 8


def summary(trace: Path, info: Info) -> str:
    """The whole summary as text."""
    parts = [_overview(trace, info), _threads(info), _notes(info)]
    return "\n\n".join(part for part in parts if part)


def _overview(trace: Path, info: Info) -> str:
    kinds, allocated = info["kinds"], info["allocated"]
    calls = ", ".join(f"{name} {count:,}" for name, count in kinds.items() if count)
    freed, others = info["released"], info["released_by_others"]
    peak, left = info["peak"], info["left"]
    rows = {
        "program": info["command"],
        "allocator": info["allocator"],
        "trace": f"{human(info['bytes'])}, {counted(info['events'], 'event')},"
        f" {counted(info['threads'], 'thread')}, {info['seconds']:.2f} s",
        "calls": calls,
        "allocated": f"{counted(allocated['blocks'], 'block')},"
        f" {human(allocated['bytes'])}",
        "resized": f"{info['resized']:,}, of which {info['moved']:,} moved",
        "freed": f"{freed:,}, of which {others:,} by another thread"
        f" ({100 * others / max(freed, 1):.1f} %)",
        "peak": f"{human(peak['bytes'])} live in {counted(peak['blocks'], 'block')}"
        f" after {info['peak_seconds']:.2f} s",
        "never freed": f"{counted(left['blocks'], 'block')}, {human(left['bytes'])}",
        "sizes": _frequent_sizes(info),
        "lifetimes": _lifetimes(info),
    }
    if info["alignments"]:
        rows["alignments"] = ", ".join(
            f"{human(alignment)} {count:,}" for alignment, count in info["alignments"]
        )
    if info["failed"]:
        rows["failed"] = counted(info["failed"], "call")
    lines = [f"{name:12}{text}" for name, text in rows.items() if text]
    return "\n".join([shown(trace), *(f"  {line}" for line in lines)])


def _frequent_sizes(info: Info) -> str:
    total = max(info["allocated"]["blocks"], 1)
    return ", ".join(
        f"{size} B {100 * count / total:.0f} %"
        for size, count in info["frequent_sizes"][:6]
    )


def _lifetimes(info: Info) -> str:
    """The times by which a half, nine tenths and so on of the freed blocks are freed."""
    bins = info["lifetimes"]
    total = sum(entry["blocks"] for entry in bins)
    found = []
    for percent in (50, 90, 99) if total else ():
        seen = 0
        for entry in bins:
            seen += entry["blocks"]
            if seen * 100 >= percent * total:
                found.append(f"{percent} % under {human_time(entry['to'])}")
                break
    return ", ".join(found)


def _threads(info: Info) -> str:
    if info["threads"] < 2:
        return ""
    columns = (
        ("thread", "thread"),
        ("allocated", "allocated"),
        ("freed", "released"),
        ("of others", "released_of_others"),
        ("by others", "released_by_others"),
    )
    lines = ["  " + "".join(f"{title:>13}" for title, _ in columns) + f"{'bytes':>13}"]
    for thread in info["busiest_threads"][:MOST_THREADS_SHOWN]:
        cells = "".join(f"{thread[key]:>13,}" for _, key in columns)
        lines.append(f"  {cells}{human(thread['bytes']):>13}")
    if info["threads"] > MOST_THREADS_SHOWN:
        lines.append(f"  and {info['threads'] - MOST_THREADS_SHOWN:,} threads more")
    return "\n".join(lines)


def notes(info: Info) -> Iterator[str]:
    """What a reader must know about the trace itself."""
    if info["unusable_bytes"]:
        yield (
            f"{human(info['unusable_bytes'])} of the file are truncated or damaged"
            " and left out"
        )
    if not info["complete"]:
        yield (
            "the trace has no end: the program was killed, still runs, or the recording"
            " stopped; the last events of each thread are missing"
        )
    if info["forked"]:
        yield "the process began as a fork: blocks from before it are not known"
    if info["unknown_releases"]:
        yield (
            f"{counted(info['unknown_releases'], 'free')} of blocks that the trace does"
            " not know"
        )
    if info["missing_releases"]:
        yield (
            f"{counted(info['missing_releases'], 'block')} whose free is not in the"
            " trace; the next use of the address stands for it"
        )


def _notes(info: Info) -> str:
    return "\n".join(f"  note: {note}" for note in notes(info))
