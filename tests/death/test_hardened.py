"""The hardened library sees what a program does to the heap, and says what and where."""

from __future__ import annotations

import itertools
import json
import mmap
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from surface.black_box import CASE_SECONDS

from death.reports import (
    FOREIGN_ADDRESSES,
    FREE,
    GONE,
    NOT_OURS,
    REALLOC,
    Misuse,
    Outcome,
    Scene,
    run,
)

KIB, MIB = 1 << 10, 1 << 20

SIZES = {
    30: 48,
    100: 112,
    400: 416,
    1000: 1024,
    40_000: 40_960,
    600_000: 655_360,
    10 * MIB: 10 * MIB + 64 * KIB,
}
"""From what is asked for to what the heap gives for it and a word: from each kind of block one."""

SMALL = [size for size in SIZES if size < 32 * KIB]
MISUSED = (FREE, "misusing_function")
MODEL_SEEDS = range(1, 9)

with_light_guards = pytest.mark.skipif(
    [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]] < [6, 13],
    reason="Linux before 6.13 has guards behind some slabs only",
)
MODEL_OPERATIONS = 20_000


def about(
    headline: str,
    size: int,
    *,
    state: str = "in use",
    offset: int = 0,
    more: str = "",
    misused: tuple[str, str] = MISUSED,
    thread: str = "",
    may_be_gone: bool = False,
    with_history: bool = False,
) -> Callable[[Scene], str]:
    """A report about a block that the case has told of."""

    def text(scene: Scene) -> str:
        place = scene.place(SIZES[size], offset=offset) + scene.requested(state, size)
        return (
            scene.headline(headline, scene.facts["block"] + offset)
            + (f"(?:{place}|{GONE})" if may_be_gone else place)
            + more
            + (scene.history(state) if with_history else "")
            + scene.event("this call", *misused, thread=thread)
        )

    return text


def somewhere(headline: str, where: str, name: str) -> Callable[[Scene], str]:
    """A report about an address that is no block."""

    def text(scene: Scene) -> str:
        return (
            scene.headline(headline, scene.facts[name])
            + where
            + scene.event("this call", *MISUSED)
        )

    return text


def misuse_of_blocks_with_history() -> Iterator[Misuse]:
    """Blocks in use and free ones, of each kind."""
    for size in SIZES:
        given = {"SIZE": size}
        second = about("double free of", size, state="free", with_history=True)
        yield Misuse("misuse", "double_free_at_once", second, given)
        elsewhere = about(
            "double free of", size, state="free", thread="thread", with_history=True
        )
        yield Misuse("misuse", "double_free_by_another_thread", elsewhere, given)
        overflow = about("write past the end of", size, with_history=True)
        behind = given | {"OFFSET": 0}
        yield Misuse("overruns", "write_behind_a_block", overflow, behind)
        inside = about("invalid free of", size, offset=16, with_history=True)
        at_16 = given | {"OFFSET": 16}
        yield Misuse("misuse", "free_of_an_address_in_a_block", inside, at_16)
    by_a_child = about("double free of", 100, state="free", with_history=True)
    yield Misuse("misuse", "double_free_in_a_child", by_a_child, {"SIZE": 100})
    for size in SMALL:
        late = about(
            "write after free to", size, state="free", offset=1, with_history=True
        )
        given = {"SIZE": size, "OFFSET": 1}
        yield Misuse("overruns", "write_after_free", late, given)


