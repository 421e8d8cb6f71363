"""Guards of the hardened library: who runs into one is stopped at once."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from surface.black_box import Runner

from death.hardened import ALL, run_perhaps_older, with_light_guards
from death.reports import (
    Outcome,
    run,
)

KIB, MIB = 1 << 10, 1 << 20


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
    case: str, parameters: dict[str, int], hardened: Runner
) -> None:
    """What has no memory, or none that can be used now, stops the program at the access."""
    outcome = run(hardened, "overruns", case, parameters, ALL)
    assert outcome.status == -signal.SIGSEGV, outcome.description


def test_when_all_places_without_memory_are_in_use_a_write_is_found_later(
    hardened: Runner,
) -> None:
    """A block of no bytes is one like others then."""
    case = "write_to_one_more_block_of_no_bytes"
    outcome = run(hardened, "overruns", case, {"KEPT": MIB}, ALL)
    outcome.expect_end(signal.SIGABRT, "write past the end of")


def guard_report(outcome: Outcome, size_class: int) -> bool:
    """The access was behind the block, in a guard, and somebody's block is named."""
    return (
        "allod: error: access past the end at 0x" in outcome.errors
        and f"of size class {size_class}" in outcome.errors
        and "allod:   this access by thread" in outcome.errors
    )


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
    case: str, size: int, hardened: Runner
) -> None:
    """Whatever the class, no overflow comes as far as another slab."""
    options = {"HARDENED": "guards", "HUGE_PAGES": "never"}
    given = {"SIZE": size}
    outcome = run(hardened, "overruns", case, given, options)
    assert outcome.status == -signal.SIGSEGV, outcome.description
    size_class = re.search(r"of size class (\d+)", outcome.errors)
    assert size_class is not None, outcome.description
    assert size <= int(size_class[1]) <= size * 9 // 8 + 16
    assert guard_report(outcome, int(size_class[1])), outcome.description
    without = run(hardened, "overruns", case, given, {"HARDENED": "none"})
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
    alignment: int, size: int, distance: int, hardened: Runner
) -> None:
    """Also where the size fills its class, or the alignment."""
    outcome = run(
        hardened,
        "overruns",
        "write_far_behind_an_aligned_block",
        {"SIZE": size, "OFFSET": distance + 8, "ALIGNMENT": alignment},
        ALL,
    )
    assert outcome.status == -signal.SIGSEGV, outcome.description
    assert "allod: error: access past the end at 0x" in outcome.errors
    block = f"block {outcome.scene.facts['block']:#x} of "
    assert block in outcome.errors, outcome.description


@with_light_guards
def test_a_guard_outlives_a_realloc_that_fails(hardened: Runner) -> None:
    """Whatever the size that was asked for."""
    case = "write_behind_a_large_block_after_realloc_has_failed"
    given = {"SIZE": 8 * MIB, "OFFSET": 4096 + 8}
    outcome = run(hardened, "overruns", case, given, ALL)
    assert outcome.status == -signal.SIGSEGV, outcome.description
    assert "allod: error: access past the end at 0x" in outcome.errors


@pytest.mark.parametrize(
    ("case", "measures"),
    [
        ("write_on_behind_slabs", "guards"),
        ("write_on_behind_slabs_after_large_blocks", "guards,zero,quarantine"),
    ],
)
def test_older_systems_have_a_guard_behind_some_slabs(
    case: str, measures: str, hardened: Runner
) -> None:
    """Guards that are mappings: behind one of four, so that an overflow ends at one of them."""
    options = {"HARDENED": measures, "HUGE_PAGES": "never"}
    # It may come to memory that is closed for another reason before, once in fifty times.
    for _ in range(4):
        outcome = run_perhaps_older(
            hardened, "overruns", case, {"SIZE": 4000}, options, older=True
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
    case: str, older: bool, options: dict[str, str], hardened: Runner
) -> None:
    """With guards of either kind, all blocks can be used, whatever their memory was before."""
    outcome = run_perhaps_older(hardened, "overruns", case, {}, options, older=older)
    outcome.expect("", death=False)


@pytest.mark.parametrize("size", [1000, 30_000, 100_000, 1_000_000])
def test_guards_that_are_mappings_give_way_to_memory(
    size: int, build_dir: Path, hardened: Runner
) -> None:
    """Where the process has hardly a mapping left, and guards take some."""
    given: dict[str, int | str] = {
        "PROGRAM": str(build_dir / "tests" / "traps" / "mappings"),
        "CASE": "a_process_that_is_short_of_mappings_gets_memory",
        "LEFT": 100,
        "BYTES": size,
    }
    options = {"HUGE_PAGES": "never"}
    case = "without_light_guards"
    outcome = run(hardened, "older_system", case, given, options)
    assert outcome.status == 0, outcome.description


@pytest.mark.parametrize("size", [100, 3000])
def test_leaks_are_looked_for_beside_guards(size: int, hardened: Runner) -> None:
    """The search does not touch what would be a fault."""
    outcome = run(
        hardened,
        "overruns",
        "leaks_are_looked_for",
        {"SIZE": size},
        {"HARDENED": "all"},
    )
    assert outcome.survived, outcome.description
    assert outcome.scene.facts["leaks"] == 0
