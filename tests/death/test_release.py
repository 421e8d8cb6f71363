"""What the release library sees on its slow paths, at no cost on the fast ones."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from surface.black_box import Runner

from death.reports import FOREIGN_ADDRESSES, GONE, NOT_OURS, Misuse, Scene, run

MIB = 1 << 20
BY_ENVIRONMENT: tuple[dict[str, str], ...] = (
    {},
    {"ABORT_ON_ERROR": "0"},
    {"SHOW_ERRORS": "0"},
    {"SHOW_ERRORS": "0", "ABORT_ON_ERROR": "0"},
)


def double_free(size_class: int = 112, owner: str = "1") -> Callable[[Scene], str]:
    """A block that is free already."""

    def text(scene: Scene) -> str:
        return scene.headline("double free of", scene.facts["block"]) + scene.place(
            size_class, owner=whose(owner)
        )

    return text


def interior_free(
    offset: int = 16, size_class: int = 112, owner: str = "1"
) -> Callable[[Scene], str]:
    """An address in a block."""

    def text(scene: Scene) -> str:
        return scene.headline(
            "invalid free of", scene.facts["block"] + offset
        ) + scene.place(size_class, offset=offset, owner=whose(owner))

    return text


def whose(owner: str) -> str:
    """How the report ends for a domain, or for none."""
    return (
        f", owned by domain {owner}"
        if owner.isdecimal()
        else ", whose thread has ended"
    )


def double_free_of_what_is_gone(scene: Scene) -> str:
    """A block whose memory belongs to no block now."""
    return scene.headline("double free of", scene.facts["block"]) + GONE


def foreign(scene: Scene) -> str:
    """An address that is not Allod's."""
    return scene.headline("free of foreign address", scene.facts["address"]) + NOT_OURS


SLOW_PATHS = {
    "interior_free_seen_when_the_magazine_is_flushed": interior_free(),
    "double_free_seen_when_the_magazine_is_flushed": double_free(),
    "double_free_seen_by_trim": double_free(),
    "double_free_whose_slab_is_gone": double_free_of_what_is_gone,
    "interior_free_seen_when_the_thread_ends": interior_free(owner="3"),
    "double_free_of_the_block_of_another_thread": double_free(),
    "double_free_by_two_other_threads": double_free(),
    "double_free_by_two_other_threads_with_a_look_between": double_free(),
    "double_free_by_the_owner_and_another_thread": double_free(),
    "interior_free_in_the_block_of_another_thread": interior_free(),
    "double_free_of_a_block_whose_thread_has_ended": double_free(owner="nobody"),
    "interior_free_in_a_block_whose_thread_has_ended": interior_free(owner="nobody"),
    "double_free_of_a_block_that_is_shared": double_free(owner="2"),
    "interior_free_in_a_block_that_is_shared": interior_free(owner="2"),
    "double_free_of_a_block_in_a_free_span": double_free_of_what_is_gone,
    "interior_free_by_a_thread_that_has_nearly_ended": interior_free(),
}

HUGE_DOUBLE_FREES = [
    Misuse("misuse", case, double_free_of_what_is_gone, {"SIZE": size})
    for size in (5 * MIB, 10 * MIB, 40 * MIB)
    for case in ("double_free_at_once", "double_free_by_another_thread")
]

HUGE_REALLOC = Misuse(
    "misuse",
    "realloc_of_a_freed_block",
    double_free_of_what_is_gone,
    {"SIZE": 10 * MIB, "NEW_SIZE": 20 * MIB},
)

INTERIOR_FREES = [
    Misuse(
        "misuse",
        "free_of_an_address_in_a_block",
        interior_free(offset, size_class),
        {"SIZE": size, "OFFSET": offset},
    )
    for size, size_class, offset in (
        (10 * MIB, 10 * MIB, 1),
        (10 * MIB, 10 * MIB, 16),
        (10 * MIB, 10 * MIB, 5 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB - 1),
        # The first slice of such a block leads to a magazine, the others do not.
        (600_000, 655_360, 65_536),
        (600_000, 655_360, 599_999),
        (4 * MIB, 4 * MIB, 2 * MIB),
    )
]

INTERIOR_REALLOCS = [
    Misuse(
        "misuse",
        "realloc_of_an_address_in_a_block",
        interior_free(16, size_class),
        {"SIZE": size, "OFFSET": 16},
    )
    for size, size_class in (
        (100, 112),
        (40_000, 40_960),
        (600_000, 655_360),
        (10 * MIB, 10 * MIB),
    )
]

MISUSES = [
    *(Misuse("slow_paths", case, text) for case, text in SLOW_PATHS.items()),
    *HUGE_DOUBLE_FREES,
    HUGE_REALLOC,
    *INTERIOR_FREES,
    *INTERIOR_REALLOCS,
]


