"""Blocks on pages of their own: what goes wrong is a fault with a report, or a report of a free."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from surface.black_box import Runner, describe, environment, run_program

from death.reports import Misuse, Outcome, Scene, check_numbering, run

ALL = {"GUARD_SAMPLE": "1"}
ALLOCATING = "allocating_function"
FREEING = "freeing_function"
MISUSING = "misusing_function"
ACCESSING = "accessing_function"
SIZES = (16, 100, 1000, 4096)
PAGE = 4096

HEX = r"0x[0-9a-f]+"
FRAMES = rf"(?:allod:     #\d+ {HEX}(?: \S+\+{HEX})? \([^\n]+\+{HEX}\)\n)*"


def event(what: str, function: str, scene: Scene, thread: str = "main_thread") -> str:
    """A call stack that begins in the program, with this function."""
    where = rf"\({re.escape(str(scene.program))}\+{HEX}\)"
    first = rf"allod:     #0 {HEX} {function}\+{HEX} {where}\n"
    return f"allod:   {what} by thread {scene.facts[thread]}:\n{first}{FRAMES}"


def place(scene: Scene, size: int, where: str = "") -> str:
    """The line that names the block."""
    return f"allod:   {where}guarded block {scene.facts['block']:#x} of {size} bytes\n"


def about(
    headline: str,
    size: int,
    *,
    distance: int = 0,
    where: str = "",
    freed_by: str = "",
    culprit: tuple[str, str] = ("this access", ACCESSING),
    by: str = "main_thread",
) -> Callable[[Scene], str]:
    """A report about the block that the case has told of."""

    def text(scene: Scene) -> str:
        freed = event("freed", FREEING, scene, freed_by) if freed_by else ""
        return (
            scene.headline(headline, scene.facts["block"] + distance)
            + place(scene, size, where)
            + event("allocated", ALLOCATING, scene)
            + freed
            + event(*culprit, scene, by)
        )

    return text


def late(offset: int) -> Callable[[Scene], str]:
    """The use of a block of 100 bytes that was freed."""
    where = f"{offset} bytes into " if offset else ""
    return about(
        "access after free to",
        100,
        distance=offset,
        where=where,
        freed_by="main_thread",
    )


def fatal(outcome: Outcome, text: str) -> None:
    """The process must have died as a fault lets it die, with nothing but the text."""
    assert re.fullmatch(text, outcome.errors), outcome.description
    check_numbering(outcome.errors)
    assert outcome.status == -signal.SIGSEGV, outcome.description


@pytest.fixture
def program(programs: Path) -> Path:
    """The program of the cases."""
    return programs / "guarded"


def faults() -> Iterator[Misuse]:
    """Accesses to blocks that are free, behind blocks and before them."""
    for offset in (0, 50, 99):
        given = {"SIZE": 100, "OFFSET": offset}
        yield Misuse("guarded", "access_after_free", late(offset), given)
    by_another = about("access after free to", 64, freed_by="thread")
    case = "access_after_free_by_another_thread"
    yield Misuse("guarded", case, by_another, {"SIZE": 64})
    long_ago = about("access after free to", 64, freed_by="main_thread")
    given = {"SIZE": 64, "BETWEEN": 100}
    yield Misuse("guarded", "access_after_free_long_ago", long_ago, given)
    given = {"SIZE": 100, "OFFSET": 1}
    yield Misuse("guarded", "a_handler_of_the_program_passes_on", late(1), given)
    for size in (16, 64, 1008):
        for offset in (0, 500):
            where = f"{offset} bytes past the end of "
            headline = "access past the end at"
            text = about(headline, size, distance=size + offset, where=where)
            given = {"SIZE": size, "OFFSET": offset}
            yield Misuse("guarded", "access_past_the_end", text, given)
    for distance in (2 * PAGE, 5 * PAGE, 101 * PAGE, 102 * PAGE):
        where = f"{distance - 100} bytes past the end of "
        text = about("access past the end at", 100, distance=distance, where=where)
        given = {"SIZE": 100, "OFFSET": distance}
        yield Misuse("guarded", "access_far_past_the_end", text, given)
    for size in SIZES:
        for offset in (1, 500):
            where = f"{offset} bytes before "
            headline = "access before the start at"
            text = about(headline, size, distance=-offset, where=where)
            given = {"SIZE": size, "OFFSET": offset}
            yield Misuse("guarded", "access_before_the_start", text, given)


def calls() -> Iterator[Misuse]:
    """Frees of what is free, of addresses in blocks, and of blocks that were overrun."""

    def second_free(
        size: int, function: str, by: str = "main_thread"
    ) -> Callable[[Scene], str]:
        headline, culprit = "double free of", ("this call", function)
        return about(headline, size, freed_by="main_thread", culprit=culprit, by=by)

    for size in SIZES:
        text = second_free(size, MISUSING)
        yield Misuse("misuse", "double_free_at_once", text, {"SIZE": size})
    text = second_free(100, MISUSING, "thread")
    yield Misuse("misuse", "double_free_by_another_thread", text, {"SIZE": 100})

    def after_realloc(scene: Scene) -> str:
        return (
            scene.headline("double free of", scene.facts["block"])
            + place(scene, 100)
            + event("allocated", ALLOCATING, scene)
            + event("freed", "reallocating_function", scene)
            + event("this call", MISUSING, scene)
        )

    yield Misuse("misuse", "double_free_after_realloc", after_realloc, {"SIZE": 100})
    text = second_free(100, "misusing_realloc")
    given = {"SIZE": 100, "NEW_SIZE": 300}
    yield Misuse("misuse", "realloc_of_a_freed_block", text, given)
    culprit = ("this call", MISUSING)
    for offset in (1, 16):
        where = f"{offset} bytes into "
        headline = "invalid free of"
        text = about(headline, 100, distance=offset, where=where, culprit=culprit)
        given = {"SIZE": 100, "OFFSET": offset}
        yield Misuse("misuse", "free_of_an_address_in_a_block", text, given)
    for case, headline, offsets in (
        ("write_behind_a_block_at_the_start", "write past the end of", (0, 3000)),
        ("write_before_a_block_at_the_end", "write before the start of", (1, 3000)),
    ):
        text = about(headline, 100, culprit=culprit)
        for offset in offsets:
            yield Misuse("guarded", case, text, {"SIZE": 100, "OFFSET": offset})


@pytest.mark.parametrize("misuse", [*faults()], ids=str)
def test_fault(misuse: Misuse, release: Runner) -> None:
    """The report tells who allocated, who freed and who accesses; then the signal ends it."""
    outcome = run(release, "guarded", misuse.case, misuse.parameters, ALL)
    fatal(outcome, misuse.expected(outcome.scene))


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("misuse", [*calls()], ids=str)
def test_call(misuse: Misuse, goes_on: bool, release: Runner) -> None:
    """A wrong free is reported as all are, and with ALLOD_ABORT_ON_ERROR=0 has no effect."""
    options = ALL | ({"ABORT_ON_ERROR": "0"} if goes_on else {})
    misuse.check(release, options, death=not goes_on)


def test_fault_beside_the_profile(release: Runner) -> None:
    """A block may be both kinds of sample."""
    options = ALL | {"PROFILE": "100"}
    parameters = {"SIZE": 100, "OFFSET": 3}
    outcome = run(release, "guarded", "access_after_free", parameters, options)
    fatal(outcome, late(3)(outcome.scene))


def test_fault_in_a_child(release: Runner) -> None:
    """A child reports what its parent has allocated and freed, and the parent goes on."""
    case = "access_after_free_in_a_child"
    outcome = run(release, "guarded", case, {"SIZE": 100}, ALL)
    text = about("access after free to", 100, freed_by="main_thread", by="child")
    outcome.expect(text(outcome.scene), death=False)


@pytest.mark.parametrize("address", [0, 0x1234_5000])
def test_other_faults_are_not_explained(address: int, release: Runner) -> None:
    """What is no guard dies as it would."""
    parameters = {"ADDRESS": address}
    fatal(run(release, "guarded", "a_fault_elsewhere", parameters, ALL), "")


def test_a_signal_that_was_sent_ends_the_process(release: Runner) -> None:
    """It comes again when nobody handles it."""
    fatal(run(release, "guarded", "a_signal_from_outside", {}, ALL), "")


def test_an_ignored_signal_that_was_sent_changes_nothing(release: Runner) -> None:
    """Faults are reported afterwards as before."""
    ignoring = release.behind("env", "--ignore-signal=SEGV")
    case = "a_signal_from_outside_and_an_access_after_free"
    outcome = run(ignoring, "guarded", case, {"SIZE": 100, "OFFSET": 5}, ALL)
    outcome.expect_end(signal.SIGSEGV, "access after free to", offset=5)


@pytest.mark.parametrize("is_hardened", [False, True])
def test_the_process_ends_where_the_access_would_succeed_after_the_report(
    is_hardened: bool, release: Runner, hardened: Runner
) -> None:
    """Another thread has got the block while the report was written."""
    case = "a_block_is_handed_out_during_the_report"
    runner = hardened if is_hardened else release
    size = 1 << 20 if is_hardened else 100
    options = {} if is_hardened else ALL | {"GUARD_SLOTS": "16"}
    outcome = run(runner, "guarded", case, {"SIZE": size}, options)
    assert outcome.status == -signal.SIGSEGV, outcome.description
    assert not outcome.survived


@pytest.mark.parametrize(
    "case", ["guarded_blocks_are_like_others", "a_handler_of_the_program_goes_on"]
)
@pytest.mark.parametrize("slots", ["1", "7", "192"])
def test_nothing_to_report(case: str, slots: str, release: Runner) -> None:
    """The program does not see that a block is guarded, nor that the pages run out."""
    options = ALL | {"GUARD_SLOTS": slots}
    run(release, "guarded", case, {}, options).expect("", death=False)


ELSEWHERE = [
    # The system does not empty pages, and every other guarded block is used again.
    ("traps", "filters", "madvise_is_invalid"),
    # Nothing of ours leads to a block.
    ("profile", "profile", "leaks_are_found_between_two_calls"),
    ("traps", "forks", "several_threads_fork_at_once"),
    ("surface", "alignment", "aligned_blocks_can_be_reallocated"),
]


@pytest.mark.parametrize(("folder", "name", "case"), ELSEWHERE)
def test_programs_hold_with_many_guards(
    folder: str, name: str, case: str, release: Runner
) -> None:
    """Every third allocation is guarded, as long as there are pages."""
    options = {"ALLOD_GUARD_SAMPLE": 3, "ALLOD_GUARD_SLOTS": 100}
    release.of(folder).holds(name, case, **options)


def test_the_pages_are_bounded(release: Runner) -> None:
    """As many blocks are guarded as there are pages, and the rest are usual ones."""
    options = ALL | {"GUARD_SLOTS": "40"}
    outcome = run(release, "guarded", "a_bounded_number_is_guarded", {}, options)
    outcome.expect("", death=False)
    # A few are the program's own, or usual blocks that lie at the end of a page.
    assert 30 <= outcome.scene.facts["guarded"] <= 56


def test_report_for_programs(release: Runner) -> None:
    """One line of JSON, with all three stacks."""
    options = ALL | {"SHOW_ERRORS": "0", "REPORT_FD": "2"}
    given = {"SIZE": 100, "OFFSET": 5}
    outcome = run(release, "guarded", "access_after_free", given, options)
    report = json.loads(outcome.errors)
    block = int(report["block"], 16)
    assert report["kind"] == "access_after_free"
    assert report["guarded"] is True
    assert int(report["address"], 16) == block + 5
    assert report["block_bytes"] == 100
    assert report["allocating_thread"] == report["freeing_thread"] == report["thread"]
    assert report["allocated_at"]
    assert report["freed_at"]
    assert report["stack"]
    program = str(outcome.scene.program)
    assert program in [file["path"] for file in report["files"]]


def test_code_of_no_file_lies_in_none_of_a_report(release: Runner) -> None:
    """Its address is not below the end of the file whose base is before it."""
    options = ALL | {"SHOW_ERRORS": "0", "REPORT_FD": "2"}
    case = "access_after_free_by_code_of_its_own"
    outcome = run(release, "guarded", case, {"SIZE": 100}, options)
    report = json.loads(outcome.errors)
    ranges = [(int(file["base"], 16), int(file["end"], 16)) for file in report["files"]]
    code = int(report["stack"][0], 16)
    assert code == outcome.scene.facts["code"]
    assert not any(base <= code < end for base, end in ranges)
    for address in (int(frame, 16) - 1 for frame in report["allocated_at"]):
        assert any(base <= address < end for base, end in ranges)


@pytest.mark.parametrize("is_script", [False, True])
def test_a_report_names_the_program_by_what_was_executed(
    is_script: bool, program: Path, liballod: Path, tmp_path: Path
) -> None:
    """Not by the name that it was called by, which is any text; nor by a script's name."""
    case = "access_after_free"
    script = tmp_path / case
    script.write_text(f"#!{program}\n")
    script.chmod(0o700)
    variables = environment(liballod) | {
        "ALLOD_GUARD_SAMPLE": "1",
        "ALLOD_REPORT_FD": "1",
        "TEST_SIZE": "100",
        "TEST_OFFSET": "5",
        "PATH": "",  # the script is found in the directory, and passed by its name
    }
    result = subprocess.run(
        [case] if is_script else ["/bin/sh", case],
        executable=case if is_script else program,
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(result.stdout.splitlines()[-1])
    paths = [file["path"] for file in report["files"]]
    assert str(program) in paths
    assert not {"/bin/sh", case} & set(paths)
    assert " main+" in result.stderr
    assert f" ({program}+0x" in result.stderr


HARDENED_FAULTS = [
    ("access_after_free", "access after free to", 10 << 20, 5000, "free"),
    ("access_after_free", "access after free to", 200 << 10, 5000, "free"),
    (
        "access_past_the_end_of_a_large_block",
        "access past the end at",
        10 << 20,
        5000,
        "in use",
    ),
]


@pytest.mark.parametrize("measures", ["all", "all,history"])
@pytest.mark.parametrize(
    ("case", "headline", "size", "offset", "state"), HARDENED_FAULTS
)
def test_fault_in_the_hardened_library(
    measures: str,
    case: str,
    headline: str,
    size: int,
    offset: int,
    state: str,
    hardened: Runner,
) -> None:
    """Its own guards are explained as well, as far as it knows a block's past."""
    parameters = {"SIZE": size, "OFFSET": offset}
    options = {"HARDENED": measures}
    outcome = run(hardened, "guarded", case, parameters, options)
    distance = offset + (size if "past" in case else 0)
    at = outcome.scene.facts["block"] + distance
    text = (
        outcome.scene.headline(headline, at)
        + rf"allod:   \d+ bytes into block {HEX} of [^\n]+\n"
        + outcome.scene.requested(state, size)
        + (outcome.scene.history(state) if "history" in measures else "")
        + event("this access", ACCESSING, outcome.scene)
    )
    fatal(outcome, text)


@pytest.mark.parametrize("measures", ["all", "all,history"])
def test_access_to_a_block_of_no_bytes(measures: str, hardened: Runner) -> None:
    """There is no memory that it could have."""
    parameters = {"SIZE": 0, "OFFSET": 0}
    options = {"HARDENED": measures}
    outcome = run(hardened, "guarded", "access_after_free", parameters, options)
    text = (
        outcome.scene.headline(
            "access to a block of no bytes at", outcome.scene.facts["block"]
        )
        + "allod:   the address is in no block now\n"
        + (outcome.scene.history("free") if "history" in measures else "")
        + event("this access", ACCESSING, outcome.scene)
    )
    fatal(outcome, text)


def with_allod_in_it(
    source: str, flags: list[str], build_dir: Path, directory: Path
) -> Path:
    """A program of this folder that Allod is linked into."""
    path = Path(__file__).with_name(source)
    program = directory / path.stem
    allod = build_dir / "allod.o"
    subprocess.run(
        ["cc", "-O1", "-g", *flags, str(path), str(allod), "-o", str(program)],
        check=True,
        capture_output=True,
    )
    return program


@pytest.mark.parametrize("flags", [[], ["-static"], ["-static-pie"]], ids=" ".join)
def test_every_size_is_guarded_in_a_program_with_the_allocator_in_it(
    flags: list[str], build_dir: Path, tmp_path: Path
) -> None:
    """Also one that libc has allocated before the program's start, and that of Allod."""
    program = with_allod_in_it("sizes.c", flags, build_dir, tmp_path)
    options = {"ALLOD_GUARD_SAMPLE": "1", "ALLOD_GUARD_SLOTS": "1000"}
    variables = environment(program) | options
    del variables["LD_PRELOAD"]
    result = run_program([program], variables, tmp_path)
    assert result.returncode == 0, describe(result)


@pytest.mark.parametrize(
    "flags",
    [[], ["-no-pie"], ["-static", "-Wl,--eh-frame-hdr"], ["-static-pie"]],
    ids=" ".join,
)
def test_the_program_is_not_taken_for_the_allocator_in_it(
    flags: list[str], build_dir: Path, tmp_path: Path
) -> None:
    """A program that Allod is linked into has its own functions in the stacks of a report.

    Allod's come first there, as nobody can tell them apart. Functions that are not exported have
    no names in a report, so they are looked up, as its reader would, by the addresses in it.
    """
    program = with_allod_in_it("inside.c", flags, build_dir, tmp_path)
    variables = environment(program) | {"ALLOD_GUARD_SAMPLE": "1"}
    del variables["LD_PRELOAD"]
    result = run_program([program], variables, tmp_path)
    assert "double free of" in result.stderr, describe(result)
    stacks = re.split(r"allod:   (?:allocated|freed|this call) by .*\n", result.stderr)
    functions = [ALLOCATING, FREEING, MISUSING]
    for stack, function in zip(stacks[1:], functions, strict=True):
        places = re.findall(rf" \({re.escape(str(program))}\+({HEX})\)", stack)
        found = subprocess.check_output(
            ["addr2line", "-f", "-e", program, *places], text=True
        )
        names = found.splitlines()[::2]
        assert function in names, f"{names}\n{describe(result)}"
        assert names.index(function) < names.index("main"), describe(result)
