"""The project's targets, and how far the results are from them."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from bench.compare.peers import LIBC, SUBJECT, is_ours
from bench.compare.results import (
    REAL_PROGRAMS,
    RatiosOf,
    Results,
    memory_ratios,
    overviews,
    time_ratios,
)
from bench.compare.rounds import CaseResult
from bench.compare.stats import Summary
from bench.compare.wording import number

# Of the best peer of each workload.
MEAN_LIMIT = 1.00
WORST_TIME_LIMIT = 1.05
WORST_MEMORY_LIMIT = 1.15
# Of the best peer over all real programs.
REAL_TIME_LIMIT = 0.98
# Blocks that are not touched, so that no size need cost more than another.
UNTOUCHED = ("sweep", "sweep-threads", "sweep-crowd")
SWEEPS = (*UNTOUCHED, "sweep-touch", "sweep-large", "sweep-large-threads")
CLIFF_LIMIT = 1.5
SIZE_LIMIT = 1.10
# Fewer than one system call in ten pairs is not one for each operation.
SYSTEM_CALL_LIMIT = 0.1
IDLE = "idle"
IDLE_SECONDS = 1.0
RESIDENT_LIMIT = 1.1
RESIDENT_SPARE_KIB = 2048
GROWING = (IDLE, "phases", "survivors", "tree", "calloc", "locality")
FAULTS_LIMIT = 0.5
LATENCY = "latency"
TAIL_LIMITS = {"99.99": 2_000, "99.999": 20_000}
THREADS = "many-threads-1000"
IDLE_THREADS = ("many-threads", THREADS)
IDLE_THREAD = "memory per idle thread"
IDLE_THREAD_LIMIT_KIB = 16
# A percent of the calls may be the system's, or strace's.
HELD_LIMIT_US = 100.0
HELPER_LIMIT = 0.01
# What a program that does nothing may have more than with the C library alone.
SMALLEST_LIMIT_KIB = 300.0
# The same for four blocks of each class up to 16 KiB.
CLASSES_LIMIT_KIB = 600.0
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


def _failures(results: Results) -> Check:
    """What has failed is missing from all other targets."""
    failed = [each.case.name for each in results.cases if SUBJECT in each.failures]
    name = "every workload: failures"
    return Check(name, float(len(failed)), 0.0, ", ".join(failed))


def _means(results: Results) -> Iterator[Check]:
    for overview in overviews(results):
        name = overview.title.lower()
        for what, means in (("time", overview.time), ("memory", overview.memory)):
            if SUBJECT in means and (name, what) != (REAL_PROGRAMS, "time"):
                mean = means[SUBJECT]
                detail = f"geometric mean of {mean.count}, ± {mean.half_width:.1%}"
                yield Check(f"{name}: {what}", mean.value, MEAN_LIMIT, detail)


def _real_programs(results: Results) -> Iterator[Check]:
    """Against the peer that is best over all programs, each over those that it ran."""
    against: dict[str, list[float]] = {}
    for result in results.measured:
        ratios = time_ratios(result)
        if result.case.group != REAL_PROGRAMS or not ratios or SUBJECT not in ratios.of:
            continue
        for peer, ratio in ratios.of.items():
            if not is_ours(peer):
                ours = ratios.of[SUBJECT].median
                against.setdefault(peer, []).append(ours / ratio.median)
    means = {peer: statistics.geometric_mean(each) for peer, each in against.items()}
    if means:
        best = max(means, key=means.__getitem__)
        detail = f"geometric mean of {len(against[best])}, best: {best}"
        yield Check(f"{REAL_PROGRAMS}: time", means[best], REAL_TIME_LIMIT, detail)


def _surely(ratio: Summary) -> float:
    """What no more than a disturbed run has caused is no miss."""
    return ratio.low if ratio.low is not None else ratio.smallest


def _worst(
    results: Results,
    what: str,
    ratios_of: RatiosOf,
    judged: Callable[[Summary], float],
    limit: float,
) -> Iterator[Check]:
    """Each workload by itself."""
    found: list[tuple[float, str]] = []
    for result in results.measured:
        ratios = ratios_of(result)
        if ratios is not None and SUBJECT in ratios.of:
            found.append((judged(ratios.of[SUBJECT]), result.case.name))
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


def _resident(result: CaseResult, peer: str) -> float | None:
    """All that is resident a second after the peak, over what is live, in KiB both."""
    series = {each.name: each.points for each in result.series(peer)}
    late = [kib for at, kib in series.get("resident", ()) if at >= IDLE_SECONDS]
    live = [kib for _, kib in series.get("live", ())]
    return late[0] / live[0] if late and live and live[0] > 0 else None


def _idle(result: CaseResult) -> Iterator[Check]:
    ours = _resident(result, SUBJECT)
    if ours is None:
        return
    live = next(s.points[0][1] for s in result.series(SUBJECT) if s.name == "live")
    found = [_resident(result, peer) for peer in result.runs if not is_ours(peer)]
    others = [each for each in found if each is not None]
    yield Check(
        f"{IDLE}: resident over live memory after a second",
        ours,
        RESIDENT_LIMIT + RESIDENT_SPARE_KIB / live,
        f"best peer: {min(others):.2f}" if others else "",
    )


def _faults(result: CaseResult) -> Iterator[Check]:
    faults = {
        peer: statistics.median(run.minor_faults for run in runs)
        for peer, runs in result.runs.items()
    }
    best = min((peer for peer in faults if not is_ours(peer)), key=faults.__getitem__)
    yield Check(
        f"{result.case.name}: page faults",
        faults[SUBJECT] / max(faults[best], 1),
        FAULTS_LIMIT,
        f"{number(faults[SUBJECT])}; {best}: {number(faults[best])}",
    )


def _tail(result: CaseResult) -> Iterator[Check]:
    floor = result.percentiles(SUBJECT).get("nothing", {})
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
            details = [f"best peer: {min(others):.0f}"] if others else []
            if percentile in floor:
                details.append(f"no call at all: {floor[percentile]:.0f}")
            name = f"{LATENCY}: {call}, {percentile} %, in ns"
            yield Check(name, found[percentile], float(limit), ", ".join(details))


def _threads(result: CaseResult) -> Iterator[Check]:
    name = result.case.name
    for what, ratios_of in (("time", time_ratios), ("memory", memory_ratios)):
        ratios = ratios_of(result)
        if ratios is not None:
            detail = f"best: {ratios.best}"
            ratio = ratios.of[SUBJECT].median
            yield Check(f"{name}: {what}", ratio, MEAN_LIMIT, detail)


def _idle_threads(result: CaseResult) -> Iterator[Check]:
    kept = {
        peer: statistics.median(figures[IDLE_THREAD])
        for peer in result.runs
        if IDLE_THREAD in (figures := result.figures(peer))
    }
    others = [value for peer, value in kept.items() if not is_ours(peer)]
    if SUBJECT in kept:
        yield Check(
            f"{result.case.name}: {IDLE_THREAD}, in KiB",
            kept[SUBJECT],
            IDLE_THREAD_LIMIT_KIB,
            f"best peer: {min(others):.1f}" if others else "",
        )


_KINDS: tuple[tuple[tuple[str, ...], Callable[[CaseResult], Iterator[Check]]], ...] = (
    (SWEEPS, _sweep),
    ((IDLE,), _idle),
    (GROWING, _faults),
    ((LATENCY,), _tail),
    ((THREADS,), _threads),
    (IDLE_THREADS, _idle_threads),
)


def _purging(results: Results) -> Iterator[Check]:
    for cost in results.purging:
        if cost.peer == SUBJECT:
            yield Check(
                f"{cost.case}: who frees waits for the system, 99 %, in µs",
                cost.held_us,
                HELD_LIMIT_US,
                f"{cost.calls} calls, with what strace adds",
            )
            yield Check(
                f"{cost.case}: the helper's part of the processor time",
                cost.helper_share,
                HELPER_LIMIT,
                "",
            )


def _smallest(results: Results) -> Iterator[Check]:
    if {SUBJECT, LIBC} <= results.smallest.keys():
        plain = results.smallest[LIBC]
        yield Check(
            f"a program that does nothing: more memory than with {LIBC}, in KiB",
            results.smallest[SUBJECT] - plain,
            SMALLEST_LIMIT_KIB,
            f"{LIBC}: {number(plain)}",
        )


def check(results: Results) -> list[Check]:
    """Every target that the results say something about.

    Nothing is said of a case that none of the peers has run: Allod is no measure.
    """
    compared = replace(
        results,
        cases=[
            result
            for result in results.cases
            if any(not is_ours(peer) for peer in result.runs)
        ],
    )
    checks = [
        _failures(results),
        *_means(compared),
        *_real_programs(compared),
        *_worst(
            *(compared, "time, at the end of its noise", time_ratios),
            *(_surely, WORST_TIME_LIMIT),
        ),
        *_worst(
            *(compared, "memory", memory_ratios),
            *(lambda ratio: ratio.median, WORST_MEMORY_LIMIT),
        ),
    ]
    for names, kind in _KINDS:
        for result in compared.measured:
            if result.case.name in names and SUBJECT in result.runs:
                checks += kind(result)
    for calls in results.system_calls:
        if calls.peer == SUBJECT:
            size, worst = calls.worst
            name = "sweep: system calls for each pair"
            checks.append(Check(name, worst, SYSTEM_CALL_LIMIT, f"most at {size} B"))
    return [*checks, *_purging(results), *_smallest(results)]
