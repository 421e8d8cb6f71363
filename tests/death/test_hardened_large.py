"""Large blocks of the hardened library: closed when freed, and used again with their pages."""

from __future__ import annotations

import mmap
import signal

import pytest
from surface.black_box import Runner

from death.hardened import ALL, run_perhaps_older, with_light_guards
from death.reports import (
    run,
)

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize("size", [150_000, 10 * MIB])
@pytest.mark.parametrize("older", [False, True])
def test_access_to_what_was_used_and_freed_is_reported(
    size: int, older: bool, hardened: Runner
) -> None:
    """With its memory or without, on every system."""
    outcome = run_perhaps_older(
        hardened,
        "overruns",
        "write_to_a_used_large_block_after_free",
        {"SIZE": size, "OFFSET": 0},
        ALL,
        older=older,
    )
    outcome.expect_end(signal.SIGSEGV, "access after free to")


@pytest.mark.parametrize("size", [150_000, 3 * MIB])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_large_blocks_stay_closed_until_they_are_used_again(
    size: int, used: bool, older: bool, hardened: Runner
) -> None:
    """With their memory or without, long after their time in quarantine."""
    outcome = run_perhaps_older(
        hardened,
        "overruns",
        "write_long_after_the_free_of_a_large_block",
        {"SIZE": size, "OFFSET": 0, "USED": int(used)},
        ALL,
        older=older,
    )
    outcome.expect_end(signal.SIGSEGV, "access after free to")


@pytest.mark.parametrize("offset", [0, 5 * MIB])
@pytest.mark.parametrize("older", [False, True])
def test_huge_blocks_stay_closed_as_long_as_they_are_kept(
    offset: int, older: bool, hardened: Runner
) -> None:
    """Nobody has them any more, but they have not become something else."""
    outcome = run_perhaps_older(
        hardened,
        "overruns",
        "touch_a_huge_block_long_after_its_free",
        {"SIZE": 6 * MIB, "OFFSET": offset, "AGAIN": 0},
        ALL | {"PURGE_DELAY": "600000"},
        older=older,
    )
    outcome.expect_end(signal.SIGSEGV, "access after free to", offset=offset)


def test_second_free_of_a_huge_block_that_is_kept(hardened: Runner) -> None:
    """What is told is the block."""
    outcome = run(
        hardened,
        "overruns",
        "touch_a_huge_block_long_after_its_free",
        {"SIZE": 6 * MIB, "OFFSET": 0, "AGAIN": 1},
        ALL | {"PURGE_DELAY": "600000"},
    )
    outcome.expect_end(signal.SIGABRT, "double free of")
    assert f"free, requested with {6 * MIB} bytes" in outcome.errors


@pytest.mark.parametrize("size", [200_000, 1_500_000, 5 * MIB])
@pytest.mark.parametrize("measures", ["all", "all,sweep", "zero"])
@pytest.mark.parametrize("older", [False, True])
def test_large_blocks_are_erased_page_by_page(
    older: bool, measures: str, size: int, hardened: Runner
) -> None:
    """Nothing is left of what was written, wherever that was."""
    outcome = run_perhaps_older(
        hardened,
        "large_blocks",
        "large_blocks_are_erased_page_by_page",
        {"SIZE": size},
        {"HARDENED": measures},
        older=older,
    )
    outcome.expect("", death=False)


def sizes(*sizes: int) -> list[dict[str, int]]:
    """Parameters of a case for each size."""
    return [{"SIZE": size} for size in sizes]


