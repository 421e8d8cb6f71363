"""The command line of what profilers cost: ``./allod bench --profilers``."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from bench.compare import build, counters, markdown
from bench.compare.progress import say
from bench.compare.tables import Cell, Table
from bench.profilers import cost, profilers
from bench.profilers.cost import Costs
from bench.profilers.profilers import Profiler


def told(ratio: float | None) -> str:
    """As people read it: what comes on top, or how many times as much."""
    if ratio is None:
        return "–"
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 2 else f"{ratio:.1f} times"


def table(found: Sequence[Profiler], costs: Costs) -> Table:
    """A row for each profiler, a column for each program."""
    rows = [
        [
            Cell(each.name),
            Cell(each.keeps),
            *(
                Cell(told(costs.ratios.get(each.name, {}).get(program)))
                for program in cost.PROGRAMS
            ),
        ]
        for each in found
    ]
    return Table(
        "", ["profiler", "keeps", *cost.PROGRAMS], rows, words=frozenset({0, 1})
    )


@click.command(
    context_settings={
        "max_content_width": 100,
        "help_option_names": ["-h", "--help"],
    }
)
@click.option("--json", "as_json", is_flag=True, help="Print the ratios as JSON.")
@click.option(
    "--no-install", is_flag=True, help="Do not install or build what is missing."
)
def command(as_json: bool, no_install: bool) -> None:
    """Count what heap profilers cost the program that they watch.

    Each program runs with the profiler and without it, under the same allocator, and
    callgrind counts the instructions of both. What a profiler leaves to another process
    is not counted.
    """
    if not no_install:
        profilers.install_missing(say)
    if counters.tool(say, may_install=not no_install) is None:
        raise click.ClickException("this needs valgrind")
    try:
        programs = build.build(may_install=not no_install)
    except build.BuildError as error:
        raise click.ClickException(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="allod-profilers-") as folder:
        found, notes = profilers.find(Path(folder))
        for note in notes:
            say(note)
        costs = cost.measure(programs, found, say)
    if as_json:
        click.echo(json.dumps(costs.ratios, indent=2))
    else:
        lines = markdown.table(table(found, costs))
        lines += [f"* {name}: {about}" for name, about in cost.PROGRAMS.items()]
        click.echo("\n".join(lines))
    if costs.failures:
        raise click.exceptions.Exit(1)
