"""Test programs and fuzzers, run to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM_SECONDS = 500
# How long it may take until a program is ended that somebody has no use for any more.
LOOK_SECONDS = 0.2
# The sanitizers must report every defect as a failure of the program that has it.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


@dataclass(frozen=True)
class Ended:
    """What a program left behind."""

    status: int
    output: str
    # After so many seconds it was ended; None: it ended by itself.
    given_up_after: int | None
    # It was ended because nobody wanted it any more.
    was_stopped: bool = False

    def explained(self) -> str:
        """The output, and how the program ended."""
        if self.was_stopped:
            how = "was stopped"
        elif self.given_up_after is not None:
            how = f"did not end within {self.given_up_after} s"
        elif self.status < 0:
            how = f"was ended by {signal.Signals(-self.status).name}"
        else:
            how = f"ended with status {self.status}"
        return f"{self.output}\nThe program {how}."


def run_to_end(
    command: Sequence[str],
    *,
    seconds: int = PROGRAM_SECONDS,
    stop: threading.Event | None = None,
    **variables: str,
) -> Ended:
    """Runs a program and everything it starts to their end, or until ``stop`` is set."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **ENVIRONMENT, **variables},
        start_new_session=True,
    )
    given_up_after = None
    was_stopped = False
    try:
        output = _read_to_end(process, seconds, stop)
    except subprocess.TimeoutExpired:
        was_stopped = stop is not None and stop.is_set()
        if not was_stopped:
            given_up_after = seconds
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return Ended(process.returncode, output, given_up_after, was_stopped)


def _read_to_end(
    process: subprocess.Popen[str], seconds: int, stop: threading.Event | None
) -> str:
    if stop is None:
        return process.communicate(timeout=seconds)[0]
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            return process.communicate(timeout=min(max(left, 0), LOOK_SECONDS))[0]
        except subprocess.TimeoutExpired:
            if stop.is_set() or left <= 0:
                raise
