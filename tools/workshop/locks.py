"""Locks between processes, in files, that say whom one waits for."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from allod.console import Failure, display_for

POLL_SECONDS = 0.1


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Holds a lock while something is done; who comes second waits, and says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise Failure(
            f"{what} is needed, and {error.filename} cannot be written: {error.strerror}"
        ) from None
    with file:
        if not _taken(file):
            _wait(file, what)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(file: IO[str], what: str) -> None:
    file.seek(0)
    holder = file.read().strip()
    who = f"process {holder}" if holder else "another process"
    display = display_for(f"waiting for {who}: {what}")
    try:
        while not _taken(file):
            time.sleep(POLL_SECONDS)
            display.beat()
    finally:
        display.close()
