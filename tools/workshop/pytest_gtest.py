"""A pytest plugin that collects GoogleTest programs and fuzzers.

What there is to collect stands in build/<preset>/tests/manifest.json, written by CMake. Tests
appear under the source file that has them, once for each preset that was built. A program is
started once for all of a file's selected tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from workshop.fuzz import fuzzer_command
from workshop.paths import BUILD
from workshop.programs import ENVIRONMENT, Ended, run_to_end

PRESETS_VARIABLE = "PYTEST_ALLOD_PRESETS"
SLOW_PRESETS = {"tsan", "fuzz"}
FUZZ_SECONDS = 10


@dataclass(frozen=True)
class Entry:
    """One line of a manifest."""

    preset: str
    kind: str
    name: str
    source: Path
    executable: Path


@dataclass(frozen=True)
class Verdict:
    """How one GoogleTest test ended."""

    outcome: str
    text: str
    seconds: float


@cache
def entries() -> dict[Path, list[Entry]]:
    """The programs of all presets by source file."""
    found: dict[Path, list[Entry]] = {}
    chosen = os.environ.get(PRESETS_VARIABLE)
    for manifest in sorted(BUILD.glob("*/tests/manifest.json")):
        preset = manifest.parents[1].name
        if chosen is not None and preset not in chosen.split(","):
            continue
        for row in json.loads(manifest.read_text()):
            entry = Entry(
                preset,
                row["kind"],
                row["name"],
                Path(row["source"]).resolve(),
                Path(row["executable"]),
            )
            found.setdefault(entry.source, []).append(entry)
    return found


def sources_of(executable: Path) -> set[str]:
    """The names of the files that a program has its tests from."""
    return {
        source.name
        for source, found in entries().items()
        if any(entry.executable == executable for entry in found)
    }


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Collects source files that a manifest names."""
    if file_path.suffix == ".cpp" and file_path.resolve() in entries():
        return SourceFile.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Gives each test the time it took itself, not that of its whole program."""
    report = yield
    if isinstance(item, GoogleTest) and call.when == "call":
        verdict = item.program.verdicts.get(item.filter_name)
        if verdict is not None:
            report.duration = verdict.seconds
    return report


class SourceFile(pytest.File):
    """A C++ file with tests."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        for entry in entries()[self.path.resolve()]:
            name = f"{entry.name}.{entry.preset}"
            if entry.kind == "gtest":
                yield Program.from_parent(self, name=name, entry=entry)
            else:
                yield Fuzzer.from_parent(self, name=name, entry=entry)


class Program(pytest.Collector):
    """A GoogleTest program of one preset."""

    def __init__(self, *, entry: Entry, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.executable = entry.executable
        self.verdicts: dict[str, Verdict] = {}
        self._ran = False
        if entry.preset in SLOW_PRESETS:
            self.add_marker(pytest.mark.slow)

    def collect(self) -> Iterator[pytest.Item]:
        with tempfile.TemporaryDirectory(prefix="allod-gtest-") as scratch:
            result = Path(scratch) / "listing.json"
            listing = subprocess.run(
                [
                    self.executable,
                    "--gtest_list_tests",
                    f"--gtest_output=json:{result}",
                ],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, **ENVIRONMENT},
            )
            if listing.returncode != 0:
                raise self.CollectError(
                    f"{self.executable} --gtest_list_tests ended with"
                    f" {listing.returncode}\n{listing.stdout}{listing.stderr}"
                )
            places = read_listing(json.loads(result.read_text()))
        for name, file in places.items():
            if file not in sources_of(self.executable):
                raise self.CollectError(f"{name} is in {file}, which no manifest names")
            if file == self.path.name:
                yield GoogleTest.from_parent(self, name=name)

    def verdict_on(self, test: GoogleTest) -> Verdict:
        """The verdict on one test; the first question runs all that are selected."""
        if not self._ran:
            self._ran = True
            selected = [
                item.filter_name
                for item in self.session.items
                if isinstance(item, GoogleTest) and item.program is self
            ]
            self.verdicts = run_program(self.executable, selected)
        return self.verdicts[test.filter_name]


class GoogleTest(pytest.Item):
    """One TEST of a GoogleTest program."""

    @property
    def program(self) -> Program:
        """The program that holds the test."""
        assert isinstance(self.parent, Program)
        return self.parent

    @property
    def filter_name(self) -> str:
        """The test's name as GoogleTest's filter knows it."""
        return self.name

    def runtest(self) -> None:
        verdict = self.program.verdict_on(self)
        if verdict.outcome == "skipped":
            pytest.skip(verdict.text.strip() or "skipped by the test")
        if verdict.outcome != "passed":
            raise ProgramFailure(verdict.text)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        return _explain(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.program.name}::{self.name}"


