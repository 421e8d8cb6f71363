"""Programs of named cases, each case run in a process of its own on the library under test."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

CASE_SECONDS = 400.0
"""How long a case may run before it counts as hung."""

SKIPPED = 77
"""The exit status of a case that cannot be tried here; standard output says why."""

_CASE = re.compile(r"^CASE\((\w+)\)", re.MULTILINE)


class Case(NamedTuple):
    """A case of a program, known from the program's source before anything is built."""

    program: str
    name: str

    def __str__(self) -> str:
        return f"{self.program}-{self.name}"


def cases_in(folder: Path) -> list[Case]:
    """Every case of every program whose source is in the folder."""
    sources = [
        path for path in sorted(folder.iterdir()) if path.suffix in (".c", ".cpp")
    ]
    return [
        Case(source.stem, name)
        for source in sources
        for name in _CASE.findall(source.read_text(encoding="utf-8"))
    ]


def listed_cases(program: Path) -> set[str]:
    """Every case that the built program says it has."""
    listed = subprocess.run(
        [program, "--list"], check=True, capture_output=True, text=True
    )
    return set(listed.stdout.split())


def environment(library: Path) -> dict[str, str]:
    """The environment in which a program runs on the library, with no option set.

    But for one: many cases free by another family of functions than they allocated by, to see
    that the families share a heap. That is what the hardened library would stop.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ALLOD_")
    }
    if "hardened" in library.name:
        kept["ALLOD_HARDENED"] = "-origin"
    return kept | {"LD_PRELOAD": str(library), "TEST_LIBRARY": str(library)}


def run_program(
    command: list[str | Path],
    variables: Mapping[str, str],
    directory: Path,
    group: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. One that hangs is killed with all that it started.

    With a control group, the process is in it from the start.
    """

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    with subprocess.Popen(
        command,
        env=dict(variables),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=enter if group is not None else None,
    ) as process:
        try:
            output, errors = process.communicate(timeout=CASE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            pytest.fail(f"{command} hangs\n{output}{errors}", pytrace=False)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def describe(result: subprocess.CompletedProcess[str]) -> str:
    """What a program did, for the report of a failure."""
    how = f"ended with status {result.returncode}"
    if result.returncode < 0:
        how = f"was killed by {signal.Signals(-result.returncode).name}"
    command = " ".join(str(word) for word in result.args)
    return f"{command} {how}\n{result.stdout}{result.stderr}"


@dataclass(frozen=True)
class Runner:
    """Runs the programs of one folder of tests on one library."""

    library: Path
    programs: Path
    directory: Path
    """Where the programs run."""
    launcher: tuple[str | Path, ...] = ()
    """The command that starts the programs, with the library preloaded as well."""
    group: Path | None = None
    """The control group that the programs are in."""

    def behind(self, *command: str | Path) -> Runner:
        """One whose programs a command starts."""
        return replace(self, launcher=command)

    def of(self, folder: str) -> Runner:
        """One for the programs of another folder of tests."""
        return replace(self, programs=self.programs.with_name(folder))

    def within(self, group: Path) -> Runner:
        """One whose programs are in a control group."""
        return replace(self, group=group)

    def run(
        self, program: str, *words: str | Path, **variables: object
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program with more variables in its environment; skips the test if it does."""
        command = [*self.launcher, self.programs / program, *words]
        given = environment(self.library)
        given |= {name: str(value) for name, value in variables.items()}
        result = run_program(command, given, self.directory, self.group)
        if result.returncode == SKIPPED:
            pytest.skip(result.stdout.strip())
        return result

    def run_well(
        self, program: str, *words: str | Path, **variables: object
    ) -> subprocess.CompletedProcess[str]:
        """The same, for a program that must end well."""
        result = self.run(program, *words, **variables)
        if result.returncode != 0:
            pytest.fail(describe(result), pytrace=False)
        return result

    def holds(self, program: str, *words: str | Path, **variables: object) -> str:
        """The output of a program that must end well, and about which there is nothing to report:
        whatever the allocator writes to standard error is a failure."""
        result = self.run_well(program, *words, **variables)
        if "allod: " in result.stderr:
            pytest.fail(describe(result), pytrace=False)
        return result.stdout
