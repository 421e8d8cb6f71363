"""Programs that have to have one thread, by the Python of a Debian release that looks for it.

Since 3.12 Python counts its threads at each fork, and warns where there is more than one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from workshop.debian_root import STABLE, ensure_root
from workshop.packages import PackagesUnavailable

from .launcher import WORKLOADS, Argument, DebianPackages, Launcher, Sides
from .test_python import EVERY_OBJECT_BY_MALLOC, outcomes

PYTHON = "python3.13"
HOST_PYTHON = Path("/usr/bin/python3")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the release, or the test is skipped."""
    try:
        return ensure_root(STABLE)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


def within(root: Path, launcher: Launcher, *command: Argument) -> list[Argument]:
    """The command in the root, where the library and the workloads are as well."""
    shared = launcher.directory.parent.parent
    return [
        *("bwrap", "--bind", root, "/", "--proc", "/proc", "--dev", "/dev"),
        *("--tmpfs", "/tmp", "--bind", shared, shared),
        *("--ro-bind", WORKLOADS, "/mnt", *command),
    ]


def test_python_has_one_thread_after_a_fork_and_for_namespaces(
    sides: Sides, debian_packages: DebianPackages, root: Path
) -> None:
    debian_packages("bubblewrap")

    def work(launcher: Launcher) -> tuple[str, str]:
        python: tuple[Argument, ...] = (PYTHON, "-W", "always", "/mnt/alone.py")
        finished = launcher.run(
            *within(root, launcher, *python), environment=EVERY_OBJECT_BY_MALLOC
        )
        launcher.check_allocator_of(PYTHON)
        return finished.text, finished.errors

    text, errors = sides.agree_on(work)
    assert text.splitlines() == [*["fork 1 1"] * 4, "own 1", "entered 1", "ended -9"]
    assert errors == ""


@pytest.mark.slow
@pytest.mark.parametrize("preload", ["liballod"], indirect=True)
def test_python_passes_its_own_tests_of_threads(
    sides: Sides, debian_packages: DebianPackages, root: Path
) -> None:
    debian_packages("bubblewrap")

    def work(launcher: Launcher) -> Counter[tuple[str, str]]:
        report = launcher.directory / "report.xml"
        tests: tuple[Argument, ...] = (
            *(PYTHON, "-m", "test", "--timeout=120"),
            *(f"--junit-xml={report}", "test_threading"),
        )
        launcher.run(*within(root, launcher, *tests))
        launcher.check_allocator_of(PYTHON)
        return outcomes(report)

    agreed = sides.agree_on(work)
    assert sum(agreed[key] for key in agreed if key[1] == "passed") > 150


def test_bubblewrap_makes_a_sandbox(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("bubblewrap", "python3")
    program = "import os; print(os.getpid(), sum(range(10**5)))"

    def work(launcher: Launcher) -> str:
        shared = launcher.directory.parent.parent
        finished = launcher.run(
            *("bwrap", "--ro-bind", "/", "/", "--unshare-user", "--unshare-pid"),
            *("--unshare-ipc", "--unshare-uts", "--proc", "/proc", "--dev", "/dev"),
            *("--bind", shared, shared, "--", HOST_PYTHON, "-c", program),
            environment=EVERY_OBJECT_BY_MALLOC,
        )
        launcher.check_allocator_of("bwrap", HOST_PYTHON)
        return finished.text

    assert sides.agree_on(work) == "2 4999950000\n"