@pytest.mark.parametrize("options", BY_ENVIRONMENT, ids=str)
@pytest.mark.parametrize("misuse", MISUSES, ids=str)
def test_report(misuse: Misuse, options: dict[str, str], release: Runner) -> None:
    """There is one report, unless it is unwanted, and the process is aborted, unless unwanted."""
    outcome = misuse.run(release, options)
    text = "" if "SHOW_ERRORS" in options else misuse.expected(outcome.scene)
    outcome.expect(text, death="ABORT_ON_ERROR" not in options)


AT_EXIT = [
    Misuse("at_exit", "double_free_seen_at_exit", double_free(), {"SIZE": 100}),
    Misuse("at_exit", "double_free_seen_at_exit", double_free(5120), {"SIZE": 5000}),
    Misuse(
        "at_exit", "double_free_seen_at_exit", double_free(262144), {"SIZE": 256 << 10}
    ),
    Misuse(
        "at_exit",
        "interior_free_seen_at_exit",
        interior_free(),
        {"SIZE": 100, "OFFSET": 16},
    ),
    Misuse(
        "at_exit",
        "interior_free_seen_at_exit",
        interior_free(1, 262144),
        {"SIZE": 256 << 10, "OFFSET": 1},
    ),
    Misuse(
        "at_exit",
        "double_free_by_the_owner_and_another_thread_seen_at_exit",
        double_free(),
        {"SIZE": 100},
    ),
]


@pytest.mark.parametrize("options", BY_ENVIRONMENT, ids=str)
@pytest.mark.parametrize("misuse", AT_EXIT, ids=str)
def test_report_at_exit(
    misuse: Misuse, options: dict[str, str], release: Runner
) -> None:
    """What was not seen while the program ran is seen when it ends."""
    outcome = misuse.run(release, options)
    text = "" if "SHOW_ERRORS" in options else misuse.expected(outcome.scene)
    assert re.fullmatch(text, outcome.errors), outcome.description
    dies = "ABORT_ON_ERROR" not in options
    assert outcome.status == (-signal.SIGABRT if dies else 0), outcome.description


@pytest.mark.parametrize("part", range(4))
def test_exit_from_a_signal_handler_finds_nothing(part: int, preloaded: Runner) -> None:
    """Whatever the handler interrupts, a heap without a defect is not complained about."""
    case = "exit_from_a_signal_handler"
    for number in range(20):
        parameters = {"MICROSECONDS": 500 + 997 * (20 * part + number) % 7000}
        outcome = run(preloaded, "at_exit", case, parameters)
        assert (outcome.status, outcome.errors) == (0, ""), outcome.description


def test_exit_from_a_signal_handler_ends(preloaded: Runner) -> None:
    """Where a report is asked for that cannot be had, that is said, and no lock waited for."""
    case = "exit_from_a_signal_handler"
    for number in range(30):
        parameters = {"MICROSECONDS": 500 + 997 * number % 7000}
        outcome = run(preloaded, "at_exit", case, parameters, {"SHOW_STATS": "1"})
        assert outcome.status == 0, outcome.description
        assert (
            "statistics of process" in outcome.errors or "no reports" in outcome.errors
        ), outcome.description


@pytest.mark.parametrize(("case", "parameters"), FOREIGN_ADDRESSES, ids=str)
@pytest.mark.parametrize("policy", ["", "ignore", "report"])
def test_foreign_address(
    case: str, parameters: dict[str, int], policy: str, release: Runner
) -> None:
    """Memory that is not Allod's is left alone, without a word unless one is wanted."""
    options = {"FOREIGN_FREE": policy} if policy else {}
    outcome = run(release, "misuse", case, parameters, options)
    outcome.expect(foreign(outcome.scene) if policy == "report" else "", death=False)


def test_realloc_of_a_foreign_address_fails(release: Runner) -> None:
    """There is no block to return, so that the caller has to be told."""
    case = "realloc_of_a_foreign_address"
    outcome = run(release, "misuse", case)
    outcome.expect(foreign(outcome.scene), death=False)


def test_memory_that_was_given_back_is_foreign(release: Runner) -> None:
    """A block that had addresses of its own leaves nothing behind: those may be anybody's."""
    options = {"PURGE_DELAY": "0"}
    parameters = {"SIZE": 100 * MIB}
    outcome = run(release, "misuse", "double_free_at_once", parameters, options)
    outcome.expect("", death=False)


@pytest.mark.parametrize(
    ("program", "case", "parameters"),
    [
        (
            "misuse",
            "free_sized_with_the_wrong_size",
            {"SIZE": 100, "CLAIMED": 99},
        ),
        ("misuse", "free_sized_with_the_right_size", {}),
        ("deletes", "sized_deletes_with_the_right_size", {}),
    ],
    ids=str,
)
def test_sizes_are_not_checked(
    program: str, case: str, parameters: dict[str, int], release: Runner
) -> None:
    """What a sized free claims is taken neither as wrong nor as right."""
    outcome = run(release, program, case, parameters)
    outcome.expect("", death=False)
