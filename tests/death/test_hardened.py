"""The hardened library sees what a program does to the heap, and says what and where."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator

import pytest
from surface.black_box import Runner

from death.hardened import ALL
from death.reports import (
    FOREIGN_ADDRESSES,
    FREE,
    GONE,
    NOT_OURS,
    REALLOC,
    Misuse,
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


@pytest.mark.parametrize("misuse", MISUSES, ids=str)
def test_report(misuse: Misuse, hardened: Runner) -> None:
    """The report, and nothing else, is on standard error, and the process is aborted."""
    misuse.check(hardened, ALL)


@pytest.mark.parametrize("misuse", [*misuse_of_blocks_with_history()], ids=str)
def test_report_with_history(misuse: Misuse, hardened: Runner) -> None:
    """Where the history is kept, the report tells who allocated the block and who freed it."""
    misuse.check(hardened, {"HARDENED": "all,history"})


@pytest.mark.parametrize("misuse", MISUSES[::3], ids=str)
def test_program_goes_on(misuse: Misuse, hardened: Runner) -> None:
    """With ALLOD_ABORT_ON_ERROR=0 there is one report, and the heap stays in order."""
    misuse.check(hardened, ALL | {"ABORT_ON_ERROR": "0"}, death=False)


@pytest.mark.parametrize("offset", [0, 29])
def test_write_after_free_is_seen_at_the_end(offset: int, hardened: Runner) -> None:
    """What the main thread has in quarantine is looked at when the process ends."""
    outcome = run(
        hardened,
        "overruns",
        "write_after_free_until_the_end",
        {"SIZE": 30, "OFFSET": offset},
        ALL,
    )
    outcome.expect_end(signal.SIGABRT, "write after free to", offset=offset)


@pytest.mark.parametrize("measures", ["all", "-canary", "none"])
def test_a_block_tells_what_was_asked_for(measures: str, hardened: Runner) -> None:
    """Of each size and alignment, whatever the measures."""
    options = {"HARDENED": measures}
    case = "usable_sizes_are_those_asked_for"
    outcome = run(hardened, "overruns", case, {}, options)
    assert outcome.status == 0, outcome.description


@pytest.mark.parametrize(
    "case", ["new_and_realloc_and_delete", "new_and_heap_realloc_and_delete"]
)
@pytest.mark.parametrize("size", [0, 30, 5000, 600_000])
def test_realloc_of_what_new_gave_has_no_effect(
    case: str, size: int, hardened: Runner
) -> None:
    """In a program that goes on, delete finds the block as it was."""
    options = {"HARDENED": "all", "ABORT_ON_ERROR": "0"}
    outcome = run(hardened, "overruns", case, {"SIZE": size}, options)
    assert outcome.status == 0, outcome.description
    assert outcome.errors.count("allod: error: ") == 1, outcome.description
    assert "free with the wrong function of" in outcome.errors, outcome.description


def test_a_race_is_no_overflow(hardened: Runner) -> None:
    case = "size_is_asked_while_another_thread_resizes"
    outcome = run(hardened, "crowd", case)
    outcome.expect("", death=False)


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
    alignment: int, size: int, measures: str, offset: int, hardened: Runner
) -> None:
    outcome = run(
        hardened,
        "overruns",
        "write_behind_an_aligned_block",
        {"SIZE": size, "OFFSET": offset, "ALIGNMENT": alignment},
        {"HARDENED": measures},
    )
    assert outcome.status == -signal.SIGABRT, outcome.description
    assert "write past the end of" in outcome.errors
