"""Runs a process to its end, or ends it and everything that it started."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from allod.signals import handled_by

# What a script exits with when the machine cannot run its program.
LEFT_OUT = 77
_GRACE_SECONDS = 5.0
Work = TypeVar("Work")
Found = TypeVar("Found")
_MOST_TEXT = 300
# Those that run now; more than one thread may start some.
_running: set[subprocess.Popen[str]] = set()


class RunError(Exception):
    """A workload did not finish as it should under an allocator."""


class LeftOut(Exception):
    """A workload says that it cannot run on this machine, and why."""


def output_of(
    command: Sequence[str], variables: Mapping[str, str], timeout: float
) -> str:
    """What the command prints; RunError or LeftOut say why it did not end well.

    The command runs in a process group of its own. When it takes too long, or when we
    are interrupted, the whole group is told to end, and then made to.
    """
    process = None
    try:
        with _signals_wait():
            process = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            _running.add(process)
        output, complaints = process.communicate(timeout=timeout)
    except BaseException as error:
        if process is not None:
            _end_group(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise RunError(f"not finished after {timeout:g} s") from error
        raise
    finally:
        if process is not None:
            _running.discard(process)
    complaint = _shortened(complaints)
    if process.returncode == LEFT_OUT:
        raise LeftOut(complaint or "it gives no reason")
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise RunError(f"killed by {name} {complaint}".strip())
    if process.returncode > 0:
        raise RunError(complaint or f"exit status {process.returncode}")
    return output


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """What would end us comes afterwards: a process just started must not be forgotten."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    try:
        with handled_by(
            lambda number, _: came.append(number), signal.SIGINT, signal.SIGTERM
        ):
            yield
    finally:
        for waited in came:
            signal.raise_signal(waited)


def end_all() -> None:
    """Ends the processes that other threads wait for."""
    for process in tuple(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def side_by_side(
    do: Callable[[Work], Found], work: Iterable[Work], workers: int | None = None
) -> Iterator[Found]:
    """What `do` returns for each piece of work, in their order; on all processors if not told."""
    pool = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)))
    try:
        yield from pool.map(do, work)
    except BaseException:
        # Interrupted, or nobody asks for the rest.
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()
        raise
    finally:
        pool.shutdown()


def _end_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _shortened(text: str) -> str:
    """The end of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST_TEXT else f"... {line[-_MOST_TEXT:]}"
