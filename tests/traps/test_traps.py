"""Programs that allocate where it is hard, each case on each preloadable library."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checks import symbols
from conftest import ControlGroup, DebianPackages
from surface.black_box import (
    Case,
    Runner,
    cases_in,
    describe,
    environment,
    listed_cases,
    run_program,
)

FOLDER = Path(__file__).parent
STRICT_OVERCOMMIT = Case("surroundings", "strict_overcommit")
MAPPINGS_OF_A_GIB = Case("mappings", "a_gibibyte_takes_two_mappings")
BESIDE_A_HOLE = Case("mappings", "blocks_beside_a_hole_merge")
FEW_MAPPINGS = Case("mappings", "a_process_that_is_short_of_mappings_gets_memory")
LIVE_BLOCKS = Case("mappings", "ten_mebibytes_are_live")
MEMORY_GROUP = Case("surroundings", "group_of_96_mib")
OVERCOMMIT_SETTING = Path("/proc/sys/vm/overcommit_memory")

ALL_CASES = cases_in(FOLDER)
DLOPENED_CASES = [case for case in ALL_CASES if case.program == "dlopened"]
# What can be had of a limited address space when sizes change: not on the debug library, which
# keeps a record of every block it ever handed out, and the hardened one is too far apart.
LIMIT_CASES = [
    case
    for case in ALL_CASES
    if case.program == "memory_limits"
    and case.name.endswith(
        ("_of_64_mib", "_of_256_mib", "_gib", "_by_the_program_itself")
    )
]
# Handlers at each instruction of the release library. The debug one takes too many, and so does the
# hardened one where it erases: each byte is a step.
HANDLER_CASES = [case for case in ALL_CASES if case.program == "handlers"]
# They are about the parts that all libraries share.
SEQUENCE_CASES = [case for case in ALL_CASES if case.program in ("areas", "sequences")]
PRELOADED_CASES = [
    case
    for case in ALL_CASES
    if case not in DLOPENED_CASES
    and case not in SEQUENCE_CASES
    and case not in LIMIT_CASES
    and case not in HANDLER_CASES
    and case not in (STRICT_OVERCOMMIT, MEMORY_GROUP)
    and case not in (MAPPINGS_OF_A_GIB, BESIDE_A_HOLE, FEW_MAPPINGS)
]


@pytest.mark.parametrize("case", PRELOADED_CASES, ids=str)
def test_trap(case: Case, preloaded: Runner) -> None:
    """The case holds on the preloaded library."""
    preloaded.holds(*case)


@pytest.mark.parametrize(
    "case",
    [case for case in PRELOADED_CASES if case.program in ("signals", "forks")],
    ids=str,
)
def test_trap_with_history(case: Case, hardened: Runner) -> None:
    """The case holds where the hardened library keeps records, with a lock for them."""
    hardened.holds(*case, ALLOD_HARDENED="all,history")


@pytest.mark.parametrize("case", HANDLER_CASES, ids=str)
def test_handlers(case: Case, release: Runner) -> None:
    """The case holds on the release library."""
    release.holds(*case)


def test_hardened_handlers(hardened: Runner) -> None:
    case = "handlers_while_a_huge_block_is_allocated"
    hardened.holds("handlers", case)


@pytest.mark.parametrize("case", SEQUENCE_CASES, ids=str)
def test_sequences(case: Case, release: Runner) -> None:
    """The case holds where the C library has registered threads for sequences, if it does."""
    release.holds(*case)


def test_sequences_in_areas_of_its_own(release: Runner) -> None:
    """Where the C library leaves that to others, the library registers threads itself."""
    case = "something_else_happens_at_each_instruction"
    release.holds("sequences", case, GLIBC_TUNABLES="glibc.pthread.rseq=0")


@pytest.mark.parametrize("case", LIMIT_CASES, ids=str)
def test_limit(case: Case, release: Runner) -> None:
    """The case holds on the release library."""
    release.holds(*case)


def test_limit_on_the_hardened_library(hardened: Runner) -> None:
    """Its memory lies at random addresses when the limit comes.

    What is left of slabs at random positions would stand in the way of blocks of megabytes.
    """
    usual = environment(hardened.library)["ALLOD_HARDENED"]
    case = "address_space_limited_by_the_program_itself"
    hardened.holds("memory_limits", case, ALLOD_HARDENED=f"{usual},-positions")


def test_limit_while_it_sweeps(hardened: Runner) -> None:
    """A sweep looks up any words in the page map."""
    case = "late_limit_of_addresses_while_threads_allocate"
    hardened.holds("memory_limits", case, ALLOD_HARDENED="all,sweep")


def test_late_limit_where_no_mappings_are_told(
    library: Path, programs: Path, tmp_path: Path
) -> None:
    """Without /proc, the page map of a process with threads stays whole, and nothing crashes."""
    hidden = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    hide = "mount -t tmpfs none /proc && exec "
    if subprocess.run(
        [*hidden, hide + "true"], check=False, capture_output=True
    ).returncode:
        pytest.skip("/proc cannot be hidden")
    case = "address_space_limited_while_a_thread_runs"
    variables = environment(library)
    preload = variables.pop("LD_PRELOAD")
    program = programs / "memory_limits"
    command: list[str | Path] = [
        *hidden,
        f"{hide}env LD_PRELOAD={preload} {program} {case}",
    ]
    result = run_program(command, variables, tmp_path)
    assert result.returncode == 0, describe(result)


def test_limit_without_random_addresses(release: Runner) -> None:
    """As under a debugger: mappings end where addresses do."""
    case = "address_space_limited_by_the_program_itself"
    fixed = ["setarch", "--addr-no-randomize"]
    if subprocess.run([*fixed, "true"], check=False, capture_output=True).returncode:
        pytest.skip("the system does not place a process at fixed addresses")
    release.behind(*fixed).run_well("memory_limits", case)


@pytest.mark.parametrize("case", DLOPENED_CASES, ids=str)
def test_dlopened(case: Case, library: Path, programs: Path, tmp_path: Path) -> None:
    """The case holds on the library when nothing is preloaded and the program opens it."""
    variables = environment(library)
    del variables["LD_PRELOAD"]
    variables["TEST_DLOPEN"] = variables.pop("TEST_LIBRARY")
    result = run_program([programs / case.program, case.name], variables, tmp_path)
    assert result.returncode == 0, describe(result)


def test_a_library_that_looks_in_libc_first_has_its_heap_on_request(
    release: Runner,
) -> None:
    """With the flag, its blocks are libc's, which ends the program for a block of ours."""
    case = "a_library_that_looks_in_libc_first_has_the_same_heap"
    result = release.run("loader", case, ALLOD_DEEPBIND="keep")
    assert result.returncode < 0, describe(result)


