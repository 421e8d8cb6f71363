"""What options do to memory: each case holds with them, and not with their contrary."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

import pytest
from surface.black_box import Runner, describe

MIB = 1 << 20
AN_HOUR = {"ALLOD_PURGE_DELAY": "3600000"}
FOUR_MIB = {"ALLOD_PURGE_BUDGET": "4M"}


@dataclass(frozen=True)
class Effect:
    """A case, the variables with which it holds, and some with which it must not."""

    case: str
    variables: dict[str, str]
    contrary: dict[str, str] = field(default_factory=dict)
    deadly: bool = False
    """The contrary is a system call that the case has forbidden."""

    def __str__(self) -> str:
        given = (f"{name}={value}" for name, value in self.variables.items())
        return "-".join([self.case, *given]).replace("ALLOD_", "")


def cached(option: str, most: int, contrary: int) -> Effect:
    """At most so many bytes of blocks of 4 KiB at hand, and at some time just as many."""
    given = {"ALLOD_MAGAZINE_BYTES": option} if option else {}
    return Effect(
        "magazines_keep_as_much_as_told",
        given | {"TEST_MOST_CACHED": str(most)},
        given | {"TEST_MOST_CACHED": str(contrary)},
    )


def regions(option: str, size: int) -> Effect:
    """Reserved addresses come in pieces of this size, those of huge pages apart from others."""
    same = {"ALLOD_HUGE_PAGES": "never", "TEST_REGION_BYTES": str(size)}
    given = {"ALLOD_REGION_SIZE": option} if option else {}
    return Effect(
        "regions_are_as_large_as_told", given | same, same | {"ALLOD_REGION_SIZE": "5M"}
    )


EFFECTS = [
    Effect(
        "memory_goes_back_at_once",
        {"ALLOD_PURGE_DELAY": "0"},
        {"ALLOD_PURGE_DELAY": "-1"},
    ),
    Effect(
        "memory_goes_back_at_once",
        {"ALLOD_PURGE_DELAY": "0", "ALLOD_HUGE_PAGES": "never"},
        {"ALLOD_PURGE_DELAY": "-1", "ALLOD_HUGE_PAGES": "never"},
    ),
    Effect(
        "memory_goes_back_at_once",
        {"ALLOD_PURGE_DELAY": "0", "ALLOD_PURGE_THREAD": "0"},
        AN_HOUR,
    ),
    Effect(
        "memory_stays_until_told",
        {"ALLOD_PURGE_DELAY": "-1"},
        {"ALLOD_PURGE_DELAY": "0"},
    ),
    Effect(
        "memory_stays_until_told",
        {"ALLOD_PURGE_DELAY": "-1", "ALLOD_HUGE_PAGES": "never"},
        {"ALLOD_PURGE_DELAY": "0", "ALLOD_HUGE_PAGES": "never"},
    ),
    Effect(
        "memory_stays_until_told",
        {"ALLOD_PURGE_DELAY": "-1", "ALLOD_PURGE_BUDGET": "0"},
        {"ALLOD_PURGE_DELAY": "0"},
    ),
    Effect(
        "memory_goes_back_while_idle",
        {},
        {"ALLOD_PURGE_DELAY": "-1", "TEST_PATIENCE_MS": "300"},
    ),
    Effect(
        "memory_goes_back_while_idle",
        {"ALLOD_PURGE_DELAY": "20"},
        {
            "ALLOD_PURGE_DELAY": "20",
            "ALLOD_PURGE_THREAD": "0",
            "TEST_PATIENCE_MS": "300",
        },
    ),
    *(
        Effect(case, {}, {"ALLOD_PURGE_DELAY": "-1", "TEST_PATIENCE_MS": "300"})
        for case in (
            "memory_goes_back_while_idle_after_a_fork",
            "memory_goes_back_while_idle_that_was_freed_after_forks",
            "memory_goes_back_while_a_child_is_idle",
        )
    ),
    Effect(
        "memory_goes_back_after_a_child_of_vfork_has_freed_much",
        {},
        {"ALLOD_PURGE_THREAD": "0", "TEST_PATIENCE_MS": "300"},
    ),
    Effect(
        "memory_goes_back_where_nobody_tells_of_whom_it_is",
        {},
        {"ALLOD_PURGE_THREAD": "0", "TEST_PATIENCE_MS": "300"},
    ),
    Effect(
        "memory_that_others_free_goes_back_while_idle",
        {},
        {"ALLOD_PURGE_THREAD": "0", "TEST_PATIENCE_MS": "300"},
    ),
    Effect(
        "memory_that_others_free_stays_until_told",
        {"ALLOD_PURGE_DELAY": "-1"},
        {"ALLOD_PURGE_DELAY": "0"},
    ),
    Effect(
        "memory_goes_back_without_a_thread",
        {"ALLOD_PURGE_DELAY": "20", "ALLOD_PURGE_THREAD": "0"},
        {"ALLOD_PURGE_DELAY": "20"},
        deadly=True,
    ),
    Effect(
        "memory_goes_back_without_a_thread",
        {"ALLOD_PURGE_DELAY": "20", "ALLOD_PURGE_THREAD": "0"},
        AN_HOUR | {"ALLOD_PURGE_THREAD": "0", "TEST_PATIENCE_MS": "300"},
    ),
    Effect(
        "memory_goes_back_while_some_of_it_is_used",
        {"ALLOD_PURGE_DELAY": "20"},
        AN_HOUR | {"TEST_PATIENCE_MS": "300"},
    ),
    Effect(
        "memory_goes_back_while_some_of_it_is_used",
        {"ALLOD_PURGE_DELAY": "20", "ALLOD_PURGE_THREAD": "0"},
        AN_HOUR | {"ALLOD_PURGE_THREAD": "0", "TEST_PATIENCE_MS": "300"},
    ),
    Effect("pages_move_to_large_blocks", {}, {"ALLOD_MOVE_PAGES": "0"}),
    Effect("no_thread_is_started", {"ALLOD_PURGE_THREAD": "0"}, {}, deadly=True),
    Effect(
        "no_thread_is_started",
        {"ALLOD_PURGE_THREAD": "0", "ALLOD_PURGE_DELAY": "1"},
        {"ALLOD_PURGE_DELAY": "1"},
        deadly=True,
    ),
    Effect(
        "budget_of_4_mib_is_kept",
        AN_HOUR | FOUR_MIB | {"ALLOD_PURGE_THREAD": "0"},
        AN_HOUR | {"ALLOD_PURGE_THREAD": "0"},
    ),
    Effect("budget_of_4_mib_is_kept", AN_HOUR | FOUR_MIB, AN_HOUR),
    Effect("budget_of_4_mib_is_kept_among_neighbours", AN_HOUR | FOUR_MIB, AN_HOUR),
    # A step that the helper began under the old budget would end under the new one.
    Effect(
        "budget_is_what_mallopt_says",
        AN_HOUR | {"ALLOD_PURGE_THREAD": "0"},
        {"ALLOD_PURGE_DELAY": "0"},
    ),
    regions("", 64 * MIB),
    regions("1M", MIB),
    regions("3M", 3 * MIB),
    regions("32768K", 32 * MIB),
    cached("", 256 << 10, 28 << 10),
    cached("0", 4 << 10, 8 << 10),
    cached("20K", 20 << 10, 32 << 10),
    # It doubles from 8 blocks: 17, 35, 71, 143; the next would be more than 1 MiB beyond the 8.
    cached("16M", 143 * (4 << 10), 2 << 20),
]

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"ALLOD_MAGAZINE_BYTES": "0"},
    {"ALLOD_MAGAZINE_BYTES": "16M"},
    {"ALLOD_PURGE_DELAY": "0"},
    {"ALLOD_PURGE_DELAY": "1", "ALLOD_PURGE_BUDGET": "0"},
    {"ALLOD_REGION_SIZE": "1M"},
    {
        "ALLOD_MAGAZINE_BYTES": "0",
        "ALLOD_PURGE_DELAY": "0",
        "ALLOD_PURGE_THREAD": "0",
        "ALLOD_REGION_SIZE": "1M",
    },
)


@pytest.mark.parametrize("effect", EFFECTS, ids=str)
def test_effect(effect: Effect, release: Runner) -> None:
    """The case holds."""
    result = release.run_well("memory", effect.case, **effect.variables)
    assert result.stderr == "", describe(result)


@pytest.mark.parametrize("effect", EFFECTS, ids=str)
def test_contrary(effect: Effect, release: Runner) -> None:
    """The case does not hold by itself: with other options it fails."""
    result = release.run("memory", effect.case, **effect.contrary)
    wanted = -signal.SIGSYS if effect.deadly else 1
    assert result.returncode == wanted, describe(result)


@pytest.mark.parametrize("delay", ["-1", "0", "500"])
def test_options_at_run_time_count(delay: str, release: Runner) -> None:
    """What is set by API replaces what the environment said."""
    release.run_well("memory", "options_at_run_time_count", ALLOD_PURGE_DELAY=delay)


@pytest.mark.parametrize("variables", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", ["release", "debug"])
def test_any_setting_is_right(
    variables: dict[str, str], kind: str, request: pytest.FixtureRequest
) -> None:
    """Threads that exchange blocks find them whole, and the heap is in order afterwards."""
    runner: Runner = request.getfixturevalue(kind)
    runner.run_well("memory", "blocks_stay_whole", **variables)
