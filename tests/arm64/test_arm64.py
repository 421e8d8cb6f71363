"""The library for arm64, cross-compiled and run by an emulator, with pages of each size."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks import budgets, symbols
from surface.black_box import SKIPPED, Case, cases_in, describe
from workshop.build import PRESETS, ensure_built
from workshop.packages import PackagesUnavailable, ensure_packages
from workshop.paths import ROOT

from arm64.emulator import (
    DEBUG_LIBRARY,
    LIBRARY,
    PACKAGES,
    PROGRAMS,
    TOO_LONG,
    TOO_LONG_TO_DEBUG,
    abilities,
    run_emulated,
)

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
SMALL, MIDDLE, LARGE = 4096, 16384, 65536
# What cases need of the system. The probe asks for all of it.
NEEDS = {
    "character_sets": "character_sets",
    "handler_that_frees_memory_lets_new_succeed": "address_space_limit",
    "memory_goes_back_while_idle": "dontneed_gives_zeros",
}
Ended = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Run:
    """A case of a program, on a library, with pages of a size."""

    library: Path
    page_size: int
    folder: str
    case: Case

    def __str__(self) -> str:
        return f"{self.case}-{self.library.stem}-{self.page_size}"


def runs(library: Path, page_size: int, folder: str, *programs: str) -> list[Run]:
    """The cases of some programs of a folder of tests, but for those that take too long."""
    left_out = TOO_LONG | (TOO_LONG_TO_DEBUG if library == DEBUG_LIBRARY else set())
    return [
        Run(library, page_size, folder, case)
        for case in cases_in(TESTS / folder)
        if case.program in programs and case.name not in left_out
    ]


SURFACE = ("alignment", "blocks", "libc", "limits", "operators", "queries", "symbols")
# Everything with the largest pages, and with the others what depends on them most.
RUNS = [
    *runs(LIBRARY, LARGE, "arm64", "machine"),
    *runs(LIBRARY, LARGE, "ports", "machine"),
    *runs(LIBRARY, LARGE, "surface", *SURFACE),
    *runs(LIBRARY, LARGE, "traps", "signals", "threads"),
    *runs(LIBRARY, MIDDLE, "arm64", "machine"),
    *runs(LIBRARY, MIDDLE, "ports", "machine"),
    *runs(LIBRARY, MIDDLE, "surface", "alignment", "limits"),
    *runs(LIBRARY, SMALL, "arm64", "machine"),
    *runs(LIBRARY, SMALL, "ports", "machine"),
    *runs(LIBRARY, SMALL, "surface", "alignment", "limits"),
    *runs(DEBUG_LIBRARY, LARGE, "surface", "queries"),
]


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """Installs what is missing and builds; skips where that cannot be done."""
    if platform.machine() != "x86_64":
        pytest.skip("for machines of another kind; the other groups test this one")
    try:
        ensure_packages(PACKAGES)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    ensure_built(PRESETS["arm64"], tests=True)


def need_pages(page_size: int) -> None:
    """Skips the test where the emulator has no pages of this size."""
    found = abilities(page_size).get("page_size")
    if found != page_size:
        pytest.skip(f"the emulator has pages of {found} bytes, not of {page_size}")


def run_one(run: Run, directory: Path) -> Ended:
    """Runs one case."""
    program = PROGRAMS / run.folder / run.case.program
    return run_emulated(
        run.page_size,
        program,
        run.case.name,
        directory=directory,
        library=run.library,
        variables={"ALLOD_PURGE_DELAY": "20"} if run.folder == "ports" else None,
    )


@pytest.fixture(scope="module")
def results(
    _built: None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Run, Future[Ended]]]:
    """What becomes of all selected cases, which run beside each other: each starts slowly."""
    selected: list[Run] = [
        item.callspec.params["run"]  # type: ignore[misc]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_case
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            run: pool.submit(run_one, run, tmp_path_factory.mktemp("case"))
            for run in selected
            if abilities(run.page_size).get("page_size") == run.page_size
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("page_size", [SMALL, MIDDLE, LARGE])
def test_the_emulator_has_the_pages(page_size: int) -> None:
    """What is tested with larger pages is tested with them."""
    need_pages(page_size)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_case(run: Run, results: dict[Run, Future[Ended]]) -> None:
    """The case holds, and the library has nothing to report."""
    need_pages(run.page_size)
    ability = NEEDS.get(run.case.name)
    if ability is not None and not abilities(run.page_size)[ability]:
        pytest.skip(f"the emulator lacks: {ability}")
    result = results[run].result()
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    if result.returncode != 0 or "allod: " in result.stderr:
        pytest.fail(describe(result), pytrace=False)


@pytest.mark.parametrize("load", [(1, 1, 20000), (2, 2, 20000), (3, 8, 5000)], ids=str)
@pytest.mark.parametrize("page_size", [SMALL, LARGE])
def test_payload(load: tuple[int, int, int], page_size: int, tmp_path: Path) -> None:
    """Threads pass blocks on, fork and end; every byte is verified.

    In a child of a program with threads, the emulator may wait for a lock of its own that another
    thread held at the fork: in 1 of 80 runs. So only a thread alone forks.
    """
    need_pages(page_size)
    program = PROGRAMS / "stress" / "payload"
    arguments = [*map(str, load), *(["unforked"] if load[1] > 1 else [])]
    result = run_emulated(
        page_size, program, *arguments, directory=tmp_path, library=LIBRARY
    )
    assert result.returncode == 0, describe(result)
    assert "allod: " not in result.stderr, describe(result)


def test_a_static_program_runs(tmp_path: Path) -> None:
    """The object that replaces malloc at link time, where nothing can be loaded."""
    result = run_emulated(SMALL, PROGRAMS / "arm64" / "alone", directory=tmp_path)
    assert result.returncode == 0, describe(result)


def test_memory_is_asked_for_and_given_back_in_whole_pages(tmp_path: Path) -> None:
    """The system refuses parts of pages; the emulator, whose own pages are small, does not."""
    need_pages(LARGE)
    result = run_emulated(
        LARGE,
        PROGRAMS / "stress" / "payload",
        *("1", "1", "8000"),
        directory=tmp_path,
        library=LIBRARY,
        variables={"ALLOD_PURGE_DELAY": "0"},
        options=("-strace",),
    )
    assert result.returncode == 0, describe(result)
    calls = ours(result.stderr)
    assert {name for name, _, _ in calls} >= {"mmap", "mprotect", "madvise"}
    assert [call for call in calls if call[1] % LARGE or call[2] % LARGE] == []


def ours(trace: str) -> list[tuple[str, int, int]]:
    """Calls on the library's memory: name, address and length. It alone reserves addresses."""
    call = re.compile(
        r"\b(mmap|mprotect|madvise|munmap)\((0x[0-9a-f]+|NULL),(\d+)(.*?)\) = (0x[0-9a-f]+)?"
    )
    found = []
    mapped: list[range] = []
    for name, first, length, rest, result in call.findall(trace):
        if name == "mmap" and "MAP_NORESERVE" in rest and result:
            address = int(result, 16)
            mapped.append(range(address, address + int(length)))
        elif first != "NULL" and any(int(first, 16) in memory for memory in mapped):
            address = int(first, 16)
        else:
            continue
        found.append((name, address, int(length)))
    return found