INTERPOSED_CASES = [
    Case("forks", "child_frees_blocks_of_every_thread"),
    *(case for case in ALL_CASES if case.program == "interposed"),
]


def run_interposed(case: Case, runner: Runner, **options: str) -> None:
    """Whatever the library calls of libc, another one stands before it and allocates."""
    both = f"{runner.programs / 'libinterposers.so'}:{runner.library}"
    result = runner.run_well(*case, **({"LD_PRELOAD": both} | options))
    assert result.stderr == "", describe(result)


@pytest.mark.parametrize("case", INTERPOSED_CASES, ids=str)
def test_functions_in_front_of_libc_may_allocate(case: Case, preloaded: Runner) -> None:
    run_interposed(case, preloaded)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CACHES", "thread"), ("CACHES", "processor"), ("PROFILE", "10000")],
)
def test_functions_in_front_of_libc_may_allocate_with_options(
    name: str, value: str, release: Runner
) -> None:
    case = Case("interposed", "threads_and_forks")
    run_interposed(case, release, **{f"ALLOD_{name}": value})


def test_functions_in_front_of_libc_may_allocate_beside_sweeps(
    hardened: Runner,
) -> None:
    """With other threads stopped, nobody would let go of a lock."""
    case = Case("interposed", "threads_and_forks")
    run_interposed(case, hardened, ALLOD_HARDENED="all,sweep,history,-origin")


def test_there_is_a_function_in_front_of_each_that_is_used(programs: Path) -> None:
    """But for those that only libgcc calls, and the one at the end of the process."""
    before = symbols.exported_symbols(programs / "libinterposers.so")
    functions = symbols.explained_imports()["functions"]
    assert functions - before == {"__cxa_finalize", "free", "malloc"}


FAKED = """
import time
for _ in range(3):
    blocks = [bytearray(900_000) for _ in range(64)]
    del blocks
    time.sleep(0.3)
print(time.time())
"""


