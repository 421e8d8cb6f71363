"""The report's tables, for Markdown and for HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.compare import stats, wording
from bench.compare.lines import Lines
from bench.compare.regressions import MEMORY, TIME, Comparison
from bench.compare.results import (
    Overview,
    Ratios,
    RatiosOf,
    Results,
    memory_ratios,
    time_ratios,
)
from bench.compare.rounds import CaseResult
from bench.compare.run import Run
from bench.compare.targets import Check


@dataclass(frozen=True)
class Cell:
    """``ratio`` is against the best, for a colour; or ``shade`` is one; None has none."""

    text: str
    strong: bool = False
    ratio: float | None = None
    shade: int | None = None


@dataclass(frozen=True)
class Table:
    """The first column and those in ``words`` hold text, the others figures."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset({0})


def _plain(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: frozenset[int] = frozenset({0}),
) -> Table:
    return Table(title, header, [[Cell(text) for text in row] for row in rows], words)


def overview(found: Overview) -> Table:
    """The geometric means, best time first."""
    rows = []
    for name, time in found.time.items():
        memory = found.memory[name]
        rows.append(
            [
                Cell(name),
                Cell(f"{time.value:.3f}", ratio=time.value),
                Cell(f"{time.half_width:.1%}"),
                Cell(f"{memory.value:.3f}", ratio=memory.value),
                Cell(f"{memory.half_width:.1%}"),
                Cell(f"{time.count} of {found.cases}"),
            ]
        )
    header = ["allocator", "time", "±", "peak memory", "±", "cases"]
    return Table(f"{found.title}: geometric means", header, rows)


def ratios(results: Results, of_time: bool) -> Table:
    """Every case against the best peer."""
    names = [peer.name for peer in results.peers]
    ratios_of: RatiosOf = time_ratios if of_time else memory_ratios
    rows = []
    for result in results.cases:
        found = ratios_of(result)
        if found is None:
            continue
        values = result.times(found.best) if of_time else result.peaks(found.best)
        best = (wording.duration if of_time else wording.size)(median(values))
        row = ratio_cells(result, found, names, results.precision, of_time)
        rows.append([Cell(result.case.name), Cell(best), *row])
    title = "Time" if of_time else "Peak resident size"
    return Table(
        f"{title} against the best peer", ["workload", "1.00 is", *names], rows
    )


def ratio_cells(
    result: CaseResult,
    found: Ratios,
    names: Sequence[str],
    precision: float,
    of_time: bool,
) -> list[Cell]:
    """A case's ratios, in the order of the names."""
    cells = []
    for name in names:
        if name not in found.of:
            cells.append(Cell("failed" if name in result.failures else "–"))
            continue
        ratio = found.of[name].median
        noisy = _is_noisy(result, name, precision, of_time)
        text = f"{ratio:.2f}" + (" ~" if noisy else "")
        cells.append(Cell(text, name == found.best, ratio))
    return cells


def _is_noisy(result: CaseResult, name: str, precision: float, of_time: bool) -> bool:
    if of_time:
        return result.is_noisy(name, precision)
    return stats.summarise(result.peaks(name)).half_width() > precision


def case(result: CaseResult, precision: float) -> Table:
    """What was measured of each allocator; medians, best time first."""
    rows = []
    for name in by_time(result):
        runs = result.runs[name]
        time = stats.summarise(result.times(name))

        def middle(quantity: str, runs: Sequence[Run] = runs) -> float:
            return median([float(getattr(run, quantity)) for run in runs])

        interval = "–"
        if time.low is not None and time.high is not None:
            low, high = wording.duration(time.low), wording.duration(time.high)
            interval = f"{low} to {high}"
        switches = middle("voluntary_switches") + middle("involuntary_switches")
        rows.append(
            [
                name + (" ~" if result.is_noisy(name, precision) else ""),
                wording.duration(time.median),
                wording.duration(time.deviation),
                interval,
                wording.number(middle("peak_rss_kib") / 1024),
                wording.number(middle("final_rss_kib") / 1024),
                wording.number(middle("minor_faults")),
                wording.number(middle("major_faults")),
                wording.number(switches),
                f"{middle('user_seconds'):.3f}",
                f"{middle('system_seconds'):.3f}",
                str(len(runs)),
            ]
        )
    header = [
        *("allocator", "time/op", "MAD", "95 % of the median", "peak MiB", "final MiB"),
        *("minor faults", "major faults", "switches", "user s", "system s", "runs"),
    ]
    return _plain("Figures", header, rows)


