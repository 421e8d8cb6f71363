"""The library for each of the processors that came later: cross-compiled, and run by an emulator,
or natively for 32-bit x86.

Every test run builds liballod.so for each, and runs what depends on the processor: the ends of
`size_t` and a short load, and the units of the lowest layer for one with 32 bits and one that is
big-endian. `./allod test --only ports` builds all products and runs everything else.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from arm64.emulator import TOO_LONG
from long_runs import shortly
from surface.black_box import SKIPPED, Case, cases_in, describe
from workshop.build import PRESETS, ensure_built, ensure_target_built
from workshop.packages import PackagesUnavailable, ensure_packages

from ports.emulators import MACHINES, PACKAGES, Machine

pytestmark = pytest.mark.slow
long_run = pytest.mark.long_run

TESTS = Path(__file__).parents[1]


def is_usual(machine: Machine) -> bool:
    """32 bits, or the other order of bytes. arm64 has a weak order and large pages as well."""
    return machine.name in ("i386", "s390x")


each_machine = pytest.mark.parametrize("machine", shortly(MACHINES, is_usual), ids=str)
Ended = subprocess.CompletedProcess[str]
Run = tuple[Machine, str, Case]

# The C libraries of cross compilers have no conversions between character sets.
LACKING = {"character_sets"}
SURFACE = ("alignment", "blocks", "libc", "operators", "queries", "symbols")
LAYERS = (
    *("unit_base", "unit_bytes", "unit_heap", "unit_parts", "unit_slab", "unit_space"),
    *("model_sequences", "model_shared", "model_threads"),
    *("tailored_model", "tailored_threads"),
)


def runs(folder: str, *programs: str) -> list[Run]:
    """The cases of some programs of a folder of tests, on each machine."""
    return [
        (machine, folder, case)
        for machine in MACHINES
        for case in cases_in(TESTS / folder)
        if case.program in programs and case.name not in TOO_LONG | LACKING
    ]


def name_of(run: Run) -> str:
    machine, _, case = run
    return f"{machine}-{case}"


@functools.cache
def built(machine: Machine) -> None:
    """Installs what is missing and builds; skips where that cannot be done."""
    if platform.machine() != "x86_64":
        pytest.skip("for machines of another kind")
    try:
        ensure_packages(PACKAGES)
        ensure_built(PRESETS[machine.name], tests=True)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


@functools.cache
def built_all(machine: Machine) -> None:
    """The same for what only a run of these tests alone needs."""
    built(machine)
    ensure_target_built(PRESETS[machine.name], "ports_all_tests")


def run_case(run: Run, directory: Path) -> Ended:
    machine, folder, case = run
    return machine.run(
        machine.build / "tests" / folder / case.program,
        case.name,
        directory=directory,
        preloaded=machine.library,
        variables={"ALLOD_PURGE_DELAY": "20"} if folder == "ports" else None,
    )


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Run, Future[Ended]]]:
    """What becomes of all selected cases, which run beside each other: each starts slowly."""
    selected: list[tuple[Run, bool]] = [
        (item.callspec.params["run"], item.function is test_surface)  # type: ignore[misc]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function in (test_case, test_surface)
    ]
    for run, is_long in selected:
        (built_all if is_long else built)(run[0])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            run: pool.submit(run_case, run, tmp_path_factory.mktemp("case"))
            for run, _ in selected
        }
        pool.shutdown(cancel_futures=True)


def check(result: Ended) -> None:
    """The case holds, and the library has nothing to report."""
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    if result.returncode != 0 or "allod: " in result.stderr:
        pytest.fail(describe(result), pytrace=False)


@pytest.mark.parametrize(
    "run",
    shortly(
        [*runs("ports", "machine"), *runs("surface", "limits")],
        lambda run: is_usual(run[0]),
    ),
    ids=name_of,
)
def test_case(run: Run, results: dict[Run, Future[Ended]]) -> None:
    check(results[run].result())


@long_run
@pytest.mark.parametrize(
    "run",
    [*runs("surface", *SURFACE), *runs("traps", "signals", "threads")],
    ids=name_of,
)
def test_surface(run: Run, results: dict[Run, Future[Ended]]) -> None:
    check(results[run].result())


# The heaps of a program's tests keep their addresses, of which 32 bits have too few for all.
HALVES = {"model_threads": ("*can_be_asked*", "-*can_be_asked*")}


def run_units(machine: Machine, program: str, directory: Path) -> None:
    for part in HALVES.get(program, ("*",)):
        done = machine.run(
            machine.build / "tests" / program,
            f"--gtest_filter={part}",
            directory=directory,
            with_own_pages=False,
        )
        assert done.returncode == 0, describe(done)


@pytest.mark.parametrize(
    "machine", [machine for machine in MACHINES if is_usual(machine)], ids=str
)
def test_units_of_the_lowest_layer(machine: Machine, tmp_path: Path) -> None:
    built(machine)
    run_units(machine, "unit_base", tmp_path)


@long_run
@pytest.mark.parametrize("program", LAYERS)
@each_machine
def test_layers(machine: Machine, program: str, tmp_path: Path) -> None:
    built_all(machine)
    run_units(machine, program, tmp_path)


def payload(
    machine: Machine,
    directory: Path,
    *load: int,
    library: str = "liballod.so",
    **variables: str,
) -> None:
    """Threads pass blocks on and end; every byte is verified. With one thread, it forks, too: see
    test_arm64.py."""
    done = machine.run(
        machine.build / "tests" / "stress" / "payload",
        *(*map(str, load), *(["unforked"] if load[1] > 1 else [])),
        directory=directory,
        preloaded=machine.build / library,
        variables=variables,
    )
    check(done)


@each_machine
def test_payload(machine: Machine, tmp_path: Path) -> None:
    built(machine)
    payload(machine, tmp_path, 1, 1, 1000)
    payload(machine, tmp_path, 2, 3, 1000)


@long_run
@pytest.mark.parametrize("load", [(1, 1, 20000), (2, 2, 20000), (3, 8, 5000)], ids=str)
@each_machine
def test_long_payload(
    machine: Machine, load: tuple[int, int, int], tmp_path: Path
) -> None:
    built_all(machine)
    payload(machine, tmp_path, *load)


@long_run
@each_machine
def test_a_static_program_runs(machine: Machine, tmp_path: Path) -> None:
    """The object that replaces malloc at link time, where nothing can be loaded."""
    built_all(machine)
    check(machine.run(machine.build / "tests" / "ports" / "alone", directory=tmp_path))


@long_run
@pytest.mark.parametrize("variant", ["debug", "hardened"])
@each_machine
def test_payload_on_other_libraries(
    machine: Machine, variant: str, tmp_path: Path
) -> None:
    library = f"liballod-{variant}.so"
    if library not in PRESETS[machine.name].products:
        pytest.skip(f"there is no {library}")
    built_all(machine)
    payload(machine, tmp_path, 1, 1, 2000, library=library)
    payload(machine, tmp_path, 2, 3, 1000, library=library)


@long_run
@each_machine
def test_payload_with_guarded_samples(machine: Machine, tmp_path: Path) -> None:
    built_all(machine)
    payload(machine, tmp_path, 4, 2, 2000, ALLOD_GUARD_SAMPLE="50")


@long_run
@each_machine
def test_the_debug_library_reports_a_double_free(
    machine: Machine, tmp_path: Path
) -> None:
    """With the stacks of both, by libgcc's unwinder."""
    built_all(machine)
    done = machine.run(
        *(machine.build / "tests" / "death" / "misuse", "double_free_at_once"),
        directory=tmp_path,
        preloaded=machine.build / "liballod-debug.so",
        variables={"TEST_SIZE": "100"},
    )
    assert done.returncode == -signal.SIGABRT, describe(done)
    assert "allod: error: double free of 0x" in done.stderr, describe(done)
    assert len(re.findall(r"^allod: +#0 0x", done.stderr, re.MULTILINE)) == 3, describe(
        done
    )


