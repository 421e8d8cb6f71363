"""What is done with results: files, the terminal, what went wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from allod.files import write_whole
from rich.console import Console
from rich.markdown import Markdown

from bench.compare import markdown, page, storage
from bench.compare.regressions import Comparison
from bench.compare.results import Results
from bench.compare.targets import Check


@dataclass(frozen=True)
class Outcome:
    """Results, and what they were compared with."""

    found: Results
    checks: Sequence[Check]
    comparison: Comparison | None
    overview: Callable[[Results], list[str]] = markdown.overview

    def write(self, folder: Path) -> None:
        """The report and the data, each in two forms."""
        every = (self.found, self.checks, self.comparison)
        storage.save(self.found, folder / "results.json")
        storage.write_csv(self.found, folder / "runs.csv")
        write_whole(folder / "report.md", markdown.render(*every))
        write_whole(folder / "report.html", page.render(*every))

    def show(self) -> None:
        """The overview, on the terminal or as Markdown."""
        lines = [
            *self.found.notes,
            "",
            *self.overview(self.found),
            *markdown.lines(self.found),
            *markdown.checks(self.checks),
            *(markdown.changes(self.comparison) if self.comparison else []),
        ]
        console = Console()
        if console.is_terminal:
            console.print(Markdown("\n".join(lines)))
        else:
            click.echo("\n".join(lines))

    def regressions(self, percent: float) -> list[str]:
        """A line for each change for the worse by more than this."""
        worse = self.comparison.worse_than(percent) if self.comparison else []
        return [
            f"regression: {entry.case}, {entry.peer}: {entry.what} "
            f"{entry.change.ratio - 1:+.1%}"
            for entry in worse
        ]
