"""The library for musl, built on a system with another libc, and run by programs that are made for
musl: C programs of other folders, a static one, and CMake as it is published for such systems."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from allod.run import is_for_musl
from checks import symbols
from commands import ended
from surface.black_box import Case, Runner, cases_in
from workshop.build import PRESETS, ensure_built
from workshop.paths import ROOT, build_dir

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
BUILD = build_dir("musl")
LIBRARY = BUILD / "liballod.so"
SURFACE = ("alignment", "blocks", "limits", "queries")
# Where libc is more than a way to the system.
TRAPS = (
    "areas",
    "forks",
    "large_tls",
    "loader",
    "sequences",
    "signals",
    "surroundings",
    "threads",
)
NOT_HERE = {
    "group_of_96_mib": "needs a control group, and is about the kernel",
    "strict_overcommit": "changes the whole machine, and is about the kernel",
    # The library is in the environment of a program of the system's, which is for another libc.
    "exec_while_threads_allocate": "starts a program for glibc",
    "pipes_to_shells_while_threads_allocate": "starts a program for glibc",
    "spawn_while_threads_allocate": "starts a program for glibc",
    "vfork_and_exec_while_threads_allocate": "starts a program for glibc",
    "a_bare_child_registers_nothing": "musl has no function for it",
    "a_cpp_library_comes_and_goes_200_times": "needs libstdc++",
    "libraries_come_and_go_while_threads_allocate": "needs libstdc++",
    "thread_local_objects_of_a_cpp_library": "needs libstdc++",
    "a_library_comes_and_goes_1000_times": "with musl, a library never goes",
    "a_library_opens_others_by_its_own_path": "with musl, it has the program's alone",
    "a_second_namespace_has_its_own_heap": "musl has one namespace",
    "handlers_from_before_constructors_that_allocate": "musl calls nothing before these",
    "main_thread_ends_first": "hangs with musl's own malloc, too",
}
# Newer ones need a newer musl than Debian's.
CMAKE = "cmake==4.0.3"
DebianPackages = Callable[..., None]


@pytest.fixture(scope="module", autouse=True)
def _built(debian_packages: DebianPackages) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("cmake/musl.cmake is for x86-64")
    debian_packages("g++", "musl-tools", "googletest")
    ensure_built(PRESETS["musl"], tests=True)


def cases(folder: str, programs: tuple[str, ...]) -> list[ParameterSet]:
    def known(case: Case) -> ParameterSet:
        reason = NOT_HERE.get(case.name)
        marks = () if reason is None else pytest.mark.skip(reason=reason)
        return pytest.param(case, marks=marks, id=str(case))

    return [
        known(case) for case in cases_in(TESTS / folder) if case.program in programs
    ]


@pytest.mark.parametrize("case", cases("surface", SURFACE))
def test_surface(case: Case, tmp_path: Path) -> None:
    Runner(LIBRARY, BUILD / "tests/surface", tmp_path).holds(*case)


@pytest.mark.parametrize("case", cases("traps", TRAPS))
def test_trap(case: Case, tmp_path: Path) -> None:
    Runner(LIBRARY, BUILD / "tests/traps", tmp_path).holds(*case)


def test_what_is_left_out_is_there() -> None:
    known = {
        case.name
        for folder in ("surface", "traps")
        for case in cases_in(TESTS / folder)
    }
    assert known >= NOT_HERE.keys()


def test_a_static_program_runs() -> None:
    done = subprocess.run(
        [BUILD / "tests/musl/alone"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "20000 freed by another thread\n"


def test_the_library_exports_the_whole_surface_and_needs_libc() -> None:
    expected = symbols.expected_symbols(
        header=ROOT / "include" / "allod.h",
        names=ROOT / "tools" / "checks" / "symbols.txt",
    )
    # Nobody can be bound deeply there, but others may be initialised first.
    expected = expected - {"dlopen", "dlclose"} | {"pthread_atfork"}
    # The first two are what musl has at the start of each library.
    assert sorted(symbols.complaints(LIBRARY, expected)) == [
        "liballod.so exports _fini, which is not expected",
        "liballod.so exports _init, which is not expected",
        "liballod.so needs libc.so",
    ]


@pytest.fixture(scope="module")
def cmake() -> Path:
    """CMake in C++ for musl, from the Python package index, where Debian has no program for it."""
    folder = BUILD / "cmake"
    program = folder / "cmake" / "data" / "bin" / "cmake"
    if not program.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--platform", "musllinux_1_1_x86_64", "--only-binary=:all:"]
        done = ended(*command, "--dest", folder, CMAKE)
        if done.returncode != 0:
            pytest.skip(
                f"{CMAKE} cannot be had: {done.stderr.strip().splitlines()[-1]}"
            )
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()
        program.chmod(0o755)
    return program


def work(
    cmake: Path, folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    script = Path(__file__).with_name("work.cmake")
    return subprocess.run(
        [cmake, f"-DSOURCES={ROOT / 'src'}", "-P", script],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_real_program_does_the_same_work(cmake: Path, tmp_path: Path) -> None:
    usual = work(cmake, tmp_path / "usual")
    ours = work(cmake, tmp_path / "ours", LD_PRELOAD=str(LIBRARY), ALLOD_SHOW_STATS="1")
    assert ours.stdout == usual.stdout
    assert ours.stdout.count("\n") > 100
    assert "statistics of process" in ours.stderr


def test_the_recorder_stands_in_front_of_musls_malloc(
    cmake: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    recorder = str(BUILD / "liballod-record.so")
    work(cmake, tmp_path / "work", LD_PRELOAD=recorder, LIBALLOD_RECORD=str(trace))
    assert trace.stat().st_size > 100_000


def test_a_program_is_run_on_the_library_for_its_libc(cmake: Path) -> None:
    assert is_for_musl(cmake)
    assert not is_for_musl(Path(sys.executable))
