"""The project's targets, and how far the results are from them."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.compare.peers import SUBJECT, is_ours
from bench.compare.results import (
    REAL_PROGRAMS,
    RatiosOf,
    Results,
    memory_ratios,
    overviews,
    time_ratios,
)
from bench.compare.rounds import CaseResult
from bench.compare.wording import number

# Of the best peer of each workload.
MEAN_LIMIT = 1.00
WORST_TIME_LIMIT = 1.05
WORST_MEMORY_LIMIT = 1.15
# Of the best peer over all real programs.
REAL_TIME_LIMIT = 0.98
SWEEPS = ("sweep", "sweep-threads", "sweep-touch", "sweep-large", "sweep-large-threads")
# Blocks that are not touched, so that no size need cost more than another.
UNTOUCHED = ("sweep", "sweep-threads")
CLIFF_LIMIT = 1.5
SIZE_LIMIT = 1.10
# Fewer than one system call in ten pairs is not one for each operation.
SYSTEM_CALL_LIMIT = 0.1
IDLE = "idle"
RESIDENT = "resident over live after 1 s"
RESIDENT_LIMIT = 1.1
RESIDENT_SPARE_KIB = 2048
FAULTS_LIMIT = 0.5
TAIL_LIMITS = {"99.99": 2_000, "99.999": 20_000}
THREADS = "many-threads-1000"
# As many are named where several miss.
_NAMED = 8


@dataclass(frozen=True)
class Check:
    """One target; ``detail`` says against what, or where it is missed."""

    name: str
    value: float
    limit: float
    detail: str

    @property
    def passed(self) -> bool:
        return self.value <= self.limit


def _named(found: Iterable[tuple[float, str]]) -> str:
    """The worst first."""
    worst = sorted(found, reverse=True)
    text = ", ".join(f"{name} {value:.2f}" for value, name in worst[:_NAMED])
    rest = len(worst) - _NAMED
    return f"{text} and {rest} more" if rest > 0 else text


def _means(results: Results) -> Iterator[Check]:
    for overview in overviews(results):
        name = overview.title.lower()
        others = {k: v.value for k, v in overview.time.items() if not is_ours(k)}
        if not others:
            continue
        if name == REAL_PROGRAMS:
            if SUBJECT in overview.time:
                best = min(others, key=others.__getitem__)
                ratio = overview.time[SUBJECT].value / others[best]
                detail = f"best: {best}"
                yield Check(f"{name}: time", ratio, REAL_TIME_LIMIT, detail)
            continue
        for what, means in (("time", overview.time), ("memory", overview.memory)):
            if SUBJECT in means:
                mean = means[SUBJECT]
                detail = f"geometric mean of {mean.count}, ± {mean.half_width:.1%}"
                yield Check(f"{name}: {what}", mean.value, MEAN_LIMIT, detail)


def _worst(
    results: Results, what: str, ratios_of: RatiosOf, limit: float
) -> Iterator[Check]:
    """Each workload by itself; what no more than a disturbed run has caused is no miss."""
    found: list[tuple[float, str]] = []
    for result in results.measured:
        ratios = ratios_of(result)
        if ratios is None or SUBJECT not in ratios.of or is_ours(ratios.best):
            continue
        ratio = ratios.of[SUBJECT]
        least = ratio.low if ratio.low is not None else ratio.smallest
        found.append((least, result.case.name))
    if found:
        above = [each for each in found if each[0] > limit]
        detail = f"{len(above)} of {len(found)} above" + (
            f": {_named(above)}" if above else ""
        )
        yield Check(f"every workload: {what}", max(found)[0], limit, detail)


def _sweep(result: CaseResult) -> Iterator[Check]:
    name = result.case.name
    points = {int(size): value for size, value in result.points(SUBJECT).items()}
    if not points:
        return
    dearest = max(points, key=points.__getitem__)
    cheapest = min(points, key=points.__getitem__)
    if name in UNTOUCHED:
        yield Check(
            f"{name}: the dearest size against the cheapest",
            points[dearest] / points[cheapest],
            CLIFF_LIMIT,
            f"{points[dearest]:.1f} ns at {dearest} B, "
            f"{points[cheapest]:.1f} ns at {cheapest} B",
        )
    best: dict[int, float] = {}
    for peer in result.runs:
        for size, value in result.points(peer).items() if not is_ours(peer) else ():
            best[int(size)] = min(value, best.get(int(size), value))
    ratios = {size: points[size] / best[size] for size in points if size in best}
    if ratios:
        worst = max(ratios, key=ratios.__getitem__)
        above = sum(ratio > SIZE_LIMIT for ratio in ratios.values())
        yield Check(
            f"{name}: any size against its best peer",
            ratios[worst],
            SIZE_LIMIT,
            f"{above} of {len(ratios)} sizes above, most at {worst} B",
        )


def _idle(result: CaseResult) -> Iterator[Check]:
    resident = result.figures(SUBJECT).get(RESIDENT)
    if resident:
        live = [s.points[-1][1] for s in result.series(SUBJECT) if s.name == "live"]
        spare = RESIDENT_SPARE_KIB / live[0] if live and live[0] > 0 else 0.0
        others = {
            peer: statistics.median(result.figures(peer)[RESIDENT])
            for peer in result.runs
            if not is_ours(peer) and RESIDENT in result.figures(peer)
        }
        yield Check(
            f"{IDLE}: {RESIDENT}",
            statistics.median(resident),
            RESIDENT_LIMIT + spare,
            f"best peer: {min(others.values()):.2f}" if others else "",
        )
    faults = {
        peer: statistics.median(run.minor_faults for run in runs)
        for peer, runs in result.runs.items()
    }
    others = {peer: count for peer, count in faults.items() if not is_ours(peer)}
    if others and min(others.values()) > 0:
        best = min(others, key=others.__getitem__)
        yield Check(
            f"{IDLE}: page faults",
            faults[SUBJECT] / others[best],
            FAULTS_LIMIT,
            f"best: {best} with {number(others[best])}",
        )


def _tail(result: CaseResult) -> Iterator[Check]:
    for call in ("malloc", "free"):
        found = result.percentiles(SUBJECT).get(call, {})
        for percentile, limit in TAIL_LIMITS.items():
            if percentile not in found:
                continue
            others = [
                result.percentiles(peer)[call][percentile]
                for peer in result.runs
                if not is_ours(peer)
                and percentile in result.percentiles(peer).get(call, {})
            ]
            detail = f"best peer: {min(others):.0f}" if others else ""
            name = f"latency: {call}, {percentile} %, in ns"
            yield Check(name, found[percentile], float(limit), detail)


def _threads(result: CaseResult) -> Iterator[Check]:
    for what, ratios_of in (("time", time_ratios), ("memory", memory_ratios)):
        ratios = ratios_of(result)
        if ratios is not None and SUBJECT in ratios.of and not is_ours(ratios.best):
            detail = f"best: {ratios.best}"
            ratio = ratios.of[SUBJECT].median
            yield Check(f"{result.case.name}: {what}", ratio, MEAN_LIMIT, detail)


def check(results: Results) -> list[Check]:
    """Every target that the results say something about."""
    checks = [
        *_means(results),
        *_worst(results, "time", time_ratios, WORST_TIME_LIMIT),
        *_worst(results, "memory", memory_ratios, WORST_MEMORY_LIMIT),
    ]
    kinds = {**dict.fromkeys(SWEEPS, _sweep), IDLE: _idle, "latency": _tail}
    kinds[THREADS] = _threads
    for result in results.measured:
        kind = kinds.get(result.case.name)
        if kind is not None and SUBJECT in result.runs:
            checks += kind(result)
    for calls in results.system_calls:
        if calls.peer == SUBJECT:
            size, worst = calls.worst
            checks.append(
                Check(
                    "sweep: system calls for each pair",
                    worst,
                    SYSTEM_CALL_LIMIT,
                    f"most at {size} B",
                )
            )
    return checks
