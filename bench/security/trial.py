"""Runs one program with a defect once."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from bench.compare import runner
from bench.compare.peers import Peer
from bench.security.cases import Case
from bench.security.judge import Verdict, judge

LIMIT_SECONDS = 60.0
# A corrupt allocator may complain without end.
_MOST_BYTES = 1 << 16


def run(program: Path, case: Case, peer: Peer, limit: float = LIMIT_SECONDS) -> Verdict:
    """The verdict on the case under the allocator."""
    said, status = _said_and_status(
        case.command(program), runner.environment(peer), limit
    )
    return judge(said, status, case.kind, peer.library)


def _said_and_status(
    command: Sequence[str], variables: dict[str, str], limit: float
) -> tuple[str, int | None]:
    process = subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    too_long = threading.Event()

    def end() -> None:
        too_long.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit, end)
    timer.start()
    try:
        with process.stderr as stream:
            said = stream.read(_MOST_BYTES)
        if len(said) == _MOST_BYTES:
            end()
        status = process.wait()
    finally:
        timer.cancel()
    return said.decode(errors="replace"), None if too_long.is_set() else status
