"""Runs a program and records its allocation calls."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allod.allocators import find_allocator
from allod.console import Failure, say
from allod.paths import shown
from allod.run import NOT_EXECUTABLE, find_program, library_for
from allod.signals import handled_by
from allod.trace import (
    check_replaceable,
    clear,
    counted,
    human,
    read_headers,
    recordings,
)

RECORDER = "liballod-record.so"
MOST_LISTED = 10


def record(program: Sequence[str], output: Path | None, allocator: str) -> int:
    """Runs the program to its end; returns what the shell would show as its status."""
    path = find_program(program[0])
    recorder = library_for(path, RECORDER)
    behind = find_allocator(allocator)
    trace = _make_room(output or Path(f"{path.name}.trace"))
    libraries = [str(recorder), str(behind.library or "")]
    environment = {
        **os.environ,
        **dict(behind.variables),
        "LIBALLOD_RECORD": str(trace),
        "LD_PRELOAD": ":".join(
            filter(None, [*libraries, os.environ.get("LD_PRELOAD", "")])
        ),
    }
    _, status = run_to_end(path, program, environment)
    _report(trace)
    return status


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
            raise Failure(f"{output} cannot be written")
        clear(recordings(trace))
    return trace


def run_to_end(
    path: Path, program: Sequence[str], environment: dict[str, str]
) -> tuple[int, int]:
    """Runs a program as if it were started instead of us: its process, and its status as the shell
    shows it."""
    with _signals_for_program() as forward_to:
        try:
            process = subprocess.Popen(
                program, executable=path.absolute(), env=environment
            )
        except OSError as error:
            raise Failure(
                f"{program[0]} cannot be started: {error.strerror}", NOT_EXECUTABLE
            ) from None
        forward_to.append(process)
        status = process.wait()
    return process.pid, status if status >= 0 else 128 - status


@contextmanager
def _signals_for_program() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What should end us ends the program, and we with it.

    A terminal sends its signals to both of us; what others send to us alone is passed on.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def wait_on(number: int, _: object) -> None:
        if number in (signal.SIGTERM, signal.SIGHUP):
            for process in processes:
                process.send_signal(number)

    watched = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    with handled_by(wait_on, *watched):
        yield processes


def _report(trace: Path) -> None:
    found = recordings(trace)
    if not found:
        if not trace.exists() or trace.is_file():
            say("nothing was recorded: the loader did not take the recorder")
        return
    traces = sorted(map(read_headers, found), key=lambda of: -of.events)
    for of in traces[:MOST_LISTED]:
        command = of.command if len(of.command) <= 40 else f"{of.command[:37]}..."
        say(
            f"wrote {shown(of.path)}: {counted(of.events, 'event')} of"
            f" {counted(of.threads, 'thread')}, {human(of.bytes)} ({command})"
        )
    if len(traces) > MOST_LISTED:
        say(f"and {len(traces) - MOST_LISTED} smaller traces of further processes")
