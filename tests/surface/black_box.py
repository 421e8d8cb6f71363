"""Programs of named cases, each case run in a process of its own on the library under test."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

CASE_SECONDS = 400.0
"""How long a case may run before it counts as hung."""

SKIPPED = 77
"""The exit status of a case that cannot be tried here; standard output says why."""

_CASE = re.compile(r"^CASE\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Case:
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


def run_case(
    program: Path,
    case: str,
    library: Path,
    directory: Path,
    options: Mapping[str, str] | None = None,
) -> str:
    """Runs one case, with options of the library besides the usual environment; fails or skips the
    test as the case does, and returns its output.

    A case that holds has also nothing to report: whatever the allocator writes to standard error
    is a failure.
    """
    variables = environment(library) | dict(options or {})
    result = run_program([program, case], variables, directory)
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    if result.returncode != 0 or "allod: " in result.stderr:
        pytest.fail(describe(result), pytrace=False)
    return result.stdout