def by_time(result: CaseResult) -> list[str]:
    """The allocators of a case, the fastest first."""
    return sorted(result.runs, key=lambda name: median(result.times(name)))


def details(result: CaseResult) -> list[Table]:
    """What only some workloads have: figures, percentiles, points, counted events."""
    names = by_time(result)
    found = []
    for title, values in (
        ("Further figures", {name: _figures(result, name) for name in names}),
        ("Percentiles", {name: _percentiles(result, name) for name in names}),
        ("Points", {name: _points(result, name) for name in names}),
        ("Counted for each operation", {name: _counts(result, name) for name in names}),
    ):
        rows = list(dict.fromkeys(key for each in values.values() for key in each))
        cells = [[key, *(values[name].get(key, "–") for name in names)] for key in rows]
        if cells:
            found.append(_plain(title, ["", *names], cells))
    return found


def _figures(result: CaseResult, name: str) -> dict[str, str]:
    units = {each.name: each.unit for run in result.runs[name] for each in run.figures}
    return {
        f"{figure}{', ' + units[figure] if units[figure] else ''}": wording.number(
            median(values)
        )
        for figure, values in result.figures(name).items()
    }


def _percentiles(result: CaseResult, name: str) -> dict[str, str]:
    return {
        f"{what} {percentile} %": wording.duration(value)
        for what, values in result.percentiles(name).items()
        for percentile, value in values.items()
    }


def _points(result: CaseResult, name: str) -> dict[str, str]:
    return {
        point: wording.duration(value) for point, value in result.points(name).items()
    }


def _counts(result: CaseResult, name: str) -> dict[str, str]:
    if name not in result.counts:
        return {}
    count = result.counts[name]
    return {
        f"{event} ({count.tool})": wording.number(value)
        for event, value in count.events.items()
    }


def system_calls(results: Results) -> Table:
    """The sweep's system calls."""
    rows = []
    for calls in results.system_calls:
        at, worst = calls.worst
        often = sum(value >= 1 for value in calls.per_pair.values())
        rows.append([calls.peer, f"{worst:.3f}", str(at), str(often)])
    header = [
        *("allocator", "most for a pair", "at size (B)"),
        "sizes with one or more for each pair",
    ]
    return _plain("System calls in the sweep", header, rows)


def purging(results: Results) -> Table:
    """What it costs that memory goes back."""
    rows = [
        [
            *(cost.case, cost.peer, str(cost.calls), wording.number(cost.held_us)),
            f"{cost.helper_share:.1%}",
        ]
        for cost in results.purging
    ]
    header = [
        *("workload", "allocator", "calls by the program's threads"),
        *("99 % of them, at most, in µs", "processor time of a helper"),
    ]
    return _plain("Memory given back", header, rows, frozenset({0, 1}))


def smallest(results: Results) -> Table:
    """What a program needs at least."""
    least_first = sorted(results.smallest.items(), key=lambda item: item[1])
    rows = [[name, f"{kib:.0f}"] for name, kib in least_first]
    header = ["allocator", "resident size of a program with one allocation, in KiB"]
    return _plain("The smallest program", header, rows)


def lines_of(results: Results) -> dict[str, list[Lines]]:
    """What was counted of each case."""
    found: dict[str, list[Lines]] = {}
    for counted in results.lines:
        found.setdefault(counted.case, []).append(counted)
    return found


