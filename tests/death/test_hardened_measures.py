"""What each measure of the hardened library does, alone and with others."""

from __future__ import annotations

import signal

import pytest
from surface.black_box import Runner

from death.hardened import ALL
from death.reports import (
    run,
)

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
        ("light", "write_behind_a_block", OVERRUN, 30, True),
        ("light", "new_and_free", FAMILY, 30, True),
        ("light", "sized_delete_with_the_wrong_size", CLAIM, 30, True),
        ("light", "write_after_free", WRITTEN, 30, False),
        ("balanced", "write_behind_a_block", OVERRUN, 300, True),
        ("balanced,-canary", "write_behind_a_block", OVERRUN, 300, False),
        ("balanced", "new_and_free", FAMILY, 300, True),
        ("balanced,-origin", "new_and_free", FAMILY, 300, False),
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
    hardened: Runner,
) -> None:
    """ALLOD_HARDENED chooses the measures; states are always kept."""
    text, program = finding
    outcome = run(
        hardened,
        program,
        case,
        {"SIZE": size, "OFFSET": 0, "CLAIMED": 16},
        {"HARDENED": measures},
    )
    assert outcome.status == (-signal.SIGABRT if is_found else 0), outcome.description
    assert outcome.survived != is_found, outcome.description
    assert (text in outcome.errors) == is_found, outcome.description


@pytest.mark.parametrize("zeroed", [0, 1])
@pytest.mark.parametrize("size", [100, 2000, 16_000, 100_000])
def test_blocks_do_not_come_in_order(size: int, zeroed: int, hardened: Runner) -> None:
    """Of any size of which several are in a slab, from calloc as from malloc."""

    def ascending(measures: str) -> int:
        outcome = run(
            hardened,
            "reuse",
            "blocks_one_after_the_other",
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
        ("reuse_after_frees_of_others", 0),
        ("reuse_by_the_thread_that_comes_next", 0),
        *(("reuse_in_the_destructor_of_a_thread", rounds) for rounds in ROUNDS),
    ],
)
@pytest.mark.parametrize("size", [100, 2000])
def test_a_freed_block_waits(
    case: str, rounds: int, size: int, hardened: Runner
) -> None:
    """Whatever fails, and whoever comes and goes, as long as few others are freed."""

    def is_reused(measures: str) -> int:
        given = {"SIZE": size, "ROUND": rounds}
        options = {"HARDENED": measures}
        outcome = run(hardened, "reuse", case, given, options)
        assert outcome.survived, outcome.description
        return outcome.scene.facts["reused"]

    assert is_reused("-quarantine") == 1
    assert is_reused("all") == 0
    assert is_reused("all,sweep") == 0


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
    case: str, rounds: int, finder: str, hardened: Runner
) -> None:
    """Before it is left to another thread, and when the process ends."""
    given = {"SIZE": 100, "ROUND": rounds}
    outcome = run(hardened, "reuse", case, given, ALL)
    outcome.expect_end(signal.SIGABRT, "write after free to", offset=1)
    call = f"this call by thread {outcome.scene.facts[finder]}:"
    assert call in outcome.errors, outcome.description


@pytest.mark.parametrize(
    ("measures", "is_told"),
    [("sweep", True), ("all,sweep,-zero", True), ("all,sweep", False)],
)
def test_a_sweep_without_what_it_needs_is_told(
    measures: str, is_told: bool, hardened: Runner
) -> None:
    """It would never hold anything."""
    given = {"SIZE": 100}
    options = {"HARDENED": measures}
    case = "slabs_come_and_go"
    outcome = run(hardened, "overruns", case, given, options)
    told = "allod: warning: ALLOD_HARDENED=sweep has no effect: it needs quarantine"
    assert outcome.survived, outcome.description
    assert (told in outcome.errors) == is_told, outcome.description


@pytest.mark.parametrize(
    ("measures", "used"),
    [
        ("written", "none"),
        ("zero,quarantine,written", "zero, written, quarantine"),
        ("zero,written", "zero, written"),
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
    measures: str, used: str, hardened: Runner
) -> None:
    """It would never find anything, and nobody is told so who has left out another one."""
    given = {"SIZE": 100}
    options = {"HARDENED": measures, "VERBOSE": "2"}
    case = "slabs_come_and_go"
    outcome = run(hardened, "overruns", case, given, options)
    assert outcome.survived, outcome.description
    assert f"allod: measures: {used}\n" in outcome.errors, outcome.description
    assert "warning" not in outcome.errors, outcome.description