def double_frees() -> Iterator[Misuse]:
    """Each size, at each moment: in quarantine, behind it, from anywhere."""
    for size in SIZES:
        given = {"SIZE": size}
        second = about("double free of", size, state="free")
        yield Misuse("misuse", "double_free_at_once", second, given)
        # A large block that others have driven out of quarantine may not be a block any more.
        later = about("double free of", size, state="free", may_be_gone=size > MIB // 2)
        yield Misuse("misuse", "double_free_after_other_frees", later, given)
        # A block above 4 MiB moves with its pages, and its old place is nobody's.
        if size < 4 * MIB:
            yield Misuse("misuse", "double_free_after_realloc", later, given)
        elsewhere = about("double free of", size, state="free", thread="thread")
        yield Misuse("misuse", "double_free_by_another_thread", elsewhere, given)
        resizing = (REALLOC, "misusing_realloc")
        resized = about("double free of", size, state="free", misused=resizing)
        for new_size in (size, 3 * size):
            new = {"NEW_SIZE": new_size}
            yield Misuse("misuse", "realloc_of_a_freed_block", resized, given | new)
    for size in SMALL:
        later = about("double free of", size, state="free")
        given = {"SIZE": size}
        yield Misuse("overruns", "double_free_after_the_quarantine", later, given)
    empty = somewhere("double free of", GONE, "block")
    yield Misuse("overruns", "double_free_of_a_block_of_no_bytes", empty)


def invalid_frees() -> Iterator[Misuse]:
    """Addresses in blocks, behind the last block, and of others."""
    for size in SIZES:
        for offset in (1, 16, size // 2, size - 1):
            text = about("invalid free of", size, offset=offset)
            given = {"SIZE": size, "OFFSET": offset}
            yield Misuse("misuse", "free_of_an_address_in_a_block", text, given)
    text = somewhere("invalid free of", GONE, "address")
    for size, blocks, bytes_each in ((100, 585, 112), (150, 372, 176), (300, 186, 352)):
        end = {"SIZE": size, "OFFSET": blocks * bytes_each}
        yield Misuse("misuse", "free_of_the_end_of_a_slab", text, end)
    for case, parameters in FOREIGN_ADDRESSES:
        foreign = somewhere("free of foreign address", NOT_OURS, "address")
        yield Misuse("misuse", case, foreign, parameters)


def wrong_writes() -> Iterator[Misuse]:
    """Behind blocks, before them, and into free ones."""
    for size in SIZES:
        for offset in (0, 1, 7):
            text = about("write past the end of", size)
            given = {"SIZE": size, "OFFSET": offset}
            yield Misuse("overruns", "write_behind_a_block", text, given)
            changed = "write_behind_a_block_that_has_changed_a_little"
            yield Misuse("overruns", changed, text, given)
        resizing = (REALLOC, "misusing_realloc")
        text = about("write past the end of", size, misused=resizing)
        given = {"SIZE": size}
        yield Misuse("overruns", "write_behind_a_block_that_is_resized", text, given)
        asking = ("malloc_usable_size", "asking_for_usable_size")
        text = about("write past the end of", size, misused=asking)
        yield Misuse(
            "overruns", "write_behind_a_block_that_is_asked_about", text, given
        )
    for size in SMALL:
        for offset in (1, 8):
            text = about("write past the end of", size)
            given = {"SIZE": size, "CLASS": SIZES[size], "OFFSET": offset}
            yield Misuse("overruns", "write_before_a_block", text, given)
        for offset in (0, size // 2, size - 1):
            text = about("write after free to", size, state="free", offset=offset)
            given = {"SIZE": size, "OFFSET": offset}
            yield Misuse("overruns", "write_after_free", text, given)
    # In a page that nobody has touched before.
    text = about("write after free to", 40_000, state="free", offset=20_000)
    given = {"SIZE": 40_000, "OFFSET": 20_000}
    yield Misuse("overruns", "write_after_free", text, given)


def about_no_bytes(
    headline: str, more: str, misused: tuple[str, str], *, claimed: str = ""
) -> Callable[[Scene], str]:
    """A report about a block of no bytes."""

    def text(scene: Scene) -> str:
        return (
            scene.headline(headline, scene.facts["block"])
            + f"allod:   block {scene.facts['block']:#x} of 0 bytes\n"
            + claimed
            + scene.requested("in use", 0)
            + more
            + scene.event("this call", *misused)
        )

    return text


BY_ORIGIN = "allod:   found by the measure origin of ALLOD_HARDENED\n"


RESIZED = ("realloc", "misusing_realloc")


def wrong_functions() -> Iterator[Misuse]:
    """Every family with another's free."""
    for case, allocated, freed, misused in (
        ("new_and_free", "operator new", "free or realloc", MISUSED),
        ("new_and_realloc", "operator new", "free or realloc", RESIZED),
        ("malloc_and_delete", "malloc", "operator delete", ("_ZdlPv", "using_delete")),
        (
            "new_and_array_delete",
            "operator new",
            r"operator delete\[\]",
            ("_ZdaPv", "using_array_delete"),
        ),
        (
            "array_new_and_delete",
            r"operator new\[\]",
            "operator delete",
            ("_ZdlPv", "using_delete"),
        ),
    ):
        more = f"allod:   allocated by {allocated}, freed by {freed}\n" + BY_ORIGIN
        for size in (30, 600_000):
            text = about(
                "free with the wrong function of", size, more=more, misused=misused
            )
            yield Misuse("overruns", case, text, {"SIZE": size})
        empty = about_no_bytes("free with the wrong function of", more, misused)
        yield Misuse("overruns", case, empty, {"SIZE": 0})


def wrong_sizes() -> Iterator[Misuse]:
    """Sized deletes, with less and more than was asked for."""
    for claimed in (0, 99, 101, 112, 5000):
        for case, function in (
            ("sized_delete_with_the_wrong_size", "function_with_sized_delete"),
            (
                "sized_array_delete_with_the_wrong_size",
                "function_with_sized_array_delete",
            ),
        ):
            entry = "_ZdaPvm" if "array" in case else "_ZdlPvm"

            def text(
                scene: Scene,
                claimed: int = claimed,
                misused: tuple[str, str] = (entry, function),
            ) -> str:
                return (
                    scene.headline("free with the wrong size of", scene.facts["block"])
                    + scene.place(112)
                    + f"allod:   the caller says {claimed} bytes\n"
                    + scene.requested("in use", 100)
                    + BY_ORIGIN
                    + scene.event("this call", *misused)
                )

            yield Misuse("deletes", case, text, {"SIZE": 100, "CLAIMED": claimed})
    by_size = ("_ZdlPvm", "function_with_sized_delete")
    said = "allod:   the caller says 1 bytes\n"
    empty = about_no_bytes(
        "free with the wrong size of", BY_ORIGIN, by_size, claimed=said
    )
    given = {"SIZE": 0, "CLAIMED": 1}
    yield Misuse("deletes", "sized_delete_with_the_wrong_size", empty, given)


MISUSES = [
    *double_frees(),
    *invalid_frees(),
    *wrong_writes(),
    *wrong_functions(),
    *wrong_sizes(),
]


@pytest.fixture
def programs(build_dir: Path) -> Path:
    """The folder of the programs."""
    return build_dir / "tests" / "death"


@pytest.mark.parametrize("misuse", MISUSES, ids=str)
def test_report(
    misuse: Misuse, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """The report, and nothing else, is on standard error, and the process is aborted."""
    program = programs / misuse.program
    outcome = run(
        program, misuse.case, liballod_hardened, tmp_path, misuse.parameters, ALL
    )
    outcome.expect(misuse.expected(outcome.scene), death=True)


@pytest.mark.parametrize("misuse", [*misuse_of_blocks_with_history()], ids=str)
def test_report_with_history(
    misuse: Misuse, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Where the history is kept, the report tells who allocated the block and who freed it."""
    program = programs / misuse.program
    given, options = misuse.parameters, {"HARDENED": "all,history"}
    outcome = run(program, misuse.case, liballod_hardened, tmp_path, given, options)
    outcome.expect(misuse.expected(outcome.scene), death=True)


@pytest.mark.parametrize("misuse", MISUSES[::3], ids=str)
def test_program_goes_on(
    misuse: Misuse, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """With ALLOD_ABORT_ON_ERROR=0 there is one report, and the heap stays in order."""
    outcome = run(
        programs / misuse.program,
        misuse.case,
        liballod_hardened,
        tmp_path,
        misuse.parameters,
        ALL | {"ABORT_ON_ERROR": "0"},
    )
    outcome.expect(misuse.expected(outcome.scene), death=False)


ALL = {"HARDENED": "all"}


@pytest.mark.parametrize("offset", [0, 29])
def test_write_after_free_is_seen_at_the_end(
    offset: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """What the main thread has in quarantine is looked at when the process ends."""
    outcome = run(
        programs / "overruns",
        "write_after_free_until_the_end",
        liballod_hardened,
        tmp_path,
        {"SIZE": 30, "OFFSET": offset},
        ALL,
    )
    assert outcome.status == -signal.SIGABRT, outcome.description
    address = outcome.scene.facts["block"] + offset
    headline = outcome.scene.headline("write after free to", address)
    assert outcome.errors.startswith(headline), outcome.description


@pytest.mark.parametrize(
    ("case", "parameters"),
    [
        ("write_to_a_block_of_no_bytes", {}),
        *(
            ("write_to_one_more_block_of_no_bytes", {"KEPT": kept})
            for kept in (63, 64, 100_001, MIB - 33, MIB - 1)
        ),
        ("write_to_a_large_block_after_free", {"SIZE": 600_000, "OFFSET": 5000}),
        ("write_to_a_large_block_after_free", {"SIZE": 10 * MIB, "OFFSET": 5 * MIB}),
        *(
            ("write_to_a_used_large_block_after_free", {"SIZE": size, "OFFSET": 5000})
            for size in (150_000, 600_000, 10 * MIB, 40 * MIB)
        ),
        ("write_far_behind_a_large_block", {"SIZE": 10 * MIB, "OFFSET": 5000}),
    ],
)
def test_access_without_memory_is_a_fault(
    case: str,
    parameters: dict[str, int],
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """What has no memory, or none that can be used now, stops the program at the access."""
    program = programs / "overruns"
    outcome = run(program, case, liballod_hardened, tmp_path, parameters, ALL)
    assert outcome.status == -signal.SIGSEGV, outcome.description


def test_when_all_places_without_memory_are_in_use_a_write_is_found_later(
    programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """A block of no bytes is one like others then."""
    program = programs / "overruns"
    case = "write_to_one_more_block_of_no_bytes"
    outcome = run(program, case, liballod_hardened, tmp_path, {"KEPT": MIB}, ALL)
    assert outcome.status == -signal.SIGABRT, outcome.description
    block = outcome.scene.facts["block"]
    headline = outcome.scene.headline("write past the end of", block)
    assert outcome.errors.startswith(headline), outcome.description


def guard_report(outcome: Outcome, size_class: int) -> bool:
    """The access was behind the block, in a guard, and somebody's block is named."""
    return (
        "allod: error: access past the end at 0x" in outcome.errors
        and f"of size class {size_class}" in outcome.errors
        and "allod:   this access by thread" in outcome.errors
    )


@pytest.mark.parametrize("measures", ["all", "-canary", "none"])
def test_a_block_tells_what_was_asked_for(
    measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Of each size and alignment, whatever the measures."""
    options = {"HARDENED": measures}
    case = "usable_sizes_are_those_asked_for"
    outcome = run(programs / "overruns", case, liballod_hardened, tmp_path, {}, options)
    assert outcome.status == 0, outcome.description


@pytest.mark.parametrize(
    "case", ["new_and_realloc_and_delete", "new_and_heap_realloc_and_delete"]
)
@pytest.mark.parametrize("size", [0, 30, 5000, 600_000])
def test_realloc_of_what_new_gave_has_no_effect(
    case: str, size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """In a program that goes on, delete finds the block as it was."""
    options = {"HARDENED": "all", "ABORT_ON_ERROR": "0"}
    outcome = run(
        programs / "overruns",
        case,
        liballod_hardened,
        tmp_path,
        {"SIZE": size},
        options,
    )
    assert outcome.status == 0, outcome.description
    assert outcome.errors.count("allod: error: ") == 1, outcome.description
    assert "free with the wrong function of" in outcome.errors, outcome.description


@with_light_guards
@pytest.mark.parametrize(
    ("case", "size"),
    [
        *(("write_on_behind_slabs", size) for size in (16, 100, 2000, 5000)),
        *(
            ("write_on_behind_a_block", size)
            for size in (16, 100, 2000, 5000, 30_000, 100_000, 600_000)
        ),
    ],
)
def test_an_overflow_ends_at_the_guard_behind_the_slab(
    case: str, size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Whatever the class, no overflow comes as far as another slab."""
    program = programs / "overruns"
    options = {"HARDENED": "guards", "HUGE_PAGES": "never"}
    given = {"SIZE": size}
    outcome = run(program, case, liballod_hardened, tmp_path, given, options)
    assert outcome.status == -signal.SIGSEGV, outcome.description
    size_class = re.search(r"of size class (\d+)", outcome.errors)
    assert size_class is not None, outcome.description
    assert size <= int(size_class[1]) <= size * 9 // 8 + 16
    assert guard_report(outcome, int(size_class[1])), outcome.description
    without = run(
        program, case, liballod_hardened, tmp_path, given, {"HARDENED": "none"}
    )
    assert "access past the end" not in without.errors, without.description


@with_light_guards
@pytest.mark.parametrize(
    ("alignment", "size", "distance"),
    [
        *((16, n, 4096) for n in (122_873, 131_064, 131_072, 147_448, 4 * MIB - 8)),
        *((4096, size, 4096) for size in (131_072, 163_840, MIB)),
        *((65_536, size, 4096) for size in (131_072, MIB, 4 * MIB)),
        # Behind its class, where the guard is that of the slab.
        *((16, 262_144, distance) for distance in (28_672, 32_768, 61_440)),
    ],
)
def test_behind_every_large_block_is_a_guard(
    alignment: int,
    size: int,
    distance: int,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """Also where the size fills its class, or the alignment."""
    outcome = run(
        programs / "overruns",
        "write_far_behind_an_aligned_block",
        liballod_hardened,
        tmp_path,
        {"SIZE": size, "OFFSET": distance + 8, "ALIGNMENT": alignment},
        ALL,
    )
    assert outcome.status == -signal.SIGSEGV, outcome.description
    assert "allod: error: access past the end at 0x" in outcome.errors
    block = f"block {outcome.scene.facts['block']:#x} of "
    assert block in outcome.errors, outcome.description


@with_light_guards
def test_a_guard_outlives_a_realloc_that_fails(
    programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Whatever the size that was asked for."""
    case = "write_behind_a_large_block_after_realloc_has_failed"
    given = {"SIZE": 8 * MIB, "OFFSET": 4096 + 8}
    outcome = run(programs / "overruns", case, liballod_hardened, tmp_path, given, ALL)
    assert outcome.status == -signal.SIGSEGV, outcome.description
    assert "allod: error: access past the end at 0x" in outcome.errors


def expect_access_after_free(outcome: Outcome, offset: int = 0) -> None:
    """The program was stopped where it touched a block, and the report says so."""
    assert outcome.status == -signal.SIGSEGV, outcome.description
    at = outcome.scene.facts["block"] + offset
    headline = outcome.scene.headline("access after free to", at)
    assert outcome.errors.startswith(headline), outcome.description


def run_overruns(
    case: str,
    parameters: dict[str, int],
    options: dict[str, str],
    library: Path,
    programs: Path,
    tmp_path: Path,
    *,
    older: bool,
) -> Outcome:
    """Runs a case of `overruns`; perhaps as on a Linux before 6.13."""
    program = programs / "overruns"
    if not older:
        return run(program, case, library, tmp_path, parameters, options)
    given: dict[str, int | str] = {"PROGRAM": str(program), "CASE": case}
    given |= parameters
    launcher = programs / "older_system"
    return run(launcher, "without_light_guards", library, tmp_path, given, options)


@pytest.mark.parametrize(
    ("case", "measures"),
    [
        ("write_on_behind_slabs", "guards"),
        ("write_on_behind_slabs_after_large_blocks", "guards,zero,quarantine"),
    ],
)
def test_older_systems_have_a_guard_behind_some_slabs(
    case: str, measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Guards that are mappings: behind one of four, so that an overflow ends at one of them."""
    options = {"HARDENED": measures, "HUGE_PAGES": "never"}
    # It may come to memory that is closed for another reason before, once in fifty times.
    for _ in range(4):
        outcome = run_overruns(
            case,
            {"SIZE": 4000},
            options,
            liballod_hardened,
            programs,
            tmp_path,
            older=True,
        )
        assert outcome.status == -signal.SIGSEGV, outcome.description
        if guard_report(outcome, 4096):
            return
    pytest.fail(outcome.description)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"PURGE_DELAY": "0"},
        {"HARDENED": "-zero"},
        {"HARDENED": "-quarantine"},
        {"HARDENED": "guards,zero"},
    ],
)
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        "slabs_come_and_go",
        "large_blocks_come_and_go",
        "large_blocks_that_are_locked_in_part",
    ],
)
def test_guards_come_and_go_with_blocks(
    case: str,
    older: bool,
    options: dict[str, str],
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """With guards of either kind, all blocks can be used, whatever their memory was before."""
    outcome = run_overruns(
        case, {}, options, liballod_hardened, programs, tmp_path, older=older
    )
    outcome.expect("", death=False)


@pytest.mark.parametrize("size", [1000, 30_000, 100_000, 1_000_000])
def test_guards_that_are_mappings_give_way_to_memory(
    size: int,
    build_dir: Path,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """Where the process has hardly a mapping left, and guards take some."""
    given: dict[str, int | str] = {
        "PROGRAM": str(build_dir / "tests" / "traps" / "mappings"),
        "CASE": "a_process_that_is_short_of_mappings_gets_memory",
        "LEFT": 100,
        "BYTES": size,
    }
    options = {"HUGE_PAGES": "never"}
    launcher = programs / "older_system"
    case = "without_light_guards"
    outcome = run(launcher, case, liballod_hardened, tmp_path, given, options)
    assert outcome.status == 0, outcome.description


def test_what_cannot_be_opened_is_not_handed_out(
    programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """A program may forbid itself the call that opens blocks."""
    program = programs / "older_system"
    case = "blocks_that_cannot_be_opened"
    run(program, case, liballod_hardened, tmp_path, {}, ALL).expect("", death=False)


@pytest.mark.parametrize("size", [150_000, 10 * MIB])
@pytest.mark.parametrize("older", [False, True])
def test_access_to_what_was_used_and_freed_is_reported(
    size: int, older: bool, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """With its memory or without, on every system."""
    outcome = run_overruns(
        "write_to_a_used_large_block_after_free",
        {"SIZE": size, "OFFSET": 0},
        ALL,
        liballod_hardened,
        programs,
        tmp_path,
        older=older,
    )
    expect_access_after_free(outcome)


@pytest.mark.parametrize("size", [150_000, 3 * MIB])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_large_blocks_stay_closed_until_they_are_used_again(
    size: int,
    used: bool,
    older: bool,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """With their memory or without, long after their time in quarantine."""
    outcome = run_overruns(
        "write_long_after_the_free_of_a_large_block",
        {"SIZE": size, "OFFSET": 0, "USED": int(used)},
        ALL,
        liballod_hardened,
        programs,
        tmp_path,
        older=older,
    )
    expect_access_after_free(outcome)


@pytest.mark.parametrize("offset", [0, 5 * MIB])
@pytest.mark.parametrize("older", [False, True])
def test_huge_blocks_stay_closed_as_long_as_they_are_kept(
    offset: int, older: bool, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Nobody has them any more, but they have not become something else."""
    outcome = run_overruns(
        "touch_a_huge_block_long_after_its_free",
        {"SIZE": 6 * MIB, "OFFSET": offset, "AGAIN": 0},
        ALL | {"PURGE_DELAY": "600000"},
        liballod_hardened,
        programs,
        tmp_path,
        older=older,
    )
    expect_access_after_free(outcome, offset)


def test_second_free_of_a_huge_block_that_is_kept(
    programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """What is told is the block."""
    outcome = run(
        programs / "overruns",
        "touch_a_huge_block_long_after_its_free",
        liballod_hardened,
        tmp_path,
        {"SIZE": 6 * MIB, "OFFSET": 0, "AGAIN": 1},
        ALL | {"PURGE_DELAY": "600000"},
    )
    assert outcome.status == -signal.SIGABRT, outcome.description
    headline = outcome.scene.headline("double free of", outcome.scene.facts["block"])
    assert outcome.errors.startswith(headline), outcome.description
    assert f"free, requested with {6 * MIB} bytes" in outcome.errors


@with_light_guards
@pytest.mark.parametrize("size", [150_000, 700_000, 2_500_000, 6 * MIB])
@pytest.mark.parametrize("measures", ["all", "-quarantine", "-zero"])
def test_guards_follow_blocks_that_are_used_again(
    measures: str, size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Whatever was asked for before: all of a block can be used, and nothing behind it."""
    outcome = run(
        programs / "overruns",
        "guards_follow_blocks_that_are_used_again",
        liballod_hardened,
        tmp_path,
        {"SIZE": size},
        {"HARDENED": measures},
    )
    outcome.expect("", death=False)


@pytest.mark.parametrize(
    ("size", "share"),
    [
        *((size, 1) for size in (150_000, 600_000, 8 * MIB)),
        *((size, 5) for size in (300_000, 3 * MIB, 8 * MIB)),
        # The first page, and the canary.
        *((size, size // 4096) for size in (1 * MIB, 2 * MIB, 8 * MIB)),
    ],
)
def test_large_blocks_are_used_again_with_their_pages(
    size: int, share: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Pages that are in memory are zeroed, and neither given back nor faulted in."""
    outcome = run(
        programs / "overruns",
        "large_blocks_keep_their_pages",
        liballod_hardened,
        tmp_path,
        {"SIZE": size, "SHARE": share},
        ALL,
    )
    outcome.expect("", death=False)


@pytest.mark.parametrize("size", [200_000, 3 * MIB, 8 * MIB])
def test_zeros_of_large_blocks_that_are_used_again(
    size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """They are known to be there."""
    case = "zeros_of_large_blocks_that_are_used_again"
    program = programs / "overruns"
    outcome = run(program, case, liballod_hardened, tmp_path, {"SIZE": size}, ALL)
    outcome.expect("", death=False)


@pytest.mark.parametrize(
    "case",
    [
        "sizes_one_after_the_other",
        "huge_blocks_of_many_sizes_keep_their_pages",
        "large_blocks_get_no_pages_by_erasing",
    ],
)
def test_memory_follows_what_is_used(
    case: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Free memory of one size serves others, and erasing touches no page anew."""
    outcome = run(programs / "overruns", case, liballod_hardened, tmp_path, {}, ALL)
    outcome.expect("", death=False)


@pytest.mark.parametrize("size", [200_000, 1_500_000, 5 * MIB])
@pytest.mark.parametrize("measures", ["all", "all,sweep", "zero"])
@pytest.mark.parametrize("older", [False, True])
def test_large_blocks_are_erased_page_by_page(
    older: bool,
    measures: str,
    size: int,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """Nothing is left of what was written, wherever that was."""
    outcome = run_overruns(
        "large_blocks_are_erased_page_by_page",
        {"SIZE": size},
        {"HARDENED": measures},
        liballod_hardened,
        programs,
        tmp_path,
        older=older,
    )
    outcome.expect("", death=False)


@pytest.mark.parametrize("size", [200_000, 5 * MIB])
@pytest.mark.parametrize("protection", [0, mmap.PROT_READ | mmap.PROT_WRITE])
def test_what_cannot_be_shut_or_reopened(
    protection: int, size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """A process may have too many mappings: neither is handed out what cannot be touched."""
    case = "blocks_that_cannot_be_shut_or_reopened"
    program = programs / "older_system"
    given = {"PROTECTION": protection, "SIZE": size}
    outcome = run(program, case, liballod_hardened, tmp_path, given, ALL)
    outcome.expect("", death=False)


@pytest.mark.parametrize("size", [150_000, 300_000, 5 * MIB])
@pytest.mark.parametrize("measures", ["all", "-zero", "-quarantine"])
def test_what_can_neither_be_closed_nor_opened_is_not_handed_out(
    measures: str, size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Or forbid itself all that has to do with guards, which blocks in use have by then."""
    program = programs / "older_system"
    case = "blocks_in_use_that_cannot_be_opened"
    options = {"HARDENED": measures}
    outcome = run(program, case, liballod_hardened, tmp_path, {"SIZE": size}, options)
    outcome.expect("", death=False)


@with_light_guards
@pytest.mark.parametrize("size", [200_000, 3 * MIB, 6 * MIB])
def test_a_large_block_that_grows_a_little_needs_no_system_call(
    size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Nor does it move, as it would if its guard could not be moved."""
    program = programs / "older_system"
    case = "a_large_block_that_grows_a_little"
    outcome = run(program, case, liballod_hardened, tmp_path, {"SIZE": size}, ALL)
    outcome.expect("", death=False)


@pytest.mark.parametrize(
    ("case", "measures"),
    [
        ("free_of_a_huge_block_that_was_hardly_used", "all"),
        ("memory_of_large_blocks_in_quarantine", "all"),
        ("memory_of_large_blocks_in_quarantine", "-zero"),
        ("memory_of_large_blocks_in_quarantine", "quarantine"),
        ("realloc_to_less_leaves_nothing", "all"),
        ("realloc_to_less_leaves_nothing", "zero"),
    ],
)
def test_what_is_left_of_large_blocks(
    case: str, measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Neither page tables nor memory beyond a bound, nor what was in them."""
    options = {"HARDENED": measures}
    program = programs / "overruns"
    outcome = run(program, case, liballod_hardened, tmp_path, {}, options)
    outcome.expect("", death=False)


@pytest.mark.parametrize("measures", ["all", "-zero", "-guards", "quarantine"])
@pytest.mark.parametrize("size", [200_000, 5 * MIB + 1])
def test_leaks_of_large_blocks_are_looked_for(
    size: int, measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """What waits in quarantine is no leak, and what is closed is not read."""
    outcome = run(
        programs / "overruns",
        "leaks_of_large_blocks_are_looked_for",
        liballod_hardened,
        tmp_path,
        {"SIZE": size},
        {"HARDENED": measures},
    )
    assert outcome.survived, outcome.description
    assert outcome.scene.facts["leaks"] == 1, outcome.description


@pytest.mark.parametrize("measures", ["all", "-zero,-quarantine"])
def test_what_is_kept_hides_no_leaks(
    measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Its contents are nobody's, whatever they are. (A register may lead to the last of 20.)"""
    outcome = run(
        programs / "overruns",
        "leaks_behind_a_block_that_is_kept",
        liballod_hardened,
        tmp_path,
        {"SIZE": 6 * MIB},
        {"HARDENED": measures},
    )
    assert outcome.survived, outcome.description
    assert outcome.scene.facts["leaks"] >= 19, outcome.description


@pytest.mark.parametrize("size", [100, 3000])
def test_leaks_are_looked_for_beside_guards(
    size: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """The search does not touch what would be a fault."""
    outcome = run(
        programs / "overruns",
        "leaks_are_looked_for",
        liballod_hardened,
        tmp_path,
        {"SIZE": size},
        {"HARDENED": "all"},
    )
    assert outcome.survived, outcome.description
    assert outcome.scene.facts["leaks"] == 0


# What is reported, by which program.
OVERRUN = ("write past the end of", "overruns")
WRITTEN = ("write after free to", "overruns")
FAMILY = ("free with the wrong function of", "overruns")
CLAIM = ("free with the wrong size of", "deletes")


@pytest.mark.parametrize(
    ("measures", "case", "finding", "size", "is_found"),
    [
        ("none", "write_behind_a_block", OVERRUN, 30, False),
        ("canary", "write_behind_a_block", OVERRUN, 30, True),
        ("-canary", "write_behind_a_block", OVERRUN, 30, False),
        ("none", "write_after_free", WRITTEN, 30, False),
        ("zero,written,quarantine", "write_after_free", WRITTEN, 30, True),
        ("all,-written", "write_after_free", WRITTEN, 30, False),
        ("none", "new_and_free", FAMILY, 30, False),
        ("origin", "new_and_free", FAMILY, 30, True),
        ("all", "sized_delete_with_the_wrong_size", CLAIM, 30, True),
        ("-origin", "sized_delete_with_the_wrong_size", CLAIM, 30, False),
        ("none", "sized_delete_with_the_wrong_size", CLAIM, 30, False),
        ("-origin", "sized_delete_with_the_wrong_size", CLAIM, 0, False),
        (
            "none",
            "double_free_after_the_quarantine",
            ("double free of", "overruns"),
            30,
            True,
        ),
    ],
)
def test_measures_by_name(
    measures: str,
    case: str,
    finding: tuple[str, str],
    size: int,
    is_found: bool,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """ALLOD_HARDENED chooses the measures; states are always kept."""
    text, program = finding
    outcome = run(
        programs / program,
        case,
        liballod_hardened,
        tmp_path,
        {"SIZE": size, "OFFSET": 0, "CLAIMED": 16},
        {"HARDENED": measures},
    )
    assert outcome.status == (-signal.SIGABRT if is_found else 0), outcome.description
    assert outcome.survived != is_found, outcome.description
    assert (text in outcome.errors) == is_found, outcome.description


@pytest.mark.parametrize("zeroed", [0, 1])
@pytest.mark.parametrize("size", [100, 2000, 16_000, 100_000])
def test_blocks_do_not_come_in_order(
    size: int, zeroed: int, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Of any size of which several are in a slab, from calloc as from malloc."""

    def ascending(measures: str) -> int:
        outcome = run(
            programs / "reuse",
            "blocks_one_after_the_other",
            liballod_hardened,
            tmp_path,
            {"SIZE": size, "ZEROED": zeroed},
            {"HARDENED": measures},
        )
        assert outcome.survived, outcome.description
        return outcome.scene.facts["ascending"]

    # Of 64. The positions of slabs are random as well, if they may be. Some hold two blocks only:
    # half of the steps between those go down, and all others up.
    assert ascending("-shuffle,-positions,-addresses") == 64
    assert ascending("-positions,-addresses") < 60


# Of destructors of a thread, which may set their keys again.
ROUNDS = range(1, 5)


@pytest.mark.parametrize(
    ("case", "rounds"),
    [
        ("reuse_after_requests_that_fail", 0),
        ("reuse_by_the_thread_that_comes_next", 0),
        *(("reuse_in_the_destructor_of_a_thread", rounds) for rounds in ROUNDS),
    ],
)
@pytest.mark.parametrize("size", [100, 2000])
def test_a_freed_block_waits(
    case: str,
    rounds: int,
    size: int,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """Whatever fails, and whoever comes and goes, as long as few others are freed."""

    def is_reused(measures: str) -> int:
        given = {"SIZE": size, "ROUND": rounds}
        options = {"HARDENED": measures}
        program = programs / "reuse"
        outcome = run(program, case, liballod_hardened, tmp_path, given, options)
        assert outcome.survived, outcome.description
        return outcome.scene.facts["reused"]

    assert is_reused("-quarantine") == 1
    assert is_reused("all") == 0
    assert is_reused("all,sweep") == 0


def test_a_race_is_no_overflow(
    programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    case = "size_is_asked_while_another_thread_resizes"
    outcome = run(programs / "crowd", case, liballod_hardened, tmp_path)
    outcome.expect("", death=False)


IN_A_DESTRUCTOR = "write_after_free_in_the_destructor_of_a_thread"


@pytest.mark.parametrize(
    ("case", "rounds", "finder"),
    [
        ("write_after_free_by_a_thread_that_ends", 0, "thread"),
        ("write_to_what_an_ended_thread_has_freed", 0, "main_thread"),
        (IN_A_DESTRUCTOR, 1, "thread"),
        *((IN_A_DESTRUCTOR, rounds, "main_thread") for rounds in ROUNDS[1:]),
    ],
)
def test_what_ended_threads_leave_is_looked_at(
    case: str,
    rounds: int,
    finder: str,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """Before it is left to another thread, and when the process ends."""
    program = programs / "reuse"
    given = {"SIZE": 100, "ROUND": rounds}
    outcome = run(program, case, liballod_hardened, tmp_path, given, ALL)
    assert outcome.status == -signal.SIGABRT, outcome.description
    address = outcome.scene.facts["block"] + 1
    headline = outcome.scene.headline("write after free to", address)
    assert outcome.errors.startswith(headline), outcome.description
    call = f"this call by thread {outcome.scene.facts[finder]}:"
    assert call in outcome.errors, outcome.description


@pytest.mark.parametrize("offset", [0, 7])
@pytest.mark.parametrize(
    ("alignment", "size", "measures"),
    [
        *itertools.product(
            [16, 32, 64, 128, 512, 2048], [1, 32, 64, 100, 200, 3000], ["all"]
        ),
        *itertools.product([4096, 65_536], [131_072, 4 * MIB], ["all", "-guards"]),
    ],
)
def test_a_write_behind_an_aligned_block_is_found(
    alignment: int,
    size: int,
    measures: str,
    offset: int,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    outcome = run(
        programs / "overruns",
        "write_behind_an_aligned_block",
        liballod_hardened,
        tmp_path,
        {"SIZE": size, "OFFSET": offset, "ALIGNMENT": alignment},
        {"HARDENED": measures},
    )
    assert outcome.status == -signal.SIGABRT, outcome.description
    assert "write past the end of" in outcome.errors


@pytest.mark.parametrize(
    ("measures", "is_told"),
    [("sweep", True), ("all,sweep,-zero", True), ("all,sweep", False)],
)
def test_a_sweep_without_what_it_needs_is_told(
    measures: str,
    is_told: bool,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """It would never hold anything."""
    given = {"SIZE": 100}
    options = {"HARDENED": measures}
    program = programs / "overruns"
    case = "slabs_come_and_go"
    outcome = run(program, case, liballod_hardened, tmp_path, given, options)
    told = "allod: warning: ALLOD_HARDENED=sweep has no effect: it needs quarantine"
    assert outcome.survived, outcome.description
    assert (told in outcome.errors) == is_told, outcome.description


@pytest.mark.parametrize(
    ("measures", "used"),
    [
        ("written", "none"),
        ("zero,quarantine,written", "zero, written, quarantine"),
        ("zero,written", "zero"),
        ("quarantine,written", "quarantine"),
        ("neighbours", "none"),
        ("canary,neighbours", "canary, neighbours"),
        ("zero,neighbours", "neighbours, zero"),
        (
            "-zero",
            "canary, neighbours, quarantine, shuffle, guards, empty, origin, "
            "addresses, positions",
        ),
    ],
)
def test_a_measure_without_what_it_needs_is_not_in_use(
    measures: str,
    used: str,
    programs: Path,
    liballod_hardened: Path,
    tmp_path: Path,
) -> None:
    """It would never find anything, and nobody is told so who has left out another one."""
    given = {"SIZE": 100}
    options = {"HARDENED": measures, "VERBOSE": "2"}
    program = programs / "overruns"
    case = "slabs_come_and_go"
    outcome = run(program, case, liballod_hardened, tmp_path, given, options)
    assert outcome.survived, outcome.description
    assert f"allod: measures: {used}\n" in outcome.errors, outcome.description
    assert "warning" not in outcome.errors, outcome.description


def functions(stack: list[str], files: list[dict[str, str]]) -> list[str]:
    """Those that the addresses lie in, as somebody finds who has nothing but the report."""
    ranges = sorted(
        (int(file["base"], 16), int(file["end"], 16), file["path"]) for file in files
    )
    found = []
    for address in (int(frame, 16) - 1 for frame in stack):
        base, end, path = next(file for file in reversed(ranges) if file[0] <= address)
        assert address < end
        command = ["addr2line", "-f", "-e", path, hex(address - base)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(done.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize("measures", ["all", "all,history"])
def test_report_for_programs(
    measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """With ALLOD_REPORT_FD a report is one line of JSON, too."""
    read_end, write_end = os.pipe()
    environment = {
        "LD_PRELOAD": str(liballod_hardened),
        "ALLOD_REPORT_FD": str(write_end),
        "ALLOD_SHOW_ERRORS": "0",
        "ALLOD_HARDENED": measures,
        "TEST_SIZE": "30",
        "TEST_OFFSET": "0",
    }
    done = subprocess.run(
        [programs / "overruns", "write_behind_a_block"],
        env=environment,
        pass_fds=[write_end],
        capture_output=True,
        text=True,
        timeout=CASE_SECONDS,
        check=False,
    )
    os.close(write_end)
    with open(read_end, encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    facts = dict(line.split() for line in done.stdout.splitlines())
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == ""
    assert len(found) == 1
    thread = int(facts["main_thread"], 16)
    stack = found[0].pop("stack")
    assert len(stack) > 2
    files = found[0].pop("files")
    assert "misusing_function" in functions(stack, files)
    if measures == "all,history":
        allocated_at = functions(found[0].pop("allocated_at"), files)
        assert "allocating_function" in allocated_at
        assert found[0].pop("allocating_thread") == thread
    assert found[0] == {
        "allod": "error",
        "kind": "overflow",
        "address": facts["block"],
        "block": facts["block"],
        "block_bytes": 48,
        "domain": 1,
        "requested": 30,
        "in_use": True,
        "process": thread,
        "thread": thread,
    }


MODELLED = (
    "all",
    "all,sweep",
    "-guards,-empty",
    "all,history",
    "-canary,-origin",
    "-zero",
    "-quarantine,-neighbours",
)
# Without one of these, what the model says does not come.
MISSED_BY_MODEL = (
    "canary",
    "neighbours",
    "zero",
    "written",
    "quarantine",
    "guards",
    "empty",
    "origin",
)
# More blocks in use than the usual ones of the model.
MANY_BLOCKS = "20000"


@pytest.mark.parametrize("measures", MODELLED)
@pytest.mark.parametrize("seed", MODEL_SEEDS)
def test_every_defect_is_found_and_nothing_else(
    seed: int, measures: str, programs: Path, liballod_hardened: Path
) -> None:
    """Random calls with defects among them: the model says which report must come, and when."""
    words = measures.split(",")
    model_holds(programs, seed, liballod_hardened, *words, ALLOD_HARDENED=measures)


@pytest.mark.parametrize("seed", MODEL_SEEDS)
def test_every_defect_in_hardened_heaps_of_the_default_library_is_found(
    seed: int, programs: Path, liballod: Path
) -> None:
    model_holds(programs, seed, liballod, "heaps")


@pytest.mark.parametrize("seed", MODEL_SEEDS)
def test_every_defect_and_every_copy_that_leaves_its_block_is_found(
    seed: int, programs: Path, liballod_hardened: Path
) -> None:
    both = f"{liballod_hardened.with_name('liballod-copies.so')} {liballod_hardened}"
    model_holds(programs, seed, liballod_hardened, "copies", LD_PRELOAD=both)


def test_every_defect_is_found_among_many_blocks(
    programs: Path, liballod: Path, liballod_hardened: Path
) -> None:
    model_holds(programs, 1, liballod_hardened, MANY_BLOCKS)
    model_holds(programs, 1, liballod, "heaps", MANY_BLOCKS)


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        *((f"-{name}", "all") for name in MISSED_BY_MODEL),
        ("all", "sweep"),
        ("all", "copies"),
    ],
)
def test_the_model_misses_a_measure_that_is_not_there(
    measures: str, words: str, programs: Path, liballod_hardened: Path
) -> None:
    variables = {"ALLOD_HARDENED": measures}
    done = run_model(programs, 1, liballod_hardened, [words], variables, rounds=3)
    assert done.returncode == 1, done.stdout
    assert "does not hold" in done.stderr


def run_model(
    programs: Path,
    seed: int,
    library: Path,
    words: Sequence[str],
    variables: Mapping[str, str],
    *,
    rounds: int = 1,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs / "corruption", str(seed), str(rounds * MODEL_OPERATIONS), *words],
        env={"LD_PRELOAD": str(library), **variables},
        capture_output=True,
        text=True,
        timeout=CASE_SECONDS,
        check=False,
    )


def model_holds(
    programs: Path, seed: int, library: Path, *words: str, **variables: str
) -> None:
    done = run_model(programs, seed, library, words, variables)
    assert done.returncode == 0, done.stderr
    assert "all found" in done.stdout
