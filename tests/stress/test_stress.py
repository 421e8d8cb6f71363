"""The allocator under load: every payload verified, memory in proportion to what is live."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import (
    Case,
    Runner,
    cases_in,
    describe,
    run_program,
)
from workshop.build import PRESETS, ensure_built
from workshop.paths import build_dir as build_dir_of

FOLDER = Path(__file__).parent
BOUNDS = cases_in(FOLDER)

QUICK_LOADS = [
    # seed, threads, operations of each
    (1, 1, 400_000),
    (2, 2, 400_000),
    (3, 4, 200_000),
    (4, 16, 40_000),
]
LONG_LOADS = [
    (seed, threads, 1_600_000 // threads)
    for seed, threads in enumerate([1, 2, 2, 3, 4, 8, 32, 64], start=100)
]

SANITIZED_LOADS = [(1, 2, 60_000), (2, 4, 60_000), (3, 8, 30_000), (4, 16, 15_000)]


def run_payload(runner: Runner, load: tuple[int, int, int], **options: str) -> None:
    """Runs the program of verified payloads; it reports the first byte that is wrong."""
    runner.holds("payload", *map(str, load), **options)


@pytest.mark.parametrize("load", QUICK_LOADS, ids=str)
def test_payload(load: tuple[int, int, int], release: Runner) -> None:
    """No block is handed out twice, moved or overwritten."""
    run_payload(release, load)


@pytest.mark.parametrize("load", QUICK_LOADS, ids=str)
def test_payload_while_pages_go(load: tuple[int, int, int], release: Runner) -> None:
    """Free pages in slabs go back to the system all the time, beside blocks in use."""
    run_payload(release, load, ALLOD_PURGE_DELAY="2")


@pytest.mark.parametrize("caches", ["thread", "processor"])
def test_payload_by_the_other_caches(caches: str, release: Runner) -> None:
    """Whoever has free blocks at hand."""
    run_payload(release, QUICK_LOADS[-1], ALLOD_CACHES=caches)


@pytest.mark.slow
@pytest.mark.parametrize("load", LONG_LOADS, ids=str)
def test_payload_long(load: tuple[int, int, int], release: Runner) -> None:
    """The same with more threads and more operations."""
    run_payload(release, load)


@pytest.mark.slow
@pytest.mark.parametrize("load", SANITIZED_LOADS, ids=str)
def test_payload_has_no_data_race(load: tuple[int, int, int], tmp_path: Path) -> None:
    """ThreadSanitizer sees the program and the library's sources, compiled into one."""
    ensure_built(PRESETS["tsan"], tests=True)
    variables = {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
    program: list[str | Path] = [build_dir_of("tsan") / "tests" / "stress" / "payload"]
    arguments: list[str | Path] = [str(number) for number in load]
    result = run_program(program + arguments, variables, tmp_path)
    assert result.returncode == 0, describe(result)


@pytest.mark.parametrize("threads", [1, 4])
def test_payload_on_the_debug_library(threads: int, debug: Runner) -> None:
    """The checks of the debug library find nothing wrong in a program that is right."""
    run_payload(debug, (50 + threads, threads, 100_000 // threads))


@pytest.mark.parametrize("case", BOUNDS, ids=str)
def test_bounds(case: Case, release: Runner) -> None:
    """Resident memory stays in proportion to the live set."""
    release.holds(*case)
