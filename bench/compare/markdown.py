"""The results as Markdown."""

from collections.abc import Sequence

from bench.compare import tables, wording
from bench.compare.regressions import Comparison
from bench.compare.results import Results, overviews
from bench.compare.rounds import CaseResult
from bench.compare.tables import Cell, Table
from bench.compare.targets import Check


def table(found: Table) -> list[str]:
    """A table without its title, and an empty line after it."""
    align = [
        "---" if column in found.words else "---:"
        for column in range(len(found.header))
    ]
    rows = [[_cell(cell) for cell in row] for row in found.rows]
    lines = ["| " + " | ".join(row) + " |" for row in (found.header, align, *rows)]
    return [*lines, ""]


def _cell(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    return f"**{text}**" if cell.strong else text


def titled(found: Table, level: str = "##") -> list[str]:
    """A table under its title."""
    return [f"{level} {found.title}", "", *table(found)]


def overview(results: Results) -> list[str]:
    """The tables that answer the question."""
    return [
        *(
            line
            for each in overviews(results)
            for line in titled(tables.overview(each))
        ),
        *titled(tables.ratios(results, of_time=True)),
        *titled(tables.ratios(results, of_time=False)),
        wording.marks(results.precision),
        "",
    ]


def lines(results: Results) -> list[str]:
    """The tables of cache lines; nothing if none were counted."""
    return [line for each in tables.lines(results) for line in titled(each)]


def changes(comparison: Comparison) -> list[str]:
    """What changed since an earlier run."""
    found = [f"## Changes since {comparison.since}", ""]
    found += [f"* {note}" for note in comparison.notes]
    found += [""] if comparison.notes else []
    found += table(tables.drift(comparison))
    if comparison.significant:
        return found + table(tables.changes(comparison))
    return [*found, "No single change is significant.", ""]


def checks(found: Sequence[Check]) -> list[str]:
    """The project's targets; nothing if none were checked."""
    return titled(tables.targets(found)) if found else []


def _case(result: CaseResult, precision: float) -> list[str]:
    source = [f"Source: {wording.sentence(result.case.source)}", ""]
    lines = [
        f"### {result.case.name}",
        "",
        f"{wording.sentence(result.case.about)} `{wording.command_line(result)}`",
        "",
        *(source if result.case.source else []),
        *table(tables.case(result, precision)),
    ]
    for each in tables.details(result):
        # A sweep has some hundred points; they are in results.json.
        if each.title != "Points":
            lines += [f"{each.title}:", "", *table(each)]
    failures = [f"* {name} failed: {why}" for name, why in result.failures.items()]
    return [*lines, *failures, ""] if failures else lines


def setting_and_method(results: Results) -> list[str]:
    """The end of every report."""
    return [
        *titled(tables.setting(results)),
        "## Method",
        "",
        *(f"* {line}" for line in wording.method(results)),
        "",
    ]


def render(
    results: Results, checked: Sequence[Check], comparison: Comparison | None
) -> str:
    """The whole report."""
    cases = (line for each in results.cases for line in _case(each, results.precision))
    costs = (line for each in tables.costs(results) for line in titled(each))
    lines = [
        "# Allocators side by side",
        "",
        wording.headline(results),
        "",
        *(f"* {note}" for note in results.notes),
        *([""] if results.notes else []),
        *(changes(comparison) if comparison else []),
        *overview(results),
        *checks(checked),
        "## Workloads",
        "",
        *cases,
        *costs,
        *setting_and_method(results),
    ]
    return "\n".join(lines)
