"""What hardening costs: the levels of the hardened library and other hardened allocators, each
beside the default library in the same rounds."""

from collections.abc import Iterator
from pathlib import Path

from allod.files import write_whole

from bench.compare import markdown, stats, tables, wording
from bench.compare.peers import LIBC, SUBJECT, WITH_MEASURES
from bench.compare.publish import PublishError
from bench.compare.results import REAL_PROGRAMS, Ratios, Results, ratios_to
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
better. `{HARDENED}` is the hardened library as it comes, with the level `all`. A name with `+` has
another [level](security.md#what-the-levels-catch-and-what-they-cost). What each one notices is in
[security-results.md](security-results.md) and [security-attacks.md](security-attacks.md).

```sh
{COMMAND}
{COMMAND} --workload redis --peer {SUBJECT} --peer {WITH_MEASURES}light
```
"""


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
    # By allocator and case.
    time, memory = (
        _by_peer({case.case.name: ratios_to(SUBJECT, case, of_time) for case in cases})
        for of_time in (True, False)
    )
    rows = [
        [
            Cell(peer.name),
            *_mean_and_worst(time[peer.name]),
            *_mean_and_worst(memory[peer.name]),
            Cell(f"{len(time[peer.name])} of {len(cases)}"),
        ]
        for peer in results.peers
        if peer.name in time
    ]
    header = ["allocator", "time", "±", "worst", "peak memory", "±", "worst", "cases"]
    return Table(group.capitalize(), header, rows)


def _by_peer(by_case: dict[str, Ratios | None]) -> dict[str, dict[str, Summary]]:
    turned: dict[str, dict[str, Summary]] = {}
    for case, found in by_case.items():
        for name, ratio in found.of.items() if found else ():
            turned.setdefault(name, {})[case] = ratio
    return turned


def every(results: Results, of_time: bool) -> Table:
    """Each case, the groups one after the other."""
    names = [peer.name for peer in results.peers if peer.name != SUBJECT]
    rows = []
    for result in sorted(results.measured, key=lambda each: each.case.group):
        found = ratios_to(SUBJECT, result, of_time)
        if found is not None:
            precision = results.precision
            cells = tables.ratio_cells(result, found, names, precision, of_time)
            rows.append([Cell(result.case.name), *cells])
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
        wording.noise(results.precision),
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
