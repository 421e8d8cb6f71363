"""A program that does everything that disturbs a profiler keeps on beside its page."""

from __future__ import annotations

import time
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
# Between two looks: enough for the program to do something, too little to be forgotten.
PAUSE_SECONDS = 0.05


def keep_asking(process: Watched, until: float) -> int:
    """Has every question answered and every action done, again and again; how often."""
    rounds = 0
    while time.monotonic() < until:
        for path in LOOKS:
            assert process.ask(path).status == 200, path
            time.sleep(PAUSE_SECONDS)
        action = ACTIONS[rounds % len(ACTIONS)]
        assert process.ask(action, method="POST").status == 200, action
        rounds += 1
    return rounds


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
        # The page of a process that is about to end may be gone.
        rounds = keep_asking(process, time.monotonic() + seconds - 1)
        output, _ = process.process.communicate(timeout=120)
        assert process.process.returncode == 0, output
    done = dict(line.split(": ") for line in output.splitlines())
    print(f"{seconds} s, {rounds} rounds of questions: {done}")
    assert rounds > 0
    assert len(done) == 11
    assert all(int(times) > 0 for times in done.values()), done
