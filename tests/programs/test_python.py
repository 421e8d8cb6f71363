"""The Python interpreter, with all its objects in malloc's hands."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides

PYTHON = Path("/usr/bin/python3")
EVERY_OBJECT_BY_MALLOC = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1"}
WHOLE_MODULES = (
    "test_array",
    "test_bytes",
    "test_ctypes",
    "test_deque",
    "test_dict",
    "test_fork1",
    "test_gc",
    "test_list",
    "test_mmap",
    "test_ordered_dict",
    "test_set",
    "test_thread",
    "test_threading_local",
    "test_unicode",
    "test_zlib",
)
MULTIPROCESSING_CASES = (
    *("*WithProcessesTestQueue*", "*WithProcessesTestPool*", "*WithThreadsTestPool*"),
    *("*WithProcessesTestLock*", "*WithProcessesTestArray*"),
)


def test_python_computes_the_same_in_objects_threads_and_processes(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("python3")

    def work(launcher: Launcher) -> str:
        finished = launcher.run(
            PYTHON, WORKLOADS / "objects.py", environment=EVERY_OBJECT_BY_MALLOC
        )
        launcher.check_allocator_of(PYTHON)
        return finished.text

    assert "spawned" in sides.agree_on(work)


@pytest.mark.slow
# With one library: they take the longest of all, and have deadlines of their own.
@pytest.mark.parametrize("preload", ["liballod"], indirect=True)
def test_python_passes_the_same_tests_of_its_own_regression_suite(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    version = PYTHON.resolve().name.removeprefix("python")
    debian_packages("python3", f"libpython{version}-testsuite")

    def regression(launcher: Launcher, *selection: str) -> Counter[tuple[str, str]]:
        report = launcher.directory / "report.xml"
        launcher.run(
            *(PYTHON, "-m", "test", "-j3", "--timeout=120"),
            *(f"--junit-xml={report}", *selection),
            environment=EVERY_OBJECT_BY_MALLOC,
        )
        return outcomes(report)

    def work(launcher: Launcher) -> Counter[tuple[str, str]]:
        cases = (part for case in MULTIPROCESSING_CASES for part in ("--match", case))
        # With the C library's own malloc, too: this one fails where it draws an empty text (its
        # reference finds no empty pattern there), and the next hangs now and then.
        random = ("--ignore", "*.test_find_periodic_pattern")
        results = regression(launcher, *random, *WHOLE_MODULES)
        hanging = ("--ignore", "*Pool.test_terminate")
        results += regression(launcher, *cases, *hanging, "test_multiprocessing_fork")
        launcher.check_allocator_of(PYTHON)
        return results

    agreed = sides.agree_on(work)
    assert sum(agreed[key] for key in agreed if key[1] == "passed") > 2000


def outcomes(report: Path) -> Counter[tuple[str, str]]:
    """How often each test case of a JUnit report passed, failed or was skipped."""
    return Counter(
        (case.get("name", ""), next((child.tag for child in case), "passed"))
        for case in ElementTree.parse(report).iter("testcase")
    )
