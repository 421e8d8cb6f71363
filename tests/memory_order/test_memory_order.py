"""What threads hand to each other arrives, whatever the C++ memory model lets a processor reorder.

The explorer runs the library's own headers. That it can fail is shown by weakening each ordering
that is needed: some scenario then fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from .explorer import Explorer, Ordering, Result

# Searched to the end.
EXHAUSTIVE = (
    "lock",
    "lock_ranks",
    "try_lock",
    "remote_free",
    "remote_frees",
    "remote_free_by_two",
    "remote_words",
    "late_free",
    "late_free_without_domain",
    "adoption",
    "adoption_by_new",
    "collect_while_freed",
    "lean",
    "lean_to_nobody",
    "lean_twice",
    "narrow_map",
    "publish_huge",
    "publish_slab",
    "purge_span",
)
# More than can be visited within the time of a test: the first of them, and others at random.
LARGE = (
    "adoption_and_two",
    "collect_barrier",
    "collect_fence",
    "fork_barrier",
    "fork_fence",
    "helper_again",
    "helper_returned",
    "late_free_adopted",
    "lean_again",
    "lean_again_and_pause",
    "lean_and_pause",
    "lock_of_three",
    "locked_and_pause",
    "purge_barrier",
    "purge_fence",
    "registry",
    "two_adopters",
)
FIRST = "1500"
AT_RANDOM = "500"

SB = {"00", "01", "10", "11"}
ALL_OF_IRIW = {f"{n:04b}" for n in range(16)}


def words(text: str) -> set[str]:
    """Each word."""
    return set(text.split())


# All outcomes, as the results of the loads in order.
LITMUS = {
    "mp": words("00 01 11"),
    "mp_acquire_only": words("00 01 10 11"),
    "mp_fences": words("00 01 11"),
    "mp_one_fence": words("00 01 10 11"),
    "mp_relaxed": words("00 01 10 11"),
    "mp_release_only": words("00 01 10 11"),
    "mp_sc_data": words("00 01 10 11"),
    "release_sequence": words("00 01 10 11 21"),
    "release_broken": words("00 01 11 20 21"),
    "sb": SB,
    "sb_barrier": SB - {"00"},
    "sb_exchange": SB - {"00"},
    "sb_fences": SB - {"00"},
    "sb_half": SB,
    "sb_sc": SB - {"00"},
    "sb_weak_fence": SB,
    "lb": SB - {"11"},
    "iriw": ALL_OF_IRIW,
    "iriw_fences": ALL_OF_IRIW - {"1010"},
    "iriw_sc": ALL_OF_IRIW - {"1010"},
    "wrc": words("000 001 010 011 100 101 111"),
    "corr": words("00 01 02 11 12 22"),
    "corr_two": {
        a + b + c + d
        for a, b, c, d in (
            tuple(first + second)
            for first in ("00", "01", "02", "11", "12", "21", "22")
            for second in ("00", "01", "02", "11", "12", "21", "22")
        )
        # Whoever sees both sees the one before the other.
        if {a + b, c + d} != {"12", "21"}
    },
    "cowr": words("1 2"),
    "2_2w": words("11 12 21 22"),
    "2_2w_sc": words("12 21 22"),
    "z6u": words("010 011 030 031 120 121 130 131 310 311 340 341"),
    "rmw": words("01 10"),
    "rmw_store": words("01 13"),
    "cas": words("01 10"),
    "no_race": words("1 2"),
}


@dataclass(frozen=True)
class Weakened:
    """An ordering that is needed, and a scenario that fails with a weaker one."""

    ordering: Ordering
    weaker: str
    scenario: str
    is_random: bool = (
        False  # found at random, where the first executions do not show it
    )

    def __str__(self) -> str:
        return f"{self.ordering}-as-{self.weaker}"


INBOX = "slab/inbox.hpp"
REMOTE = "slab/remote_frees.hpp"
SLAB = "slab/slab.hpp"
LOCK = "base/lock.hpp"
GATE = "heap/slow_path.hpp"
MAP = "space/page_map.hpp"
TURN = "heaps/turn.hpp"
LIFETIME = "heap/lifetime.hpp"
CPU = "base/cpu.hpp"
KEPT = "heap/kept.hpp"
BARRIER = "1"  # kBarrierSite
NEEDED = (
    # Who has the lock sees what was done with it before.
    Weakened(
        Ordering(LOCK, "try_lock", "compare_exchange", "acquire"), "relaxed", "lock"
    ),
    Weakened(
        Ordering(LOCK, "lock_slow", "compare_exchange", "acquire"), "relaxed", "lock"
    ),
    Weakened(Ordering(LOCK, "lock_slow", "exchange", "acquire"), "relaxed", "lock"),
    Weakened(Ordering(LOCK, "unlock", "exchange", "release"), "relaxed", "lock"),
    # No announcement is lost: bits, then the link; the link, then bits.
    Weakened(
        Ordering(SLAB, "give_remotely", "fetch_or", "seq_cst"),
        "acq_rel",
        "remote_words",
    ),
    Weakened(Ordering(REMOTE, "claim", "load", "seq_cst"), "acquire", "remote_words"),
    Weakened(
        Ordering(REMOTE, "accept", "exchange", "seq_cst"), "acq_rel", "remote_words"
    ),
    Weakened(
        Ordering(SLAB, "take_remote_word", "load", "seq_cst"), "acquire", "remote_words"
    ),
    Weakened(
        Ordering(REMOTE, "push", "compare_exchange", "seq_cst"),
        "acquire",
        "remote_free",
    ),
    Weakened(
        Ordering(INBOX, "take_all", "exchange", "seq_cst"), "release", "remote_free"
    ),
    Weakened(Ordering(INBOX, "close", "exchange", "seq_cst"), "release", "late_free"),
    # Who gets a block again sees what was written to it before it was freed.
    Weakened(
        Ordering(SLAB, "take_remote_word", "exchange", "seq_cst"),
        "release",
        "remote_free_by_two",
    ),
    # An adopter names itself, then looks for bits; without an owner, the link is taken back, and
    # the name read again.
    Weakened(Ordering(SLAB, "set_owner", "store", "seq_cst"), "release", "adoption"),
    Weakened(
        Ordering(REMOTE, "announce", "load", "seq_cst"), "relaxed", "adoption_by_new"
    ),
    Weakened(
        Ordering(REMOTE, "announce", "store", "seq_cst"),
        "release",
        "adoption_and_two",
        is_random=True,
    ),
    Weakened(
        Ordering(REMOTE, "announce", "load", "seq_cst", 2),
        "acquire",
        "adoption_and_two",
        is_random=True,
    ),
    # A thread in a slow path and one that closes the gate: one of them sees the other.
    Weakened(Ordering(GATE, "order", "fence", "seq_cst"), "acq_rel", "fork_fence"),
    Weakened(Ordering(GATE, "close", "fence", "seq_cst"), "acq_rel", "fork_fence"),
    # What was done in a slow path is seen by whoever closed the gate, and the other way round.
    Weakened(Ordering(GATE, "~SlowPath", "store", "release"), "relaxed", "fork_fence"),
    Weakened(
        Ordering(LIFETIME, "is_quiet_but_for", "load", "acquire"),
        "relaxed",
        "fork_fence",
    ),
    Weakened(Ordering(GATE, "open", "store", "seq_cst"), "relaxed", "purge_fence"),
    Weakened(Ordering(CPU, "holds", "load", "acquire"), "relaxed", "collect_fence"),
    # The helper takes what a domain keeps only if the domain's thread is in no slow path.
    Weakened(
        Ordering(KEPT, "give_back_kept_of", "load", "acquire"),
        "relaxed",
        "helper_again",
        is_random=True,
    ),
    # Whoever ends the leaning sees what was done in turns, by what the thread announces next.
    Weakened(Ordering(TURN, "~LeaningTurn", "store", "release"), "relaxed", "lean"),
    Weakened(Ordering(TURN, "is_leaning_in", "load", "acquire"), "relaxed", "lean"),
    Weakened(
        Ordering(TURN, "LeaningTurn", "store", "release"), "relaxed", "lean_twice"
    ),
    Weakened(
        Ordering(TURN, "LeaningTurn", "store", "release", 2),
        "relaxed",
        "lean_again_and_pause",
        is_random=True,
    ),
    # So does a pause.
    Weakened(
        Ordering(TURN, "end", "store", "release"),
        "relaxed",
        "locked_and_pause",
        is_random=True,
    ),
    Weakened(
        Ordering(TURN, "is_quiet", "load", "acquire"),
        "relaxed",
        "locked_and_pause",
        is_random=True,
    ),
    # A thread that finds no bound finds the parts.
    Weakened(Ordering(MAP, "is_in_parts", "fence", "acquire"), "none", "narrow_map"),
    Weakened(Ordering(MAP, "operator", "store", "release"), "relaxed", "narrow_map"),
)
# Orderings that no scenario needs at all, and why they stay. On arm64, none of them costs an
# instruction: the weaker access is one as well.
STRONGER = {
    Ordering(
        REMOTE, "claim", "compare_exchange", "seq_cst"
    ): "the link is atomic, and push() publishes it",
    Ordering(REMOTE, "next", "load", "seq_cst"): "the inbox's order publishes it",
    Ordering(REMOTE, "take_last", "load", "seq_cst"): "the closed gate orders it",
    Ordering(
        REMOTE, "take_last", "compare_exchange", "seq_cst"
    ): "the closed gate orders it",
    Ordering(SLAB, "owner", "load", "seq_cst"): "a hint, or the caller's own name",
    Ordering(INBOX, "open", "store", "seq_cst"): "set_owner() publishes the inbox",
    Ordering(GATE, "close", "store", "seq_cst"): "the fence or barrier after it orders",
    Ordering(GATE, "begin", "store", "release"): "nothing was done in the slow path",
    Ordering(TURN, "begin", "store", "release"): "nothing was done in the turn",
    Ordering(MAP, "narrow", "store", "release"): "the bound's release comes after it",
    Ordering(MAP, "operator", "store", "seq_cst"): "read relaxed, by fast paths only",
}


@pytest.fixture(scope="session")
def explorer(build_dir: Path) -> Explorer:
    """The program that explores."""
    program = build_dir / "tests" / "memory_order" / "explore"
    if not program.exists():
        pytest.skip("the explorer is built by gcc, for this machine")
    return Explorer(program)


@pytest.fixture(scope="session")
def names(explorer: Explorer) -> dict[Ordering, list[str]]:
    """Every ordering that the scenarios use."""
    sites: dict[str, tuple[str, str]] = {}
    for scenario in (*EXHAUSTIVE, *LARGE):
        sites |= explorer.run(scenario, "--random", "100").sites
    return explorer.name_sites(sites)


def holds(result: Result) -> None:
    """No execution failed."""
    assert result.status == 0, result.output
    assert result.executions > 0, result.output


def test_every_scenario_is_tested(explorer: Explorer) -> None:
    litmus = {f"litmus_{name}" for name in (*LITMUS, "race")}
    assert set(explorer.scenarios()) == {*EXHAUSTIVE, *LARGE, *litmus}


@pytest.mark.parametrize("name", LITMUS)
def test_the_model_allows_what_the_language_allows(
    name: str, explorer: Explorer
) -> None:
    result = explorer.run(f"litmus_{name}")
    holds(result)
    assert result.complete, result.output
    assert result.outcomes == LITMUS[name]


def test_the_model_finds_a_race_of_plain_accesses(explorer: Explorer) -> None:
    result = explorer.run("litmus_race")
    assert result.failure.startswith("data race"), result.output


def test_a_seed_repeats_an_execution(explorer: Explorer) -> None:
    found = explorer.run("litmus_race", "--random", "1000")
    assert found.seed, found.output
    again = explorer.run("litmus_race", "--random", "1", "--seed", found.seed)
    assert again.failure == found.failure, again.output


@pytest.mark.parametrize("scenario", EXHAUSTIVE)
def test_a_protocol_holds_in_every_execution(scenario: str, explorer: Explorer) -> None:
    result = explorer.run(scenario)
    holds(result)
    assert result.complete, result.output


@pytest.mark.parametrize("scenario", LARGE)
def test_a_protocol_holds_in_many_executions(scenario: str, explorer: Explorer) -> None:
    holds(explorer.run(scenario, "--most", FIRST))
    holds(explorer.run(scenario, "--random", AT_RANDOM))


@pytest.mark.parametrize("weakened", NEEDED, ids=str)
def test_a_weaker_order_is_noticed(
    weakened: Weakened, explorer: Explorer, names: dict[Ordering, list[str]]
) -> None:
    sites = names[weakened.ordering]
    change = f"{','.join(sites)}:{weakened.weaker}"
    way = "--random" if weakened.is_random else "--most"
    result = explorer.run(weakened.scenario, way, "10000", "--weaken", change)
    assert result.failure, result.output


@pytest.mark.parametrize(
    "scenario",
    ["fork_barrier", "collect_barrier", "purge_barrier", "lean", "lean_and_pause"],
)
def test_a_barrier_that_is_left_out_is_noticed(
    scenario: str, explorer: Explorer
) -> None:
    change = f"{BARRIER}:none"
    results = (
        explorer.run(scenario, way, "10000", "--weaken", change)
        for way in ("--most", "--random")
    )
    assert any(result.failure for result in results)


def test_every_order_of_the_protocols_is_accounted_for(
    names: dict[Ordering, list[str]],
) -> None:
    """What is neither needed nor known to be stronger than needed is new, or was never tried."""
    files = (INBOX, REMOTE, SLAB, LOCK, GATE, TURN, MAP)
    used = {name for name in names if name.file in files and name.order != "relaxed"}
    known = {weakened.ordering for weakened in NEEDED} | set(STRONGER)
    assert used == {name for name in known if name.file in files}