def test_another_library_may_tell_the_time(
    library: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    """A helper thread has none of the thread-local variables that such a library uses."""
    debian_packages("libfaketime")
    (fake,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    variables = environment(library) | {"FAKETIME": "-15d"}
    variables["LD_PRELOAD"] += f":{fake}"
    result = run_program([sys.executable, "-c", FAKED], variables, tmp_path)
    assert result.returncode == 0, describe(result)
    assert 14 < (time.time() - float(result.stdout)) / 86400 < 16


def core_file_by_gdb(
    stop: str, start: str, program: Path, library: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Has a debugger write `core` where a program stops; no file may be larger than 400 MB."""
    commands = [
        "set startup-with-shell off",
        f"set environment LD_PRELOAD {library}",
        f"break {stop}",
        start,
        f"generate-core-file {folder / 'core'}",
        "kill",
    ]
    words = [word for command in commands for word in ("-ex", command)]
    gdb = ["prlimit", "--fsize=400000000", "gdb", "-nx", "-batch", *words]
    result = run_program([*gdb, program], dict(os.environ), folder)
    if "ptrace" in result.stdout + result.stderr:
        pytest.skip("nobody may look into programs here")
    assert "Saved corefile" in result.stdout, describe(result)
    return result


def test_a_debugger_writes_a_small_core_file(
    library: Path, programs: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    """It writes all that can be read, and the page map can, for every address there is."""
    debian_packages("gdb")
    result = core_file_by_gdb("main", "run", programs / "exits", library, tmp_path)
    assert "Failed to write" not in result.stderr, describe(result)


MIB = 1 << 20
MOST_IN_CORE_FILE = 20 * MIB
"""Of a program with 10 MiB in blocks of 1000 bytes. The debug library has records besides."""


def test_a_debugger_leaves_out_what_was_never_used(
    library: Path, programs: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    """A core file has what is live, and not what is only reserved for it."""
    debian_packages("gdb")
    program = programs / LIVE_BLOCKS.program
    start = f"run {LIVE_BLOCKS.name}"
    core_file_by_gdb("stand_here", start, program, library, tmp_path)
    assert 10 * MIB < (tmp_path / "core").stat().st_size < MOST_IN_CORE_FILE


def test_the_kernel_leaves_out_what_was_never_used(
    tmp_path: Path, preloaded: Runner
) -> None:
    """The same for a program that crashes."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()
    if pattern != "core":
        pytest.skip("core files go elsewhere here")
    limited = preloaded.behind("prlimit", "--core=unlimited")
    result = limited.run(*LIVE_BLOCKS, TEST_ABORT=1)
    cores = list(tmp_path.glob("core*"))
    assert len(cores) == 1, describe(result)
    assert 10 * MIB < cores[0].stat().st_blocks * 512 < MOST_IN_CORE_FILE


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("size", [64, 1000, 30_000, MIB, 100_000_000])
@pytest.mark.parametrize("huge_pages", ["16M", "never"])
def test_a_gibibyte_takes_two_mappings(
    huge_pages: str, size: int, threads: int, release: Runner
) -> None:
    """A process may have 65,530 of them, and a heap is to have many terabytes."""
    release.run_well(
        *MAPPINGS_OF_A_GIB,
        ALLOD_HUGE_PAGES=huge_pages,
        TEST_BYTES=size,
        TEST_THREADS=threads,
    )


def test_blocks_beside_a_hole_merge(release: Runner) -> None:
    """The hardened library has guards around each."""
    release.holds(*BESIDE_A_HOLE)


@pytest.mark.parametrize("left", [4, 30])
@pytest.mark.parametrize("size", [100, 1000, 30_000, 100_000, 1_000_000, 100_000_000])
def test_a_process_that_is_short_of_mappings_gets_memory(
    size: int, left: int, preloaded: Runner
) -> None:
    """As long as there is some, whatever else takes mappings has to give way."""
    preloaded.run_well(*FEW_MAPPINGS, TEST_BYTES=size, TEST_LEFT=left)


@pytest.mark.parametrize("program", sorted({case.program for case in ALL_CASES}))
def test_no_case_is_forgotten(program: str, programs: Path) -> None:
    """What the program lists is what its source defines, and so what is tested here."""
    defined = {case.name for case in ALL_CASES if case.program == program}
    assert listed_cases(programs / program) == defined


def test_memory_group(preloaded: Runner, control_group: ControlGroup) -> None:
    """A small live set of changing sizes is not killed for what the allocator keeps free."""
    preloaded.within(control_group(96 << 20)).run_well(*MEMORY_GROUP)


@pytest.fixture
def strict_overcommit() -> Iterator[None]:
    """Strict accounting for memory, on the whole machine, while the test runs."""
    if os.environ.get("ALLOD_TEST_MACHINE_SETTINGS") != "1":
        pytest.skip(
            "changes the whole machine: set ALLOD_TEST_MACHINE_SETTINGS=1 to allow that"
        )
    before = OVERCOMMIT_SETTING.read_text()
    sizes = {
        name: int(value.split()[0])
        for name, value in (
            line.split(":") for line in Path("/proc/meminfo").read_text().splitlines()
        )
    }
    if sizes["Committed_AS"] * 2 > sizes["CommitLimit"]:
        pytest.skip("the machine has promised too much memory for strict accounting")
    try:
        OVERCOMMIT_SETTING.write_text("2")
    except OSError as error:
        pytest.skip(f"cannot change the machine's setting: {error.strerror}")
    try:
        yield
    finally:
        OVERCOMMIT_SETTING.write_text(before)


def test_strict_overcommit(preloaded: Runner, strict_overcommit: None) -> None:
    """Where only promised memory counts, reservations promise nothing."""
    preloaded.run_well(*STRICT_OVERCOMMIT)