class Fuzzer(pytest.Item):
    """A fuzzer: replays its corpus, then looks for new inputs for a short time."""

    def __init__(self, *, entry: Entry, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self._entry = entry
        self.add_marker(pytest.mark.slow)

    def runtest(self) -> None:
        found = self._entry.executable.parent / "corpus" / self._entry.name
        found.mkdir(parents=True, exist_ok=True)
        kept = self._entry.source.parent / "corpus" / self._entry.name
        command = fuzzer_command(
            self._entry.executable, (found, kept), seconds=FUZZ_SECONDS
        )
        ended = run_to_end(command)
        if ended.status != 0:
            raise ProgramFailure(f"$ {' '.join(command)}\n{ended.explained()}")

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        return _explain(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class ProgramFailure(Exception):
    """A test program found a defect; the text is its report."""


def _explain(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    if isinstance(excinfo.value, ProgramFailure):
        return str(excinfo.value)
    return str(excinfo.getrepr(style="short"))


def read_listing(listing: dict[str, object]) -> dict[str, str]:
    """The full names in GoogleTest's list, without disabled tests, and the files they are in."""
    suites = listing["testsuites"]
    assert isinstance(suites, list)
    places = {
        f"{suite['name']}.{case['name']}": Path(case["file"]).name
        for suite in suites
        for case in suite["testsuite"]
    }
    return {name: file for name, file in places.items() if "DISABLED_" not in name}


def run_program(executable: Path, names: Sequence[str]) -> dict[str, Verdict]:
    """Runs the named tests of a program.

    One start gives all verdicts. If a test brings the program down, what ran before it is known
    from the output, the test has failed, and a new start goes on behind it.
    """
    verdicts: dict[str, Verdict] = {}
    rest = list(names)
    while rest:
        with tempfile.TemporaryDirectory(prefix="allod-gtest-") as scratch:
            result = Path(scratch) / "result.json"
            flagfile = Path(scratch) / "flags"
            # A filter may be longer than a command line allows.
            flagfile.write_text(f"--gtest_filter={':'.join(rest)}\n")
            ended = run_to_end(
                [
                    str(executable),
                    f"--gtest_flagfile={flagfile}",
                    f"--gtest_output=json:{result}",
                    "--gtest_color=no",
                ]
            )
            if result.exists() and ended.status in (0, 1):
                news = read_result(json.loads(result.read_text()), ended)
            else:
                news = read_output(ended, rest)
        verdicts.update(news)
        left = [name for name in rest if name not in verdicts]
        if len(left) == len(rest):
            text = f"The test did not run.\n{ended.explained()}"
            verdicts.update({name: Verdict("failed", text, 0.0) for name in left})
            break
        rest = left
    return verdicts


def read_result(result: dict[str, object], ended: Ended) -> dict[str, Verdict]:
    """Verdicts from GoogleTest's JSON report."""
    suites = result["testsuites"]
    assert isinstance(suites, list)
    verdicts: dict[str, Verdict] = {}
    for suite in suites:
        for case in suite["testsuite"]:
            if case["status"] != "RUN":
                continue
            name = f"{suite['name']}.{case['name']}"
            seconds = float(case["time"].removesuffix("s"))
            if case.get("failures"):
                outcome = "failed"
            elif case["result"] == "SKIPPED":
                outcome = "skipped"
            else:
                outcome = "passed"
            text = _output_of(ended.output, name)
            verdicts[name] = Verdict(outcome, text, seconds)
    if ended.status != 0 and all(v.outcome != "failed" for v in verdicts.values()):
        # The program failed after its tests: none of them can be trusted.
        text = f"The program failed although no test did.\n{ended.explained()}"
        return {name: Verdict("failed", text, 0.0) for name in verdicts}
    return verdicts


ENDING = re.compile(r"\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+?)(?:,.*)? \((\d+) ms\)")
OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}


def read_output(ended: Ended, names: Iterable[str]) -> dict[str, Verdict]:
    """Verdicts from the output of a program that did not live to report."""
    verdicts = {}
    for outcome, name, milliseconds in ENDING.findall(ended.output):
        text = _output_of(ended.output, name)
        verdicts[name] = Verdict(OUTCOMES[outcome], text, int(milliseconds) / 1000)
    for name in names:
        if name not in verdicts and f"[ RUN      ] {name}\n" in ended.output:
            text = _output_of(ended.explained(), name)
            verdicts[name] = Verdict("failed", text, 0.0)
    return verdicts


def _output_of(output: str, name: str) -> str:
    """What a test printed, from its start to its end."""
    after = output.split(f"[ RUN      ] {name}\n", 1)[-1]
    end = re.search(rf"\[\s+(?:OK|FAILED|SKIPPED)\s+\] {re.escape(name)}\b", after)
    return after[: end.start()] if end else after
