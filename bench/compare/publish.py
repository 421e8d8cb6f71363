"""Writes docs/results.md and its pictures from the results of a full run."""

from pathlib import Path

from allod.files import make_folder, write_whole

from bench.compare import markdown, tables, targets, wording
from bench.compare.cases import CASES, GROUPS
from bench.compare.results import Results, overviews
from bench.compare.tables import Cell, Table

PAGE = "results.md"
PREFIX = "results-"
COMMAND = "./allod bench --full --publish"
# What is said about the results by hand; it goes into the page after the overview.
READING = Path(__file__).parents[1] / "reading.md"

HEADER = f"<!-- Written by {COMMAND}; not to be changed by hand. -->"
REPEAT = """\
## How to repeat it

```
./allod bench --full           # some hours; the report is an HTML page with all charts
./allod bench --quick          # a first look in five minutes
./allod bench --workload NAME  # one of those below
```

Nothing else should run on the machine. What is measured, and how, is described in
[bench/README.md](../bench/README.md).
"""


class PublishError(Exception):
    """These results are not to be published; the text says why."""


def why_not(results: Results) -> str | None:
    """What keeps results out of the documents."""
    if results.kind != "full":
        return f"a {results.kind} run is not published, only a full one"
    if missing := _unmeasured(results):
        return f"a run without {', '.join(missing)} is not published"
    return None


def _unmeasured(results: Results) -> list[str]:
    measured = {result.case.name for result in results.measured}
    return [
        case.name for case in CASES if case.by_default and case.name not in measured
    ]


def write(results: Results, docs: Path) -> list[Path]:
    """Replaces the page and its pictures; returns what was written."""
    reason = why_not(results)
    if reason is not None:
        raise PublishError(reason)
    # Here, and not above: --help must do without the packages.
    from bench.compare import plot

    images = docs / "images"
    make_folder(images)
    for old in images.glob(f"{PREFIX}*.svg"):
        old.unlink()
    pictures = plot.draw(results, images, PREFIX)
    page = docs / PAGE
    write_whole(page, _render(results, pictures))
    return [page, *(path for _, path in pictures)]


def _render(results: Results, pictures: list[tuple[str, Path]]) -> str:
    means = (
        line
        for found in overviews(results)
        for line in (f"### {found.title}", "", *markdown.table(tables.overview(found)))
    )
    costs = (
        line
        for found in tables.costs(results)
        for line in (f"### {found.title}", "", *markdown.table(found))
    )
    reading = READING.read_text().strip() if READING.is_file() else ""
    lines = [
        HEADER,
        "",
        "# Results",
        "",
        wording.headline(results),
        "Each workload compares an allocator with the best of the peers there: 1.00 is that",
        "best, less is better. Allod itself is never the measure.",
        "",
        *(f"* {note}" for note in results.notes),
        *([""] if results.notes else []),
        "## Overview",
        "",
        *means,
        *(f"![{title}](images/{path.name})\n" for title, path in pictures),
        "### Targets",
        "",
        *markdown.table(tables.targets(targets.check(results))),
        *([reading, ""] if reading else []),
        "## Every workload",
        "",
        "### Time",
        "",
        *markdown.table(tables.ratios(results, of_time=True)),
        "### Peak resident size",
        "",
        *markdown.table(tables.ratios(results, of_time=False)),
        wording.marks(results.precision),
        "",
        *costs,
        "### What the workloads do",
        "",
        *markdown.table(_workloads(results)),
        REPEAT,
        *markdown.setting_and_method(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _workloads(results: Results) -> Table:
    order = {group: place for place, group in enumerate(GROUPS)}
    measured = sorted(
        results.measured, key=lambda result: order.get(result.case.group, len(order))
    )
    rows = [
        [Cell(case.name), Cell(case.group), Cell(case.about), Cell(case.source or "–")]
        for case in (result.case for result in measured)
    ]
    header = ["workload", "group", "what it does", "source"]
    return Table("What the workloads do", header, rows, frozenset(range(4)))
