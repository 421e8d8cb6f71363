"""Runs a program and records its allocation calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from allod import supplies
from allod.child import run_to_end
from allod.console import Failure, say, shown
from allod.preload import preloaded
from allod.run import ends_for, find_program, library_for
from allod.trace.files import check_replaceable, clear, read_headers, recordings
from allod.units import counted, human

RECORDER = "liballod-record.so"
MOST_LISTED = 10
# The status where the program's is 0 and its trace is not whole.
INCOMPLETE = 1


def record(program: Sequence[str], output: Path | None, allocator: str) -> int:
    """Runs the program to its end; returns what the shell would show as its status."""
    path = find_program(program[0])
    recorder = library_for(path, RECORDER)
    behind = supplies.current().allocator(allocator)
    trace = _make_room(output or Path(f"{path.name}.trace"))
    libraries = [
        ends_for(path),
        recorder,
        *([behind.library] if behind.library else []),
    ]
    with _complaints() as complaints:
        environment = {
            **os.environ,
            **dict(behind.variables),
            "LIBALLOD_RECORD": str(trace),
            "LIBALLOD_RECORD_ERRORS": complaints.path,
            "LD_PRELOAD": preloaded(*libraries),
        }
        _, status = run_to_end(path, program, environment)
        problems = complaints.read()
    _complain(problems)
    _report(trace, is_explained=bool(problems))
    return status or (INCOMPLETE if problems else 0)


def _complain(problems: Sequence[str]) -> None:
    """Says what was lost, and removes files that nothing could be written to."""
    for problem in problems[:MOST_LISTED]:
        say(f"error: incomplete trace: {problem}")
    if len(problems) > MOST_LISTED:
        say(f"error: and {len(problems) - MOST_LISTED} more traces are incomplete")
    for problem in problems:
        path = Path(problem.rpartition(": ")[0])
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()


@dataclass(frozen=True)
class _Complaints:
    """What recorders say when they give up, each a line. In memory: the disk may be what is full,
    and the program may have closed its standard error."""

    descriptor: int

    @property
    def path(self) -> str:
        """Where a process of the same user finds it for as long as this one runs."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def read(self) -> list[str]:
        """All of them."""
        with open(os.dup(self.descriptor), errors="replace") as file:
            file.seek(0)
            return list(dict.fromkeys(file.read().splitlines()))


@contextmanager
def _complaints() -> Iterator[_Complaints]:
    descriptor = os.memfd_create("allod-record-errors")
    try:
        yield _Complaints(descriptor)
    finally:
        os.close(descriptor)


def _make_room(output: Path) -> Path:
    trace = output.absolute()
    if not trace.parent.is_dir():
        raise Failure(f"{output.parent} is not a folder")
    if trace.is_dir():
        raise Failure(f"{output} is a folder")
    check_replaceable(trace)
    if trace.is_file():
        clear([trace])
    if not trace.exists():
        if not os.access(trace.parent, os.W_OK):
            raise Failure(
                f"cannot write {output}: {output.parent} may not be written to"
            )
        clear(recordings(trace))
    return trace


def _report(trace: Path, *, is_explained: bool) -> None:
    found = recordings(trace)
    if not found:
        if not is_explained and (not trace.exists() or trace.is_file()):
            say("nothing recorded: the loader did not load the recorder")
        return
    traces = sorted(map(read_headers, found), key=lambda of: -of.events)
    for of in traces[:MOST_LISTED]:
        command = of.command if len(of.command) <= 40 else f"{of.command[:37]}..."
        say(
            f"wrote {shown(of.path)}: {counted(of.events, 'event')} of"
            f" {counted(of.threads, 'thread')}, {human(of.bytes)} ({command})"
        )
    if len(traces) > MOST_LISTED:
        say(f"and {len(traces) - MOST_LISTED} smaller traces of other processes")
