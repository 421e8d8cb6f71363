"""A program that does everything that disturbs a profiler keeps on beside its page."""

from __future__ import annotations

import itertools
import time
from http.client import HTTPException
from pathlib import Path

import pytest

from .conftest import Serve
from .watched import Watched

LOOKS = (
    "/",
    "/api/state",
    "/api/stacks",
    "/api/map",
    "/metrics",
    "/debug/pprof/heap",
    "/debug/pprof/allocs",
)
ACTIONS = ("/api/mark", "/api/purge", "/api/reset", "/api/sampling?interval=4096")
# After each look at everything one action.
QUESTIONS = [
    question
    for action in ACTIONS
    for question in (*(("GET", look) for look in LOOKS), ("POST", action))
]
# Between two questions: enough for the program to do something, too little to be forgotten.
PAUSE_SECONDS = 0.05
# For a process that has closed its page to end.
ENDING_SECONDS = 60


def keep_asking(process: Watched, until: float) -> int:
    """Has every question answered and every action done, again and again; how many in all.

    Where all is slow the process may end before, and its page with it; but not its page alone.
    """
    answers = 0
    for method, path in itertools.cycle(QUESTIONS):
        if time.monotonic() >= until:
            break
        try:
            status = process.ask(path, method=method).status
        except (ConnectionError, HTTPException):
            process.process.wait(ENDING_SECONDS)
            break
        assert status == 200, path
        answers += 1
        time.sleep(PAUSE_SECONDS)
    return answers


@pytest.mark.timeout(0)
def test_all_at_once_for_as_long_as_is_asked(
    serve: Serve, build_dir: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Threads, forks, programs, libraries, exceptions, signals, sampling, leaks and the page:
    nobody gets stuck, and no block changes. An hour: --seconds 3600."""
    seconds: int = request.config.getoption("--seconds")
    program = build_dir / "tests" / "live_stress"
    leaks = str(tmp_path / "leaks")
    with serve(program, str(seconds), profile="10000", leaks_file=leaks) as process:
        answers = keep_asking(process, time.monotonic() + seconds - 1)
        output, _ = process.process.communicate(timeout=120)
        assert process.process.returncode == 0, output
    done = dict(line.split(": ") for line in output.splitlines())
    print(f"{seconds} s, {answers} answers: {done}")
    assert answers > 0
    assert len(done) == 11
    assert all(int(times) > 0 for times in done.values()), done
