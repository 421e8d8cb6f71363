"""Traces of allocation calls: the tool that reads them, and summaries for people."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from allod.build import BUILD_TOOLS, GCC, building
from allod.console import Display, Failure, display_for, run_logged, say
from allod.files import write_whole
from allod.packages import ensure_requirements
from allod.paths import BUILD, LOGS, ROOT, shown

SOURCES = ROOT / "bench" / "replay"
BINARIES = BUILD / "bench" / "replay"
QUIET_SECONDS = 2.0
MAGIC = b"ALLODTRC"
FILE_HEADER = struct.Struct("<8sIIIIQQQII")
CHUNK_HEADER = struct.Struct("<IIIIIIQQQ")
CHUNK_MAGIC = 0x4B4E4843
MOST_THREADS_SHOWN = 8

Info = dict[str, Any]


def ensure_tools() -> Path:
    """Builds the programs of bench/replay where needed; returns their folder."""
    ensure_requirements((*BUILD_TOOLS, *GCC))
    if not _is_built():
        with building("replay"):
            _build()
    return BINARIES


def _is_built() -> bool:
    if not (BINARIES / "build.ninja").is_file():
        return False
    ask = ["ninja", "-C", str(BINARIES), "-n"]
    done = subprocess.run(ask, capture_output=True, check=False)
    return done.returncode == 0 and b"no work to do" in done.stdout


def _build() -> None:
    if not (BINARIES / "build.ninja").is_file():
        configure = ["cmake", "-S", str(SOURCES), "-B", str(BINARIES), "-G", "Ninja"]
        run_logged("configuring the replay", configure, LOGS / "replay-configure.log")
    if not _is_built():
        build = ["cmake", "--build", str(BINARIES)]
        run_logged("building the replay", build, LOGS / "replay-build.log")


def run_tool(title: str, *arguments: str | Path) -> str:
    """What the tool prints; shows after a while that it is at work."""
    command = [str(ensure_tools() / "trace-tool"), *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    display: Display | None = None
    wait = QUIET_SECONDS
    try:
        while True:
            try:
                output, complaints = process.communicate(timeout=wait)
                break
            except subprocess.TimeoutExpired:
                wait = 1.0
                if display is None:
                    display = display_for(title)
                display.beat()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if display is not None:
            display.close()
    if process.returncode < 0:
        raise Failure(f"{title}: killed by signal {-process.returncode}")
    if process.returncode != 0:
        raise Failure(complaints.strip() or f"{title} failed")
    return output


def read_info(trace: Path) -> Info:
    """The summary of a trace."""
    _check_file(trace)
    info: Info = json.loads(run_tool(f"reading {trace.name}", "info", trace))
    return info


def dump(trace: Path, most: int | None) -> None:
    """Prints the events as text, as fast as they are taken."""
    _check_file(trace)
    limit = [] if most is None else [str(most)]
    command = [str(ensure_tools() / "trace-tool"), "dump", str(trace), *limit]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode > 0:
        raise Failure(done.stderr.strip() or "standard output cannot be written to")


def _check_file(trace: Path) -> None:
    if not trace.is_file():
        what = "is not a file" if trace.exists() else "is not there"
        raise Failure(f"{trace} {what}")


# What a recording left


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


# For people


def human(amount: float) -> str:
    """A number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def human_time(nanoseconds: float) -> str:
    """A length of time."""
    for unit in ("ns", "µs", "ms"):
        if nanoseconds < 1000:
            return f"{nanoseconds:.3g} {unit}"
        nanoseconds /= 1000
    return f"{nanoseconds:.3g} s"


def counted(number: int, word: str) -> str:
    """A number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


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


def show(trace: Path, *, html: Path | None, folder: Path | None, as_json: bool) -> None:
    """Prints a summary, and writes the plots that are asked for."""
    info = read_info(trace)
    if html is not None or folder is not None:
        from allod.environment import ensure_bench

        ensure_bench()
        from allod.trace_plots import page, write_folder

        if html is not None:
            write_whole(html, page(trace, info))
            say(f"wrote {shown(html)}")
        if folder is not None:
            write_folder(folder, trace, info)
            say(f"wrote {shown(folder)}")
    click.echo(json.dumps(info) if as_json else summary(trace, info))


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