LIGHT = [with_light_guards]
HOLDING = [
    # A program may forbid itself the call that opens blocks.
    pytest.param("older_system", "blocks_that_cannot_be_opened", {}, "all"),
    # Or all that has to do with guards, which blocks in use have by then.
    *(
        pytest.param(
            "older_system", "blocks_in_use_that_cannot_be_opened", given, chosen
        )
        for given in sizes(150_000, 300_000, 5 * MIB)
        for chosen in ("all", "-zero", "-quarantine")
    ),
    # A process may have too many mappings: neither is handed out what cannot be touched.
    *(
        pytest.param(
            "older_system",
            "blocks_that_cannot_be_shut_or_reopened",
            {"PROTECTION": protection, **given},
            "all",
        )
        for given in sizes(200_000, 5 * MIB)
        for protection in (0, mmap.PROT_READ | mmap.PROT_WRITE)
    ),
    # Nor does it move, as it would if its guard could not be moved.
    *(
        pytest.param(
            "older_system",
            "a_large_block_that_grows_a_little",
            given,
            "all",
            marks=LIGHT,
        )
        for given in sizes(200_000, 3 * MIB, 6 * MIB)
    ),
    # Whatever was asked for before: all of a block can be used, and nothing behind it.
    *(
        pytest.param(
            "large_blocks",
            "guards_follow_blocks_that_are_used_again",
            given,
            chosen,
            marks=LIGHT,
        )
        for given in sizes(150_000, 700_000, 2_500_000, 6 * MIB)
        for chosen in ("all", "-quarantine", "-zero")
    ),
    # Pages that are in memory are zeroed, and neither given back nor faulted in.
    *(
        pytest.param(
            "large_blocks",
            "large_blocks_keep_their_pages",
            {"SIZE": size, "SHARE": share},
            "all",
        )
        for size, share in (
            *((size, 1) for size in (150_000, 600_000, 8 * MIB)),
            *((size, 5) for size in (300_000, 3 * MIB, 8 * MIB)),
            # The first page, and the canary.
            *((size, size // 4096) for size in (1 * MIB, 2 * MIB, 8 * MIB)),
        )
    ),
    # They are known to be there.
    *(
        pytest.param(
            "large_blocks", "zeros_of_large_blocks_that_are_used_again", given, "all"
        )
        for given in sizes(200_000, 3 * MIB, 8 * MIB)
    ),
    # Free memory of one size serves others, and erasing touches no page anew.
    *(
        pytest.param("large_blocks", case, {}, "all")
        for case in (
            "sizes_one_after_the_other",
            "huge_blocks_of_many_sizes_keep_their_pages",
            "large_blocks_get_no_pages_by_erasing",
        )
    ),
    # Nothing is left: neither page tables nor memory beyond a bound, nor what was in them.
    *(
        pytest.param("large_blocks", case, {}, chosen)
        for case, chosen in (
            ("free_of_a_huge_block_that_was_hardly_used", "all"),
            ("memory_of_large_blocks_in_quarantine", "all"),
            ("memory_of_large_blocks_in_quarantine", "-zero"),
            ("memory_of_large_blocks_in_quarantine", "quarantine"),
            ("realloc_to_less_leaves_nothing", "all"),
            ("realloc_to_less_leaves_nothing", "zero"),
        )
    ),
]


@pytest.mark.parametrize(("program", "case", "parameters", "measures"), HOLDING)
def test_large_blocks_are_used_and_used_again(
    program: str,
    case: str,
    parameters: dict[str, int],
    measures: str,
    hardened: Runner,
) -> None:
    """The case holds, and there is nothing to report."""
    outcome = run(hardened, program, case, parameters, {"HARDENED": measures})
    outcome.expect("", death=False)


@pytest.mark.parametrize("measures", ["all", "-zero", "-guards", "quarantine"])
@pytest.mark.parametrize("size", [200_000, 5 * MIB + 1])
def test_leaks_of_large_blocks_are_looked_for(
    size: int, measures: str, hardened: Runner
) -> None:
    """What waits in quarantine is no leak, and what is closed is not read."""
    outcome = run(
        hardened,
        "overruns",
        "leaks_of_large_blocks_are_looked_for",
        {"SIZE": size},
        {"HARDENED": measures},
    )
    assert outcome.survived, outcome.description
    assert outcome.scene.facts["leaks"] == 1, outcome.description


@pytest.mark.parametrize("measures", ["all", "-zero,-quarantine"])
def test_what_is_kept_hides_no_leaks(measures: str, hardened: Runner) -> None:
    """Its contents are nobody's, whatever they are. (A register may lead to the last of 20.)"""
    outcome = run(
        hardened,
        "overruns",
        "leaks_behind_a_block_that_is_kept",
        {"SIZE": 6 * MIB},
        {"HARDENED": measures},
    )
    assert outcome.survived, outcome.description
    assert outcome.scene.facts["leaks"] >= 19, outcome.description
