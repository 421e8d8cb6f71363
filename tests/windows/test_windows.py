"""The library for Windows, built by mingw-w64 and run by Wine: the layers below the C interface,
the DLL, and the static libraries."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from options.table import OPTIONS
from workshop.build import PRESETS, ensure_built
from workshop.paths import ROOT, build_dir

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PORTABLE = HERE.parent / "bsd" / "portable"
BUILD = build_dir("windows")
LAYERS = (
    "windows_platform",
    "windows_parts",
    "windows_space",
    "windows_base",
    "windows_threads",
)
# Each program, with the source that has its cases.
PROGRAMS = {
    "windows_api": PORTABLE / "api.c",
    "windows_api_static": PORTABLE / "api.c",
    "windows_operators": PORTABLE / "operators.cpp",
    "windows_malloc": HERE / "malloc.c",
    "windows_new": PORTABLE / "operators.cpp",
}
# What ends with an error, and what it says.
REPORTS = {
    "double_free": r"allod: error: double free of 0x[0-9a-f]+",
    "invalid_free": (
        r"allod: error: invalid free of 0x[0-9a-f]+, 1048576 bytes into a block of \d+ bytes"
    ),
}
ABORTED = 3
DebianPackages = Callable[..., None]


@pytest.fixture(scope="module", autouse=True)
def _built(debian_packages: DebianPackages) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the library for Windows is for x86-64")
    debian_packages("g++-mingw-w64-x86-64-posix", "googletest", "wine", "wine64")
    ensure_built(PRESETS["windows"], tests=True)


def run(
    program: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. Wine keeps its state in a folder of the build."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ALLOD_", "WINE"))}
    kept.pop("DISPLAY", None)
    wine = {
        "WINEPREFIX": str(BUILD / "wine"),
        "WINEDEBUG": "-all",
        # Neither looks for add-ons in the network nor starts a debugger.
        "WINEDLLOVERRIDES": "mscoree,mshtml,winedbg.exe=",
    }
    return subprocess.run(
        ["wine", program, *arguments],
        env=kept | wine | variables,
        cwd=BUILD,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )


def cases_of(source: Path) -> list[str]:
    """The names of the cases in a source."""
    return re.findall(r'^ +\{"(\w+)", \w+\},$', source.read_text(), re.M)


@pytest.mark.parametrize("program", LAYERS)
def test_the_layers(program: str) -> None:
    done = run(BUILD / "tests" / f"{program}.exe", "--gtest_brief=1")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "PASSED" in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(program: str) -> None:
    cases = [case for case in cases_of(PROGRAMS[program]) if case not in REPORTS]
    if program == "windows_operators":
        # The DLL has no C++ runtime.
        cases.remove("too_much_throws")
    done = run(BUILD / f"{program}.exe", *cases)
    assert done.returncode == 0, done.stdout + done.stderr
    # The last one may end with other threads still at work.
    assert [line for line in done.stdout.split() if line in cases] == cases
    assert "allod:" not in done.stderr


def test_a_program_that_was_not_built_with_it() -> None:
    *cases, last = cases_of(HERE / "unaware.c")
    assert last == "the_status_is_passed_on"
    done = run(BUILD / "allod-run.exe", "windows_unaware.exe", *cases, last)
    assert done.stdout.split() == cases, done.stderr
    assert done.returncode == 42


def test_a_program_of_the_system_runs_on_it() -> None:
    done = run(
        BUILD / "allod-run.exe",
        *("cmd", "/c", "echo", "hello"),
        ALLOD_SHOW_STATS="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["hello"]
    assert re.search(r"^live +\d", done.stderr, re.M), done.stderr


def test_a_program_that_is_not_there_is_told() -> None:
    done = run(BUILD / "allod-run.exe", "no_such_program.exe")
    assert done.returncode == 127
    assert "allod-run: no such program" in done.stderr


@pytest.mark.parametrize("case", REPORTS)
def test_a_mistake_is_reported_and_ends_the_process(case: str) -> None:
    done = run(BUILD / "windows_api.exe", case)
    assert done.returncode == ABORTED
    assert re.search(REPORTS[case], done.stderr), done.stderr
    calm = run(BUILD / "windows_api.exe", case, ALLOD_ABORT_ON_ERROR="0")
    assert calm.returncode == 0, calm.stderr
    assert re.search(REPORTS[case], calm.stderr), calm.stderr


def test_statistics_are_printed_at_the_end() -> None:
    done = run(BUILD / "windows_api.exe", "options", ALLOD_SHOW_STATS="1")
    assert done.returncode == 0
    assert re.search(r"^live +\d", done.stderr, re.M), done.stderr


def test_help_lists_the_options_that_there_are() -> None:
    done = run(BUILD / "windows_api.exe", "options", ALLOD_HELP="1")
    assert "ALLOD_PURGE_DELAY=milliseconds, 0 or -1  (default: 500)" in done.stderr
    assert "ALLOD_PROFILE" not in done.stderr


def test_every_other_option_says_that_it_is_absent() -> None:
    help_text = run(BUILD / "windows_api.exe", "options", ALLOD_HELP="1").stderr
    present = set(re.findall(r"^ +ALLOD_(\w+)=", help_text, re.M))
    known = {name.removeprefix("ALLOD_") for name in OPTIONS}
    absent = known - present
    assert absent and present <= known
    variables = {f"ALLOD_{name}": "1" for name in absent}
    done = run(BUILD / "windows_api.exe", "options", **variables)
    told = set(
        re.findall(r"ALLOD_(\w+) is ignored; Windows does not have", done.stderr)
    )
    assert told == absent, done.stderr


def test_an_unknown_option_is_told() -> None:
    done = run(
        BUILD / "windows_api.exe",
        "options",
        ALLOD_PURGE_DALEY="1",
        ALLOD_REGION_SIZE="7",
    )
    assert "unknown option ALLOD_PURGE_DALEY is ignored" in done.stderr
    assert "ALLOD_REGION_SIZE=7 is ignored; expected bytes, 1M to 64G" in done.stderr


def test_the_dll_exports_functions_of_the_header_and_no_others() -> None:
    listed = (ROOT / "cmake" / "allod.def").read_text().split("EXPORTS", 1)[1].split()
    declared = re.findall(
        r"\b(allod_\w+)\(", (ROOT / "include" / "allod.h").read_text()
    )
    assert set(listed) <= set(declared)
    dump = subprocess.run(
        ["x86_64-w64-mingw32-objdump", "-p", BUILD / "allod.dll"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exported = re.findall(r"^\s+\[ *\d+\].* (allod_\w+)$", dump, re.M)
    assert sorted(exported) == sorted(listed)
    needed = set(re.findall(r"DLL Name: (\S+)", dump))
    assert {name.lower() for name in needed} <= {
        "advapi32.dll",
        "kernel32.dll",
        "msvcrt.dll",
    }


@pytest.mark.parametrize(("function", "on_linux"), [("malloc", 13), ("free", 19)])
def test_a_fast_path_has_four_instructions_more_at_most(
    function: str, on_linux: int
) -> None:
    dump = subprocess.run(
        ["x86_64-w64-mingw32-objdump", "-d", "--no-show-raw-insn", BUILD / "allod.dll"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    body = dump.split(f"<allod_{function}>:\n", 1)[1].split("\n\n", 1)[0].splitlines()
    # Up to the first return: the compiler puts the common path first.
    common = [line.split("\t")[1].split()[0] for line in body]
    assert common.index("ret") + 1 <= on_linux + 4
