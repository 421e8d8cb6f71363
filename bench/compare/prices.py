"""What hardening costs: the levels of the hardened library and other hardened allocators, each
beside the default library in the same rounds."""

from collections.abc import Callable, Iterator
from pathlib import Path

from allod.files import write_whole

from bench.compare import markdown, stats, tables, wording
from bench.compare.peers import LIBC, SUBJECT, WITH_MEASURES
from bench.compare.publish import PublishError
from bench.compare.results import REAL_PROGRAMS, Results
from bench.compare.rounds import CaseResult
from bench.compare.stats import Summary
from bench.compare.tables import Cell, Table

HARDENED = "allod-hardened"
LEVELS = (
    HARDENED,
    f"{WITH_MEASURES}balanced",
    f"{WITH_MEASURES}light",
    f"{WITH_MEASURES}none",
)
PEERS = (
    SUBJECT,
    LIBC,
    *LEVELS,
    "hardened_malloc",
    "hardened_malloc-light",
    "mimalloc-secure",
    "scudo",
    "snmalloc-checked",
)
GROUPS = (REAL_PROGRAMS, "small objects")
PAGE = "security-prices.md"
COMMAND = "./allod bench --prices"
HEADER = (
    f"<!-- Written by {COMMAND} --publish; not to be changed by hand. -->\n\n"
    "# What hardening costs\n"
)
ABOUT = f"""\
Each figure is a ratio to Allod's default library in the same round: 1.00 is that library, less is
better. `{HARDENED}` is the hardened library as it comes, with the level `all`; a name behind `+` is
another [level](security.md#levels). What each allocator notices is told in
[security-results.md](security-results.md) and [security-attacks.md](security-attacks.md).

```sh
{COMMAND}
{COMMAND} --workload redis --peer {SUBJECT} --peer {WITH_MEASURES}light
```
"""


def ratios(result: CaseResult, of_time: bool) -> dict[str, Summary]:
    """Each allocator against the default library, round by round; nothing without that one."""
    if SUBJECT not in result.runs:
        return {}
    values: Callable[[str], list[float]] = result.times if of_time else result.peaks
    base = values(SUBJECT)
    return {name: stats.paired_ratio(values(name), base) for name in result.runs}


def _mean_and_worst(found: dict[str, Summary]) -> list[Cell]:
    """Of one allocator's ratios, by case."""
    mean = stats.geometric_mean([*found.values()])
    worst = max(found, key=lambda case: found[case].median)
    return [
        Cell(f"{mean.value:.3f}", ratio=mean.value),
        Cell(f"{mean.half_width:.1%}"),
        Cell(f"{found[worst].median:.2f} ({worst})"),
    ]


def means(results: Results, group: str) -> Table:
    """The geometric means over a group, and the worst of it."""
    cases = [result for result in results.measured if result.case.group == group]
    rows = []
    for peer in results.peers:
        cells = []
        for of_time in (True, False):
            found = {
                result.case.name: each[peer.name]
                for result in cases
                if peer.name in (each := ratios(result, of_time))
            }
            if found:
                cells += _mean_and_worst(found)
        if cells:
            rows.append(
                [Cell(peer.name), *cells, Cell(f"{len(found)} of {len(cases)}")]
            )
    header = ["allocator", "time", "±", "worst", "peak memory", "±", "worst", "cases"]
    return Table(group.capitalize(), header, rows)


def every(results: Results, of_time: bool) -> Table:
    """Each case, the groups one after the other."""
    names = [peer.name for peer in results.peers if peer.name != SUBJECT]
    rows = []
    for result in sorted(results.measured, key=lambda each: each.case.group):
        found = ratios(result, of_time)
        if not found:
            continue
        cells = [Cell(result.case.name)]
        for name in names:
            if name not in found:
                cells.append(Cell("failed" if name in result.failures else "–"))
                continue
            ratio = found[name].median
            noisy = of_time and result.is_noisy(name, results.precision)
            cells.append(Cell(f"{ratio:.2f}" + (" ~" if noisy else ""), ratio=ratio))
        rows.append(cells)
    title = "Time" if of_time else "Peak resident size"
    return Table(f"{title} against {SUBJECT}", ["workload", *names], rows)


def _means(results: Results) -> Iterator[Table]:
    groups = dict.fromkeys(result.case.group for result in results.measured)
    for group in sorted(groups, key=lambda name: name != REAL_PROGRAMS):
        found = means(results, group)
        if found.rows:
            yield found


def overview(results: Results) -> list[str]:
    """The tables that answer the question, as Markdown."""
    return [line for found in _means(results) for line in markdown.titled(found)]


def render(results: Results) -> str:
    """The page."""
    lines = [
        HEADER,
        wording.headline(results),
        "",
        ABOUT,
        *(f"* {note}" for note in results.notes),
        *([""] if results.notes else []),
        *overview(results),
        *markdown.titled(every(results, of_time=True)),
        f"{wording.noise(results.precision)}",
        "",
        *markdown.titled(every(results, of_time=False)),
        *markdown.titled(tables.setting(results)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def write(results: Results, docs: Path) -> Path:
    """Replaces the page, and returns it."""
    there = {peer.name for peer in results.peers}
    missing = [name for name in (SUBJECT, *LEVELS) if name not in there]
    if missing:
        raise PublishError(f"prices without {', '.join(missing)} are not published")
    if not any(result.case.group == REAL_PROGRAMS for result in results.measured):
        raise PublishError("prices without real programs are not published")
    page = docs / PAGE
    write_whole(page, render(results))
    return page
