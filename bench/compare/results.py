"""The results as a whole, and each allocator against the best of its peers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.compare import stats
from bench.compare.cases import Case
from bench.compare.lines import Lines
from bench.compare.machine import Machine
from bench.compare.peers import Peer, is_ours
from bench.compare.purging import Purging
from bench.compare.rounds import CaseResult
from bench.compare.stats import Mean, Summary
from bench.compare.syscalls import SystemCalls

REAL_PROGRAMS = "real programs"


@dataclass
class Results:
    """Everything that a comparison found out; ``kind`` is quick, moderate or full."""

    machine: Machine
    started: str
    kind: str
    precision: float
    peers: list[Peer]
    cases: list[CaseResult] = field(default_factory=list)
    system_calls: list[SystemCalls] = field(default_factory=list)
    purging: list[Purging] = field(default_factory=list)
    lines: list[Lines] = field(default_factory=list)
    smallest: dict[str, float] = field(default_factory=dict)  # KiB, one allocation
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        return any(result.failures for result in self.cases)

    @property
    def measured(self) -> list[CaseResult]:
        return [result for result in self.cases if result.runs]

    def of(self, case: Case) -> CaseResult:
        """What there is of a case; nothing yet for one that is new, and then its place."""
        for result in self.cases:
            if result.case.name == case.name:
                return result
        result = CaseResult(case)
        self.cases.append(result)
        return result

    @property
    def compiler(self) -> str:
        """That of the workloads; a real program is not compiled here."""
        cases = sorted(self.measured, key=lambda result: result.case.script)
        runs = (runs[0] for result in cases for runs in result.runs.values())
        return next((run.compiler for run in runs if run.compiler), "unknown")


@dataclass(frozen=True)
class Ratios:
    """Each allocator against the measure: mostly the best of the peers, and then never Allod's."""

    best: str
    of: dict[str, Summary]


RatiosOf = Callable[[CaseResult], Ratios | None]


def _ratios(result: CaseResult, values: Callable[[str], list[float]]) -> Ratios | None:
    candidates = [name for name in result.runs if not is_ours(name)] or [*result.runs]
    if not candidates:
        return None
    best = min(candidates, key=lambda name: stats.summarise(values(name)).median)
    return _against(best, result, values)


def _against(
    base: str, result: CaseResult, values: Callable[[str], list[float]]
) -> Ratios:
    return Ratios(
        base,
        {name: stats.paired_ratio(values(name), values(base)) for name in result.runs},
    )


def ratios_to(base: str, result: CaseResult, of_time: bool) -> Ratios | None:
    """Each allocator against one of them; nothing without that one."""
    if base not in result.runs:
        return None
    return _against(base, result, result.times if of_time else result.peaks)


def time_ratios(result: CaseResult) -> Ratios | None:
    return _ratios(result, result.times)


def memory_ratios(result: CaseResult) -> Ratios | None:
    return _ratios(result, result.peaks)


@dataclass(frozen=True)
class Overview:
    """The geometric means over some cases; best first."""

    title: str
    cases: int
    time: dict[str, Mean]
    memory: dict[str, Mean]


def overviews(results: Results) -> list[Overview]:
    """One for the workloads and one for the real programs, where there are any."""
    programs = [r for r in results.measured if r.case.group == REAL_PROGRAMS]
    workloads = [r for r in results.measured if r.case.group != REAL_PROGRAMS]
    return [
        Overview(
            title, len(cases), _means(cases, time_ratios), _means(cases, memory_ratios)
        )
        for title, cases in (("Workloads", workloads), ("Real programs", programs))
        if cases
    ]


def _means(cases: Sequence[CaseResult], ratios_of: RatiosOf) -> dict[str, Mean]:
    collected: dict[str, list[Summary]] = {}
    for result in cases:
        ratios = ratios_of(result)
        for name, ratio in ratios.of.items() if ratios else ():
            collected.setdefault(name, []).append(ratio)
    means = {name: stats.geometric_mean(each) for name, each in collected.items()}
    return dict(sorted(means.items(), key=lambda item: item[1].value))
