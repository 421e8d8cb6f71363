"""The project's targets, and how far the results are from them."""

from collections.abc import Iterator
from dataclasses import dataclass

from bench.compare.peers import SUBJECT
from bench.compare.results import Ratios, Results, memory_ratios, time_ratios
from bench.compare.rounds import CaseResult

TIME_LIMITS = {"immediate": 1.00, "replace": 1.00, "tree": 1.00, "prodcons": 1.10}
MEMORY_LIMITS = dict.fromkeys([*TIME_LIMITS, "sweep"], 1.10)
SWEEP_LIMIT = 2.0
CHEAPEST_ABOVE = 1024
# Fewer than one system call in ten pairs is not one for each operation.
SYSTEM_CALL_LIMIT = 0.1


@dataclass(frozen=True)
class Check:
    """One target; ``detail`` says against what, and how exactly the value is known."""

    name: str
    value: float
    limit: float
    detail: str

    @property
    def passed(self) -> bool:
        return self.value <= self.limit


def _against_best(
    name: str, ratios: Ratios | None, limit: float | None
) -> Iterator[Check]:
    if (
        ratios is None
        or limit is None
        or SUBJECT not in ratios.of
        or ratios.best == SUBJECT
    ):
        return
    ratio = ratios.of[SUBJECT]
    detail = f"best: {ratios.best}"
    if ratio.low is None or ratio.high is None:
        detail += "; too few runs for an interval"
    else:
        detail += f"; 95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
        if ratio.low <= limit < ratio.high:
            detail += ", so not certain"
    yield Check(name, ratio.median, limit, detail)


def _sweep(result: CaseResult) -> Iterator[Check]:
    points = {int(size): value for size, value in result.points(SUBJECT).items()}
    worst = max(points, key=points.__getitem__)
    large = [size for size in points if size > CHEAPEST_ABOVE]
    cheapest = min(large, key=points.__getitem__)
    yield Check(
        "sweep: most expensive size against the cheapest above 1 KiB",
        points[worst] / points[cheapest],
        SWEEP_LIMIT,
        f"{points[worst]:.1f} ns at {worst} B, "
        f"{points[cheapest]:.1f} ns at {cheapest} B",
    )


def check(results: Results) -> list[Check]:
    """Every target that the results say something about."""
    checks: list[Check] = []
    for result in results.cases:
        name = result.case.name
        checks += _against_best(
            f"{name}: time", time_ratios(result), TIME_LIMITS.get(name)
        )
        if name == "sweep" and SUBJECT in result.runs:
            checks += _sweep(result)
        checks += _against_best(
            f"{name}: peak resident size",
            memory_ratios(result),
            MEMORY_LIMITS.get(name),
        )
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