@long_run
@each_machine
def test_statistics_are_json(machine: Machine, tmp_path: Path) -> None:
    built_all(machine)
    done = machine.run(
        *(machine.build / "tests" / "stress" / "payload", "5", "1", "500"),
        directory=tmp_path,
        preloaded=machine.library,
        variables={"ALLOD_SHOW_STATS": "json", "ALLOD_STATS_FILE": "stats.json"},
    )
    assert done.returncode == 0, describe(done)
    json.loads((tmp_path / "stats.json").read_text())


@each_machine
def test_an_option_for_what_is_absent_says_so(machine: Machine, tmp_path: Path) -> None:
    """In one line, and the program goes on."""
    built(machine)
    program = machine.build / "tests" / "ports" / "machine"
    for option, value in (("CACHES", "processor"), ("LIVE", "1")):
        done = machine.run(
            *(program, "pages_are_as_large_as_the_system_says"),
            directory=tmp_path,
            preloaded=machine.library,
            variables={f"ALLOD_{option}": value},
        )
        lines = [line for line in done.stderr.splitlines() if "allod: " in line]
        assert done.returncode == 0, describe(done)
        assert len(lines) == 1, describe(done)
        told = f"allod: warning: ALLOD_{option}={value} has no effect: Allod has no "
        assert lines[0].startswith(told), describe(done)


@each_machine
def test_a_profile_is_text_with_the_programs_stacks(
    machine: Machine, tmp_path: Path
) -> None:
    """The file is the same on every processor, whatever the order of bytes."""
    built(machine)
    file = tmp_path / "profile"
    done = machine.run(
        *(
            machine.build / "tests" / "ports" / "machine",
            "addresses_of_nobody_are_foreign",
        ),
        directory=tmp_path,
        preloaded=machine.library,
        variables={"ALLOD_PROFILE": "1", "ALLOD_PROFILE_FILE": str(file)},
    )
    check(done)
    assert file.read_text().startswith("heap profile: "), describe(done)


@each_machine
def test_the_library_is_for_the_processor(machine: Machine) -> None:
    """And needs nothing but the C library: its machine, byte order and width are in its head."""
    built(machine)
    head = machine.library.read_bytes()[:20]
    width = {1: 32, 2: 64}[head[4]]
    order = {1: "<", 2: ">"}[head[5]]
    number = struct.unpack(f"{order}H", head[18:20])[0]
    expected = {
        "i386": (32, "<", 3),
        "armhf": (32, "<", 40),
        "s390x": (64, ">", 22),
        "riscv64": (64, "<", 243),
        "ppc64le": (64, "<", 21),
    }
    assert (width, order, number) == expected[machine.name]
    readelf = f"{machine.triple}-readelf"
    assert shutil.which(readelf) is not None
    needed = subprocess.run(
        [readelf, "--dynamic", machine.library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = set(re.findall(r"NEEDED\).*\[(.*)\]", needed))
    assert names <= {"libc.so.6", *re.findall(r"ld\S*\.so\.\d", needed)}, names
