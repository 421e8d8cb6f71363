"""A program that runs as our child, and ends as if it ran in our place."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allod.console import Failure
from allod.signals import handled_by
from allod.supplies import NOT_EXECUTABLE


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
