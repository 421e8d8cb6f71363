"""Stray writes: the hardened library looks at what nobody has, at frees and at the end."""

from __future__ import annotations

import signal

import pytest
from surface.black_box import Runner

from death.hardened import ALL
from death.reports import Outcome, run

OVERFLOW = "write past the end of"
AFTER_FREE = "write after free to"
STRAY = "stray write to"


def ended(
    outcome: Outcome, report: str, *, offset: int = 0, late: bool = False
) -> None:
    """It was found, before the program went on or when it had ended."""
    outcome.expect_end(signal.SIGABRT, report, offset=offset)
    assert outcome.survived == late, outcome.description


# Sizes, and bytes behind the canary that no canary covers.
@pytest.mark.parametrize(
    ("size", "offset"),
    [
        (90, 8),
        (90, 13),
        (1000, 8),
        (1000, 15),
        (1100, 20),
        (1100, 30),
        (5000, 60),
        (9000, 9),
        (20_000, 300),
        (40_000, 300),
        (200_000, 100),
        (5_000_000, 100),
    ],
)
def test_a_write_that_steps_over_the_canary_is_found(
    size: int, offset: int, hardened: Runner
) -> None:
    given = {"SIZE": size, "OFFSET": offset}
    ended(run(hardened, "overruns", "write_behind_a_block", given, ALL), OVERFLOW)
    kept = "write_behind_a_block_in_use_until_the_end"
    ended(run(hardened, "strays", kept, given, ALL), OVERFLOW, late=True)


CLASSES = [(30, 48), (100, 112), (500, 512), (1000, 1024)]
# Where no block waits, too.
LEVELS = pytest.mark.parametrize("level", ["all", "balanced,shuffle"])


@LEVELS
@pytest.mark.parametrize("offset", [0, 7])
@pytest.mark.parametrize(("size", "its_class"), CLASSES)
def test_neighbours_that_nobody_has_had_are_looked_at(
    size: int, its_class: int, offset: int, level: str, hardened: Runner
) -> None:
    given = {"SIZE": size, "CLASS": its_class, "OFFSET": offset}
    options = {"HARDENED": level}
    before = run(hardened, "strays", "write_before_a_new_block", given, options)
    ended(before, STRAY, offset=-1 - offset)
    behind = run(hardened, "strays", "write_behind_a_new_block", given, options)
    ended(behind, STRAY, offset=its_class + offset)
    for outcome, side in ((before, "behind"), (behind, "before")):
        block = outcome.scene.facts["block"]
        told = f"allod:   in use {side} it: block {block:#x}, requested with {size} "
        # It is being freed.
        assert told not in outcome.errors, outcome.description
        assert "allod:   never in use\n" in outcome.errors, outcome.description
    without = {"HARDENED": f"{level},-neighbours,-written"}
    outcome = run(hardened, "strays", "write_behind_a_new_block", given, without)
    assert outcome.survived, outcome.description


@LEVELS
@pytest.mark.parametrize(("size", "its_class"), CLASSES)
def test_a_block_is_looked_at_before_it_is_handed_out(
    size: int, its_class: int, level: str, hardened: Runner
) -> None:
    given = {"SIZE": size, "CLASS": its_class}
    options = {"HARDENED": level}
    case = "write_to_a_block_that_is_handed_out_later"
    outcome = run(hardened, "strays", case, given, options)
    ended(outcome, STRAY, offset=its_class + its_class // 2)
    block = outcome.scene.facts["block"]
    told = f"allod:   in use before it: block {block:#x}, requested with {size} bytes\n"
    assert told in outcome.errors, outcome.description
    case = "write_to_a_free_block_that_is_handed_out_later"
    outcome = run(hardened, "strays", case, given, options)
    ended(outcome, AFTER_FREE, offset=size // 2)


@pytest.mark.parametrize("size", [30, 100, 1000])
def test_blocks_that_wait_are_looked_at_in_turn(size: int, hardened: Runner) -> None:
    given = {"SIZE": size}
    outcome = run(hardened, "strays", "write_to_a_block_that_waits", given, ALL)
    ended(outcome, AFTER_FREE, offset=size // 2)


@pytest.mark.parametrize(("size", "its_class"), [*CLASSES, (5000, 5120)])
def test_all_memory_is_looked_at_when_the_process_ends(
    size: int, its_class: int, hardened: Runner
) -> None:
    given = {"SIZE": size, "CLASS": its_class}
    outcome = run(hardened, "strays", "write_to_a_free_block_until_the_end", given, ALL)
    ended(outcome, AFTER_FREE, offset=size // 2, late=True)
    if size > 1000:
        return
    outcome = run(hardened, "strays", "write_to_a_new_block_until_the_end", given, ALL)
    ended(outcome, STRAY, offset=its_class + its_class // 2, late=True)
    block = outcome.scene.facts["block"]
    told = f"allod:   in use before it: block {block:#x}, requested with {size} bytes\n"
    assert told in outcome.errors, outcome.description
    without = ALL | {"HARDENED": "-written"}
    case = "write_to_a_new_block_until_the_end"
    assert run(hardened, "strays", case, given, without).status == 0


def test_neighbours_are_told_with_their_history(hardened: Runner) -> None:
    given = {"SIZE": 100, "CLASS": 112}
    options = {"HARDENED": "all,history"}
    case = "write_to_a_new_block_until_the_end"
    outcome = run(hardened, "strays", case, given, options)
    block = outcome.scene.facts["block"]
    told = f"in use before it: block {block:#x}, requested with 100 bytes\nallod:   allocated by"
    assert told in outcome.errors, outcome.description


@pytest.mark.parametrize(
    "case", ["others_use_the_heap_at_the_end", "children_end_beside_threads"]
)
def test_the_last_look_finds_nothing_where_nothing_is(
    case: str, hardened: Runner
) -> None:
    """Whatever other threads do meanwhile."""
    for _ in range(5):
        outcome = run(hardened, "strays", case, {}, ALL)
        assert (outcome.status, outcome.errors) == (0, ""), outcome.description
