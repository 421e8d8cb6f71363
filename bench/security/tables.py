"""What was found, as tables for Markdown and for HTML."""

from collections import Counter
from collections.abc import Sequence

from bench.compare.peers import Peer
from bench.compare.tables import Cell, Table
from bench.security.cases import Case
from bench.security.judge import MEANING, Outcome
from bench.security.suite import Findings

# The steps of the report's colours, from good to bad.
_SHADES = {
    Outcome.CAUGHT: 0,
    Outcome.HARMLESS: 1,
    Outcome.LATE: 3,
    Outcome.AT_EXIT: 3,
    Outcome.CRASHED: 5,
    Outcome.HUNG: 5,
    Outcome.MISSED: 6,
}
_NOTICED = (Outcome.CAUGHT, Outcome.LATE, Outcome.AT_EXIT)
_GOOD = (*_NOTICED, Outcome.HARMLESS)


def _count(
    found: Findings, peer: Peer, cases: Sequence[Case], of: Sequence[Outcome]
) -> int:
    return sum(found.of(peer, case).outcome in of for case in cases)


def by_success(found: Findings) -> list[Peer]:
    """The allocators: fewest defects that did harm first, then most that were noticed."""

    def place(peer: Peer) -> tuple[int, int]:
        good = _count(found, peer, found.cases, _GOOD)
        return -good, -_count(found, peer, found.cases, _NOTICED)

    return sorted(found.peers, key=place)


def summary(found: Findings) -> Table:
    """How often each allocator did what."""
    shown = [each for each in Outcome if each is not Outcome.FAILED or found.failed]
    rows = []
    for peer in by_success(found):
        counts = Counter(found.of(peer, case).outcome for case in found.cases)
        rows.append([Cell(peer.name), *(Cell(str(counts[each])) for each in shown)])
    return Table(f"Outcomes of {len(found.cases)} cases", ["allocator", *shown], rows)


def families(found: Findings) -> Table:
    """For each family, the defects noticed, and those that did no harm besides."""
    rows = []
    for family, cases in found.families.items():
        row = [Cell(family), Cell(str(len(cases)))]
        for peer in by_success(found):
            noticed = _count(found, peer, cases, _NOTICED)
            harmless = _count(found, peer, cases, [Outcome.HARMLESS])
            text = f"{noticed} + {harmless}" if harmless else str(noticed)
            share = (noticed + harmless) / len(cases)
            row.append(Cell(text, shade=0 if share == 1 else 6 - round(4 * share)))
        rows.append(row)
    names = [peer.name for peer in by_success(found)]
    return Table(
        "Noticed, + harmless, of each family", ["family", "cases", *names], rows
    )


def matrix(found: Findings, family: str) -> Table:
    """Each case of a family under each allocator."""
    peers = by_success(found)
    rows = []
    for case in found.families[family]:
        verdicts = [found.of(peer, case) for peer in peers]
        cells = [
            Cell(
                verdict.text,
                strong=verdict.outcome is Outcome.MISSED,
                shade=_SHADES.get(verdict.outcome),
            )
            for verdict in verdicts
        ]
        rows.append([Cell(case.title), *cells])
    every = frozenset(range(len(peers) + 1))
    header = [family, *(peer.name for peer in peers)]
    return Table(family.capitalize(), header, rows, every)


def evidence(found: Findings, peer: Peer) -> Table:
    """How each program ended under an allocator, and what was said."""
    rows = []
    for case in found.cases:
        verdict = found.of(peer, case)
        rows.append(
            [
                Cell(case.key),
                Cell(verdict.text, shade=_SHADES.get(verdict.outcome)),
                Cell(verdict.ended),
                Cell(verdict.message or "–"),
                Cell(verdict.harmed or "–"),
            ]
        )
    header = ["case", "outcome", "end of the process", "what was said", "harm"]
    return Table(f"Evidence: {peer.name}", header, rows, frozenset(range(5)))


def cases(found: Findings) -> Table:
    """What each program does."""
    about = {(case.family, case.name): case.about for case in found.cases}
    rows = [[Cell(f), Cell(n), Cell(text)] for (f, n), text in about.items()]
    header = ["family", "defect", "what the program does"]
    return Table("The defects", header, rows, frozenset(range(3)))


def meaning(found: Findings) -> Table:
    """What the words mean."""
    rows = [
        [Cell(outcome), Cell(text)]
        for outcome, text in MEANING.items()
        if outcome is not Outcome.FAILED or found.failed
    ]
    rows.append([Cell("late*, at exit*"), Cell("only after the program was harmed")])
    return Table("The words", ["word", "meaning"], rows, frozenset({0, 1}))


def setting(found: Findings) -> Table:
    """What was run on what."""
    machine = found.machine
    rows = [
        ["date", found.started],
        ["system", f"{machine.system}, {machine.kernel}, {machine.libc}"],
        ["runs of each case", str(found.repeats)],
        *([peer.name, peer.version] for peer in found.peers),
    ]
    cells = [[Cell(text) for text in row] for row in rows]
    return Table("Setting", ["what", "value"], cells, frozenset({0, 1}))