def test_fast_paths_keep_their_budgets() -> None:
    rules = budgets.read_budgets(budgets.BUDGETS_ARM64)
    assert {"malloc", "free", "_ZdlPvm", "malloc_usable_size"} <= rules.keys()
    found = budgets.measure(LIBRARY, rules)
    assert [complaint for one in found for complaint in one.complaints] == []


@pytest.mark.parametrize(
    ("body", "complaints"),
    [
        ("cbz x0, 1f\nldr x1, [x0]\nstr x1, [x0, #8]\nret\n1: ret", []),
        (
            "ldr x1, [x0]\nldr x2, [x1, #8]\nadd x2, x2, #1\nstr x2, [x0, #8]\nret",
            ["malloc: 5 instructions, budget 4"],
        ),
        (
            "str x0, [x0]\nstp x29, x30, [sp, #-16]!\nret",
            ["malloc: uses the stack: stp x29, x30, [sp, #-16]!"],
        ),
        # Not a fast path: an atomic operation by a call.
        ("tbz w0, #3, 1f\nbl elsewhere\nstr x0, [x0]\nret\n1: str x0, [x0]\nret", []),
    ],
)
def test_a_path_that_costs_too_much_is_found(
    body: str, complaints: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "function.s"
    source.write_text(
        f".globl malloc\n.type malloc, @function\nmalloc:\n{body}\n.size malloc, .-malloc\n"
    )
    library = tmp_path / "function.so"
    compiler = "aarch64-linux-gnu-gcc"
    subprocess.run(
        [compiler, "-shared", "-nostdlib", "-o", library, source], check=True
    )
    rules: budgets.Rules = {"malloc": {"at_most": 4, "path": "shortest"}}
    (finding,) = budgets.measure(library, rules)
    assert finding.complaints == complaints


def test_the_library_exports_the_whole_surface_and_needs_libc() -> None:
    expected = symbols.expected_symbols(
        header=ROOT / "include" / "allod.h",
        names=ROOT / "tools" / "checks" / "symbols.txt",
    )
    assert list(symbols.complaints(LIBRARY, expected)) == []
