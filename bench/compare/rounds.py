"""The interleaved rounds of a case, and what they found."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare import runner, stats, warmth
from bench.compare.cases import Case
from bench.compare.counters import Count
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut, RunError
from bench.compare.run import Run, Series

# The fewest measured rounds for which a median has a 95 % interval, and one to spare.
FEWEST_ROUNDS = 7
# The fewest that are measured however little time there is.
FEWEST_AT_ALL = 3
# Of its share of the time a case takes this part: slow cases need more than theirs.
PART_OF_SHARE = 0.8


@dataclass
class CaseResult:
    """All measured runs of a case, by peer in the order of rounds; failures by peer."""

    case: Case
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)

    def times(self, peer: str) -> list[float]:
        return [run.nanoseconds for run in self.runs[peer]]

    def peaks(self, peer: str) -> list[float]:
        return [float(run.peak_rss_kib) for run in self.runs[peer]]

    def points(self, peer: str) -> dict[str, float]:
        """The median over the runs for each point."""
        return _medians([run.points for run in self.runs[peer]])

    def percentiles(self, peer: str) -> dict[str, dict[str, float]]:
        """The median over the runs for each percentile of each distribution."""
        runs = self.runs[peer]
        return {
            name: _medians([run.percentiles[name] for run in runs])
            for name in runs[0].percentiles
            if all(name in run.percentiles for run in runs)
        }

    def figures(self, peer: str) -> dict[str, list[float]]:
        """The values of each further figure, in the order of rounds."""
        found: dict[str, list[float]] = {}
        for run in self.runs[peer]:
            for figure in run.figures:
                found.setdefault(figure.name, []).append(figure.value)
        return found

    def typical(self, peer: str) -> Run:
        """The run whose time is nearest to the median, of those that have series."""
        runs = self.runs[peer]
        median = statistics.median(self.times(peer))
        return min(
            [run for run in runs if run.series] or runs,
            key=lambda run: abs(run.nanoseconds - median),
        )

    def series(self, peer: str) -> tuple[Series, ...]:
        """What the typical run saw over time."""
        return self.typical(peer).series

    def is_noisy(self, peer: str, precision: float) -> bool:
        """The median is not known as exactly as asked, or many runs were disturbed."""
        runs = self.runs[peer]
        disturbed = sum(run.disturbed for run in runs)
        width = stats.summarise(self.times(peer)).half_width()
        return width > precision or disturbed * 3 > len(runs)


def _medians(maps: Sequence[dict[str, float]]) -> dict[str, float]:
    common = [name for name in maps[0] if all(name in found for found in maps)]
    return {name: statistics.median(found[name] for found in maps) for name in common}


@dataclass(frozen=True)
class Plan:
    """How often and how exactly each case is measured.

    ``seconds`` is the time that all cases together may take, if that is limited.
    """

    quick: bool
    repeats: int
    precision: float
    seconds: float | None = None
    timeout: float = 300.0

    @property
    def rounds(self) -> int:
        """All rounds at most, with the first, which is discarded."""
        return self.repeats + 1


class Budget:
    """Shares the time that is left evenly among the cases that are left."""

    def __init__(
        self,
        plan: Plan,
        cases: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._cases = cases
        self._clock = clock
        self._started = clock()

    @property
    def left(self) -> float | None:
        """Seconds, not below zero; None: as many as are needed."""
        if self._plan.seconds is None:
            return None
        return max(0.0, self._plan.seconds - (self._clock() - self._started))

    def rounds(self, seconds_a_round: float) -> int:
        """How many rounds the case may have of which one has been made, with that."""
        left = self.left
        if left is None:
            return self._plan.rounds
        share = PART_OF_SHARE * left / max(self._cases, 1)
        affordable = int(share / max(seconds_a_round, 1e-3))
        fewest = min(FEWEST_AT_ALL, self._plan.repeats)
        return 1 + max(fewest, min(self._plan.repeats, affordable))

    def end_case(self) -> None:
        self._cases -= 1


def measure(
    programs: Path,
    result: CaseResult,
    peers: Sequence[Peer],
    plan: Plan,
    budget: Budget,
    progress: Callable[[int, int], None],
) -> None:
    """Adds interleaved rounds to ``result``; it stays valid when interrupted.

    Each round runs every peer once and starts with another one. The first round
    warms the machine and is discarded; its length says how many the budget allows.
    Peers that have failed before are left out.
    Every run finds as much warm memory as the largest before it took; where the time is
    not limited, to its end.
    ``progress`` is told how many runs are done, and how many it will be at most.
    LeftOut: the first run says that the machine cannot do this.
    """
    alive = [peer for peer in peers if peer.name not in result.failures]
    before = [run for runs in result.runs.values() for run in runs]
    checksum = before[0].checksum if before else None
    made = max((run.round for run in before), default=0)
    rounds, done, number = plan.rounds, 0, 0
    peak_kib, longest = 0, 0.0
    started = time.monotonic()
    while number < rounds and alive:
        order = _rotated(alive, made + number)
        for place, peer in enumerate(order, 1):
            try:
                # It would take a quick run most of its time.
                warmth.warm(peak_kib, 0 if plan.seconds is not None else longest)
                begun = time.monotonic()
                run = runner.run_once(
                    programs,
                    result.case,
                    peer,
                    quick=plan.quick,
                    number=made + number,
                    timeout=plan.timeout,
                )
                peak_kib = max(peak_kib, run.peak_rss_kib)
                longest = max(longest, time.monotonic() - begun)
                checksum = checksum or run.checksum
                if run.checksum != checksum:
                    raise RunError(
                        f"checksum {run.checksum}, but the others have {checksum}"
                    )
                if number > 0:
                    result.runs.setdefault(peer.name, []).append(run)
            except (RunError, LeftOut) as error:
                if isinstance(error, LeftOut) and done == 0:
                    raise
                result.failures[peer.name] = str(error)
                result.runs.pop(peer.name, None)
                alive.remove(peer)
            done += 1
            later = len(alive) * (rounds - number - 1)
            progress(done, done + len(order) - place + later)
        if number == 0:
            rounds = budget.rounds(time.monotonic() - started)
        if (
            made + number >= FEWEST_ROUNDS
            and number > 0
            and _is_exact(result, plan.precision)
        ):
            break
        number += 1


def _rotated(peers: Sequence[Peer], by: int) -> list[Peer]:
    start = by % len(peers) if peers else 0
    return [*peers[start:], *peers[:start]]


def _is_exact(result: CaseResult, precision: float) -> bool:
    return all(
        stats.summarise(result.times(peer)).half_width() <= precision
        for peer in result.runs
    )
