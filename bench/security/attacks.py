"""Attacks that need luck, and how often they succeed.

A case is an attack with blocks of one size, tried many times: each run of programs/attacks.cpp is
one attempt, in a process of its own. Addresses and random choices differ from run to run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compare.peers import Peer
from bench.compare.tables import Cell, Table
from bench.security.cases import CALL, Case
from bench.security.judge import Outcome
from bench.security.suite import Findings

ATTEMPTS = 50
BYTES = (48, 400, 4000)

SPRAY, SPRAY_AND_FREES = "spray", "spray with frees"
OTHER_SIZE = "spray of another size"
OVERFLOW, DISTANCE = "groomed overflow", "known distance"
DOUBLE_FREE, LIST = "double free", "list of free blocks"
ABOUT = {
    SPRAY: "an object is used after its free and so many allocations of its size",
    SPRAY_AND_FREES: "the same after as many frees of other objects, and twice as many allocations",
    OTHER_SIZE: "the same after all objects of its type were freed, and four times as much memory "
    "was allocated in blocks so many times as large",
    OVERFLOW: "attacker's blocks and objects are allocated in turn, and one of the former "
    "overflows by so many times its size",
    DISTANCE: "one write at the distance of two blocks that another process of the program has "
    "shown",
    DOUBLE_FREE: "a block is freed twice, with one in between, after so many frees of others; then "
    "an object is allocated, and blocks of its size",
    LIST: "a freed block gets the address of a static array, as it is (0) or mixed as glibc does "
    "(1)",
}
_NUMBERS = {
    SPRAY: (1, 16, 256, 4096),
    SPRAY_AND_FREES: (16, 256, 4096),
    OTHER_SIZE: (3,),
    OVERFLOW: (1, 4),
    DISTANCE: (0,),
    DOUBLE_FREE: (0, 7),
    LIST: (0, 1),
}
WEAKEST = "glibc"
_LIKELY = 0.5
_NOTICED = frozenset({Outcome.CAUGHT, Outcome.LATE, Outcome.AT_EXIT})


@dataclass(frozen=True)
class Attack(Case):
    """``size`` is in bytes; ``number`` says how much of it there is."""

    number: int

    def command(self, program: Path) -> list[str]:
        return [str(program), self.family, self.size, str(self.number)]


def generate() -> Iterator[Attack]:
    """All attacks, in an order of their own."""
    for family, numbers in _NUMBERS.items():
        for number in numbers:
            for size in BYTES:
                name = f"{family}, {number}" if len(numbers) > 1 else family
                yield Attack(family, name, str(size), CALL, ABOUT[family], number)


def chance(found: Findings, peer: Peer, case: Case) -> float:
    """The share of attempts in which the attacker has won, whatever came after."""
    verdicts = found.verdicts[peer.name][case.key]
    return sum(bool(verdict.harmed) for verdict in verdicts) / len(verdicts)


def _stopped(found: Findings, peer: Peer, case: Case) -> float:
    """The share that was reported or stopped before the attacker had won."""
    verdicts = found.verdicts[peer.name][case.key]
    stopped = [
        each for each in verdicts if not each.harmed and each.outcome in _NOTICED
    ]
    return len(stopped) / len(verdicts)


def _percent(share: float) -> Cell:
    shade = 0 if share == 0 else 1 + round(5 * share)
    return Cell(f"{100 * share:.0f} %", strong=share > _LIKELY, shade=shade)


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)


def likely_on_glibc(found: Findings) -> list[Case]:
    """Those that succeed there more often than not; all, where glibc was not tried."""
    weakest = [peer for peer in found.peers if peer.name == WEAKEST]
    return [
        case
        for case in found.cases
        if all(chance(found, peer, case) > _LIKELY for peer in weakest)
    ]


def by_chance(found: Findings) -> list[Peer]:
    """The allocators: those first where attackers of glibc win least."""
    cases = likely_on_glibc(found)
    if not cases:
        return found.peers
    return sorted(
        found.peers,
        key=lambda peer: _mean([chance(found, peer, case) for case in cases]),
    )


def summary(found: Findings) -> Table:
    """For each allocator the attacker's chance, and that of being stopped before; and what other
    attacks have that fail on glibc."""
    cases = likely_on_glibc(found)
    others = [case for case in found.cases if case not in cases]
    rows = [
        [
            Cell(peer.name),
            _percent(_mean([chance(found, peer, case) for case in cases])),
            Cell(f"{100 * _mean([_stopped(found, peer, c) for c in cases]):.0f} %"),
            Cell(str(sum(chance(found, peer, case) == 0 for case in cases))),
            _percent(_mean([chance(found, peer, c) for c in others]))
            if others
            else Cell(""),
        ]
        for peer in (by_chance(found) if cases else ())
    ]
    return Table(
        f"{len(cases)} attacks that succeed on glibc more often than not",
        [
            "allocator",
            "the attacker wins",
            "is stopped before",
            "attacks that never win",
            f"wins with the {len(others)} others",
        ],
        rows,
    )


def table(found: Findings) -> Table:
    """How often each attack has won."""
    ordered = by_chance(found)
    rows = [
        [Cell(case.title), *(_percent(chance(found, peer, case)) for peer in ordered)]
        for case in found.cases
    ]
    return Table(
        "Every attack", ["attack, bytes", *(each.name for each in ordered)], rows
    )
