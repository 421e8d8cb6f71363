"""What a person sees: messages on stderr, and commands that run with progress."""

from __future__ import annotations

import difflib
import io
import os
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

HEARTBEAT_SECONDS = 10.0
TAIL_LINES = 60
NINJA_PROGRESS = re.compile(r"^\[(\d+)/(\d+)\]")


class Failure(Exception):
    """Something a person can act on: shown without a traceback."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    """Prints one message line. Where there is nobody to take it, it is lost."""
    with suppress(OSError):
        print(f"allod: {message}", file=sys.stderr, flush=True)


def shown(path: Path) -> str:
    """A path as a person in the current folder would write it, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """What a misspelt name may have been, as a part of a sentence; nothing where none is near."""
    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


class NamedOutput(io.FileIO):
    """Standard output, whose errors say what could not be written to."""

    def write(self, data: ReadableBuffer) -> int:
        """As that of a file."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from None


class Display(Protocol):
    """Shows how far one step has come."""

    def advance(self, done: int, total: int) -> None:
        """Some of the known amount of work is done."""

    def beat(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """The step has ended."""


class PlainDisplay:
    """A line at the start and one every few seconds, for logs and pipes."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._count = ""
        self._next = time.monotonic() + HEARTBEAT_SECONDS
        say(f"{title} ...")

    def advance(self, done: int, total: int) -> None:
        self._count = f" ({done}/{total})"

    def beat(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + HEARTBEAT_SECONDS
            say(f"{self._title} ...{self._count}")

    def close(self) -> None:
        pass


class LiveDisplay:
    """A bar with the elapsed time, for terminals."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("allod: {task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None)
        self._progress.start()

    def advance(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def beat(self) -> None:
        pass

    def close(self) -> None:
        self._progress.stop()


def display_for(title: str) -> Display:
    """What fits where standard error goes."""
    return LiveDisplay(title) if sys.stderr.isatty() else PlainDisplay(title)


def run_logged(
    title: str,
    command: Sequence[str],
    log: Path,
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    echo: bool = False,
) -> None:
    """Runs a command with its output in a log, and raises Failure with its end.

    With `echo` the output goes to stderr as well, in place of the progress display.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("w")
    except OSError as error:
        raise Failure(f"{title}: cannot write {shown(log)}: {error.strerror}") from None
    started = time.monotonic()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with file as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        try:
            process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except FileNotFoundError:
            raise Failure(f"{title}: no such program: {command[0]}") from None
        display: Display = PlainDisplay(title) if echo else display_for(title)
        assert process.stdout is not None
        try:
            _follow(process.stdout, output, tail, display, echo)
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            display.close()
    seconds = time.monotonic() - started
    if status != 0:
        say(f"{title}: failed after {seconds:.1f} s")
        if not echo:
            print("\n".join(tail), file=sys.stderr)
        raise Failure(f"{title} failed; all its output is in {shown(log)}")
    say(f"{title}: done in {seconds:.1f} s")


def _follow(
    source: IO[str],
    output: IO[str],
    tail: deque[str],
    display: Display,
    echo: bool,
) -> None:
    """Copies a command's output to its log until it ends."""
    descriptor = source.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        rest = b""
        while True:
            display.beat()
            if not selector.select(timeout=1.0):
                continue
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for raw in lines:
                _take(raw.decode(errors="replace"), output, tail, display, echo)
        if rest:
            _take(rest.decode(errors="replace"), output, tail, display, echo)


def _take(
    line: str, output: IO[str], tail: deque[str], display: Display, echo: bool
) -> None:
    output.write(line + "\n")
    if echo:
        print(line, file=sys.stderr)
    progress = NINJA_PROGRESS.match(line)
    if progress is None:
        tail.append(line)
    else:
        display.advance(int(progress[1]), int(progress[2]))
