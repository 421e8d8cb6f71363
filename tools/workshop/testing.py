"""Runs the tests: builds what they need, hands over to pytest, counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure, did_you_mean, say

from workshop.build import PRESETS, Preset, ensure_built
from workshop.environment import ensure_bench, ensure_profile
from workshop.paths import ROOT
from workshop.pytest_counts import COUNTS_FILE
from workshop.pytest_gtest import PRESETS_VARIABLE

TESTS = ROOT / "tests"
BENCH = ROOT / "bench"
DOCS = ROOT / "docs"
DEFAULT = (TESTS, BENCH, DOCS)
LAYER_TESTS = ("unit", "model", "tailored")
SLOWEST = 15
# Options of pytest whose value could be mistaken for a path.
VALUE_FOLLOWS = {"-k", "-m", "-n", "-p", "-o", "-W", "-c", "--deselect", "--ignore"}
# Options that want one process, or say themselves how many.
ALONE = {"-s", "--capture=no", "--pdb", "--trace", "--collect-only", "--co", "-n"}


@dataclass(frozen=True)
class Counts:
    """How many tests ended how; errors are failures."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def line(self) -> str:
        """The last line of a test run."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def groups() -> list[str]:
    """The names that --only takes: folders and files of tests/."""
    folders = [entry.name for entry in TESTS.iterdir() if _holds_tests(entry)]
    files = [path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")]
    return sorted({*folders, *files, BENCH.name, DOCS.name})


def _holds_tests(folder: Path) -> bool:
    return folder.is_dir() and any(
        next(folder.rglob(pattern), None) is not None
        for pattern in ("test_*.py", "*.cpp", "*.c")
    )


def _listen_to_interrupts() -> None:
    """Some tests interrupt programs; background jobs of a shell hand down that they ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test(only: Sequence[str], arguments: Sequence[str], *, quick: bool) -> int:
    """Builds, runs pytest, prints the counts last, and returns the exit status."""
    counts, status = Counts(failed=1), 1
    try:
        roots = [_path_of_group(name) for name in only]
        given = [*map(str, roots), *arguments]
        named = _named_paths(given)
        selected = named or list(DEFAULT)
        if not named:
            given += map(str, DEFAULT)
        presets = presets_for(selected, quick=quick)
        for preset in presets:
            ensure_built(preset, tests=True)
        if _includes("test_checks.py", selected) or BENCH in selected:
            ensure_bench()
            ensure_profile()
        counts, status = _run_pytest(given, presets, quick=quick)
    except Failure as failure:
        say(f"error: {failure}")
    except KeyboardInterrupt:
        say("interrupted")
        status = 130
    sys.stderr.flush()
    print(counts.line(), flush=True)
    return status


def _path_of_group(name: str) -> Path:
    folder = ROOT / name if name in (BENCH.name, DOCS.name) else TESTS / name
    file = TESTS / f"test_{name}.py"
    if folder.is_dir():
        return folder
    if file.is_file():
        return file
    near = did_you_mean(name, groups())
    raise Failure(
        f"there is no group {name}{near}; the groups are: {', '.join(groups())}"
    )


def _named_paths(arguments: Iterable[str]) -> list[Path]:
    """The files and folders of those arguments that name tests."""
    paths = []
    previous = ""
    for argument in arguments:
        path = Path(argument.split("::", 1)[0])
        names_path = not argument.startswith("-") and previous not in VALUE_FOLLOWS
        if names_path and path.exists():
            paths.append(path.resolve())
        previous = argument
    return paths


def presets_for(selected: Sequence[Path], *, quick: bool) -> list[Preset]:
    """The presets that the tests at these paths need."""

    def touches(folder: str) -> bool:
        target = TESTS / folder
        return (target / "CMakeLists.txt").is_file() and any(
            path == target or path in target.parents or target in path.parents
            for path in selected
        )

    names = ["release"]
    layers = any(touches(folder) for folder in LAYER_TESTS)
    if layers:
        names.append("asan")
    if not quick:
        if layers:
            names.append("tsan")
        if touches("fuzz"):
            names.append("fuzz")
        if touches("surface") or _includes("test_clang_tidy.py", selected):
            names.append("clang")
    return [PRESETS[name] for name in names]


def _includes(file: str, selected: Sequence[Path]) -> bool:
    return TESTS in selected or TESTS / file in selected


def _run_pytest(
    arguments: Sequence[str], presets: Sequence[Preset], *, quick: bool
) -> tuple[Counts, int]:
    command = [sys.executable, "-P", "-m", "pytest", f"--durations={SLOWEST}"]
    command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    if quick:
        command += ["-m", "not slow"]
    if not ALONE.intersection(arguments):
        # One more than can run: some tests wait for a program, a download or a lock.
        workers = len(os.sched_getaffinity(0)) + 1
        command += ["-n", str(workers), "--no-loadscope-reorder"]
    command += arguments
    with tempfile.TemporaryDirectory(prefix="allod-test-") as scratch:
        file = Path(scratch) / "counts.json"
        environment = {
            **os.environ,
            COUNTS_FILE: str(file),
            PRESETS_VARIABLE: ",".join(preset.name for preset in presets),
        }
        process = subprocess.Popen(
            command, env=environment, preexec_fn=_listen_to_interrupts
        )
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            status = process.wait()
        if not file.exists():
            return Counts(failed=1), status or 1
        counts = Counts(**json.loads(file.read_text()))
    if status == 0 and counts.failed:
        status = 1
    if status != 0 and not counts.failed and not counts.passed:
        # Nothing ran: a wrong argument, or nothing selected.
        counts = Counts(failed=1, skipped=counts.skipped)
    return counts, status
