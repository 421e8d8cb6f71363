"""What changed since an earlier run: for each case and allocator, time and memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.compare import stats
from bench.compare.peers import SUBJECT
from bench.compare.results import Results
from bench.compare.rounds import CaseResult
from bench.compare.stats import Change

TIME, MEMORY = "time", "peak resident size"


@dataclass(frozen=True)
class Entry:
    """How one quantity of one allocator changed in one case."""

    case: str
    peer: str
    what: str
    change: Change


@dataclass(frozen=True)
class Comparison:
    """All changes; ``notes`` says what makes the two runs hard to compare."""

    since: str
    entries: list[Entry]
    notes: list[str]

    @property
    def significant(self) -> list[Entry]:
        """Worst first."""
        found = [entry for entry in self.entries if entry.change.is_significant]
        return sorted(found, key=lambda entry: -entry.change.ratio)

    def drift(self, peer: str, what: str) -> float | None:
        """The geometric mean of an allocator's changes.

        That of an unchanged peer says how much the machine itself changed.
        """
        ratios = [
            stats.summarise([entry.change.ratio])
            for entry in self.entries
            if (entry.peer, entry.what) == (peer, what)
        ]
        return stats.geometric_mean(ratios).value if ratios else None

    def worse_than(self, percent: float) -> list[Entry]:
        """Significant changes for the worse of Allod, or of all if it is not there."""
        peers = {entry.peer for entry in self.entries}
        judged = {SUBJECT} if SUBJECT in peers else peers
        return [
            entry
            for entry in self.significant
            if entry.peer in judged and entry.change.ratio > 1 + percent / 100
        ]


def compare(new: Results, old: Results) -> Comparison:
    """The cases and allocators that both runs have measured in the same way."""
    before = {result.case.name: result for result in old.measured}
    notes = list(_differences(new, old))
    entries: list[Entry] = []
    for result in new.measured:
        other = before.get(result.case.name)
        if other is None:
            notes.append(f"{result.case.name}: not measured then")
        elif _parameters(result) != _parameters(other):
            notes.append(f"{result.case.name}: other parameters then, not compared")
        else:
            entries += _compare_case(result, other)
    return Comparison(old.started, entries, notes)


def _parameters(result: CaseResult) -> object:
    return next(iter(result.runs.values()))[0].params


def _compare_case(new: CaseResult, old: CaseResult) -> Iterator[Entry]:
    def entry(
        name: str, what: str, now: Sequence[float], then: Sequence[float]
    ) -> Entry:
        return Entry(new.case.name, name, what, stats.change(now, then))

    for name in new.runs:
        if name in old.runs:
            yield entry(name, TIME, new.times(name), old.times(name))
            yield entry(name, MEMORY, new.peaks(name), old.peaks(name))


def _differences(new: Results, old: Results) -> Iterator[str]:
    for what in ("cpu", "cores", "kernel", "libc", "transparent_huge_pages"):
        now, then = getattr(new.machine, what), getattr(old.machine, what)
        if now != then:
            yield f"another machine or setting: {what} was {then}, is {now}"
    if new.compiler != old.compiler:
        yield f"the workloads were compiled by {old.compiler}, now {new.compiler}"
    versions = {peer.name: peer.version for peer in old.peers}
    for peer in new.peers:
        then = versions.get(peer.name, peer.version)
        if then != peer.version:
            yield f"{peer.name} was {then}, is {peer.version}"
