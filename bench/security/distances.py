"""Generated defects: writes at many distances from blocks of many sizes, and their like.

A case is one run of programs/strays.cpp. What a write hits decides whether anybody can know of it:
memory that the program has in use belongs to somebody, and only the program finds out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compare.peers import Peer
from bench.compare.tables import Cell, Table
from bench.security.cases import ACCESS, CALL, Case
from bench.security.judge import Outcome
from bench.security.suite import Findings

MIB = 1 << 20
BYTES = (8, 24, 40, 100, 200, 1000, 4000, 20_000, 100_000, 300_000, 2 * MIB, 5 * MIB)

WRITE, LATE_WRITE, DELETE = "stray write", "write after free", "sized delete"
ABOUT = {
    WRITE: "a write so many bytes behind the end of a block, or, if negative, before its start",
    LATE_WRITE: "a write of one byte after the free and so many frees of other blocks",
    DELETE: "a sized delete that claims so many bytes more than were asked for",
}

# Of the blocks beside the one that is left: in use, free again, just freed, or perhaps never had.
NEIGHBOURS = ("used", "free", "waiting", "new")
# A store of one byte, or a copy from the block to there; "kept": nothing is freed after it.
WAYS = ("store", "memcpy", "store, kept")
_BEHIND = (0, 7, 8, 15, 16, 33, 64, 256, 1000, 4096, 64 << 10, MIB)
DISTANCES = (*(-1 - distance for distance in reversed(_BEHIND)), *_BEHIND)

PLACES = ("first", "middle", "last")
FREES = (0, 30, 100, 200)

FAMILIES_OF_DELETE = ("scalar", "array")
DIFFERENCES = (-8, -1, 1, 8)


@dataclass(frozen=True)
class Stray(Case):
    """``size`` is in bytes; ``number`` is the distance, or what stands in its place."""

    state: str
    how: str
    number: int

    def command(self, program: Path) -> list[str]:
        given = (self.family, self.size, self.state, self.how, str(self.number))
        return [str(program), *given]


def _stray(family: str, size: int, state: str, how: str, number: int) -> Stray:
    name = f"{state}, {how}, {number:+}"
    kind = CALL if family == DELETE else ACCESS
    return Stray(family, name, str(size), kind, ABOUT[family], state, how, number)


def generate() -> Iterator[Stray]:
    """All cases, in an order of their own."""
    for size in BYTES:
        for number in DISTANCES:
            for state in NEIGHBOURS:
                for how in WAYS:
                    yield _stray(WRITE, size, state, how, number)
        for number in FREES:
            for state in PLACES:
                for how in ("store", "store, kept"):
                    yield _stray(LATE_WRITE, size, state, how, number)
        for number in DIFFERENCES:
            for state in FAMILIES_OF_DELETE:
                yield _stray(DELETE, size, state, "delete", number)


def hits_the_program(found: Findings, peer: Peer | str, case: Case) -> bool:
    """Whether memory in use was changed, and nobody but the program has noticed."""
    return found.of(peer, case).outcome is Outcome.MISSED


NOTICED = frozenset({Outcome.CAUGHT, Outcome.LATE, Outcome.AT_EXIT})


def is_noticed(found: Findings, peer: Peer | str, case: Case) -> bool:
    """In every run, at whatever time."""
    return found.of(peer, case).outcome in NOTICED


def _cell(found: Findings, peer: Peer, cases: Sequence[Case]) -> Cell:
    noticed = sum(is_noticed(found, peer, case) for case in cases)
    in_use = sum(hits_the_program(found, peer, case) for case in cases)
    known = len(cases) - in_use
    text = f"{noticed}/{known}" if known else "–"
    share = noticed / known if known else 1
    return Cell(
        text + (f" + {in_use}" if in_use else ""),
        strong=noticed < known,
        shade=0 if share == 1 else 6 - round(4 * share),
    )


def table(found: Findings, peer: Peer, family: str) -> Table:
    """By size and distance, how many were noticed of those that hit no memory in use."""
    cases = [
        case
        for case in found.cases
        if isinstance(case, Stray) and case.family == family
    ]
    numbers = sorted({case.number for case in cases})
    sizes = sorted({int(case.size) for case in cases})
    rows = []
    for size in sizes:
        of_size = [case for case in cases if int(case.size) == size]
        cells = [
            _cell(found, peer, [case for case in of_size if case.number == number])
            for number in numbers
        ]
        rows.append([Cell(f"{size:,}"), *cells])
    return Table(
        f"{peer.name}: {family}",
        ["bytes", *(f"{number:,}" for number in numbers)],
        rows,
    )


def summary(found: Findings) -> Table:
    """For each allocator and kind, how many were noticed of those that could be."""
    families = list(found.families)
    rows = [
        [
            Cell(peer.name),
            *(_cell(found, peer, found.families[family]) for family in families),
        ]
        for peer in found.peers
    ]
    return Table(
        f"Noticed, of {len(found.cases)} generated cases",
        ["allocator", *families],
        rows,
    )