def _lines(case: str, counted: Sequence[Lines]) -> Table:
    """A row for each allocator, a column for each number of threads."""
    threads = sorted({each.threads for each in counted})
    cells = {(each.peer, each.threads): each for each in counted}
    rows = []
    for name in dict.fromkeys(each.peer for each in counted):
        row = [Cell(name)]
        for number in threads:
            each = cells.get((name, number))
            best = min(one.per_op for one in counted if one.threads == number)
            if each is None:
                row.append(Cell("–"))
                continue
            apart = "" if each.apart is None else f" ({wording.small(each.apart)})"
            ratio = each.per_op / best if best > 0 else None
            text = wording.small(each.per_op) + apart
            row.append(Cell(text, each.per_op == best, ratio))
        rows.append(row)
    header = ["allocator", *(f"{number} threads" for number in threads)]
    header = ["1 thread" if text == "1 threads" else text for text in header]
    return Table(f"{case}: cache lines that travel", header, rows)


def _places(case: str, counted: Sequence[Lines]) -> list[Table]:
    """For Allod, the source lines for which most lines travel."""
    header = ["object", "function", "source line", "lines per operation", "share"]
    return [
        Table(
            f"{case}: where lines travel under {each.peer}, {each.threads} threads",
            header,
            [
                [
                    *(Cell(at.object), Cell(at.function), Cell(at.line)),
                    *(
                        Cell(wording.small(at.per_op)),
                        Cell(f"{at.per_op / each.per_op:.1%}"),
                    ),
                ]
                for at in each.places
            ],
            frozenset({0, 1, 2}),
        )
        for each in counted
        if each.places
    ]


def lines(results: Results) -> list[Table]:
    """What travels between cores, as far as it was counted."""
    return [
        table
        for case, counted in lines_of(results).items()
        for table in (_lines(case, counted), *_places(case, counted))
    ]


def costs(results: Results) -> list[Table]:
    """What is measured apart from the workloads' own runs."""
    plain = [
        table(results)
        for found, table in (
            (results.system_calls, system_calls),
            (results.purging, purging),
            (results.smallest, smallest),
        )
        if found
    ]
    return [*lines(results), *plain]


def targets(found: Sequence[Check]) -> Table:
    """Pass or miss for each target."""
    rows = [
        [
            Cell(check.name),
            Cell("pass" if check.passed else "miss", strong=not check.passed),
            Cell(check.detail),
            Cell(f"{check.value:.3f}"),
            Cell(f"{check.limit:.2f}"),
        ]
        for check in found
    ]
    header = ["target", "result", "detail", "measured", "limit"]
    return Table("Targets", header, rows, frozenset({0, 1, 2}))


def drift(comparison: Comparison) -> Table:
    """How each allocator changed on the whole."""
    names = dict.fromkeys(entry.peer for entry in comparison.entries)
    rows = []
    for name in names:
        means = [comparison.drift(name, what) for what in (TIME, MEMORY)]
        rows.append([name, *(f"{mean:.3f}" if mean else "–" for mean in means)])
    return _plain(
        "New over old, geometric means", ["allocator", "time", "peak memory"], rows
    )


def changes(comparison: Comparison) -> Table:
    """Every significant change, the worst first."""
    rows = [
        [
            Cell(entry.case),
            Cell(entry.peer),
            Cell(entry.what),
            Cell(f"{entry.change.ratio:.3f}", ratio=entry.change.ratio),
            Cell(f"{entry.change.low:.3f} to {entry.change.high:.3f}"),
        ]
        for entry in comparison.significant
    ]
    header = ["workload", "allocator", "what", "new/old", "95 % interval"]
    return Table("Significant changes", header, rows, frozenset({0, 1, 2}))


def setting(results: Results) -> Table:
    rows = [list(row) for row in wording.setting(results)]
    return _plain("Setting", ["what", "value"], rows, frozenset({0, 1}))
