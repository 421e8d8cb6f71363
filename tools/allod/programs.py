"""Test programs and fuzzers, run to their end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM_SECONDS = 500
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

    def explained(self) -> str:
        """The output, and how the program ended."""
        if self.given_up_after is not None:
            how = f"did not end within {self.given_up_after} s"
        elif self.status < 0:
            how = f"was ended by {signal.Signals(-self.status).name}"
        else:
            how = f"ended with status {self.status}"
        return f"{self.output}\nThe program {how}."


def run_to_end(
    command: Sequence[str], *, seconds: int = PROGRAM_SECONDS, **variables: str
) -> Ended:
    """Runs a program and everything it starts to their end."""
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
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        given_up_after = seconds
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return Ended(process.returncode, output, given_up_after)
