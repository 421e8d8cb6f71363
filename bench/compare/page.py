"""The results as one HTML page that loads nothing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from bench.compare import drawings, palette, tables, wording
from bench.compare.cases import GROUPS
from bench.compare.charts import Chart
from bench.compare.regressions import Comparison
from bench.compare.results import Results, overviews
from bench.compare.rounds import CaseResult
from bench.compare.tables import Table
from bench.compare.targets import Check

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).with_name("page")
# The steps of the colours behind ratios in tables; page.css has one for each.
_STEPS = (0.98, 1.02, 1.1, 1.25, 1.5, 2.0)


@dataclass(frozen=True)
class _Workload:
    """A case as the template sees it; ``charts`` are numbers of figures."""

    result: CaseResult
    charts: list[int]
    figures: Table
    details: list[Table]


def _groups(
    results: Results, draw: Callable[[Sequence[Chart]], list[int]]
) -> list[tuple[str, list[_Workload]]]:
    """The workloads that were measured, by the groups in their order."""
    groups = {
        group: [
            _Workload(
                result,
                draw(drawings.case(result)),
                tables.case(result, results.precision),
                tables.details(result),
            )
            for result in results.cases
            if result.case.group == group
        ]
        for group in dict.fromkeys([*GROUPS, *(r.case.group for r in results.cases)])
    }
    return [(group, members) for group, members in groups.items() if members]


def render(
    results: Results, checked: Sequence[Check], comparison: Comparison | None
) -> str:
    """The whole page."""
    figures: list[Chart] = []

    def draw(new: Sequence[Chart]) -> list[int]:
        figures.extend(new)
        return list(range(len(figures) - len(new), len(figures)))

    overview = [
        (found, draw(drawings.overview(found)), tables.overview(found))
        for found in overviews(results)
    ]
    groups = _groups(results, draw)
    names = [peer.name for peer in results.peers]
    return (
        templates(FOLDER)
        .get_template("page.html")
        .render(
            results=results,
            overview=overview,
            ratios=[
                tables.ratios(results, of_time=True),
                tables.ratios(results, False),
            ],
            groups=groups,
            targets=tables.targets(checked) if checked else None,
            comparison=comparison,
            drift=tables.drift(comparison) if comparison else None,
            changes=tables.changes(comparison) if comparison else None,
            lines=draw(
                [drawings.lines(*of) for of in tables.lines_of(results).items()]
            ),
            costs=tables.costs(results),
            setting=tables.setting(results),
            wording=wording,
            figures=figures,
            drawings={
                "figures": [asdict(figure) for figure in figures],
                "looks": {
                    name: asdict(look) for name, look in palette.looks(names).items()
                },
            },
            plotly=(
                resources.files("plotly") / "package_data/plotly.min.js"
            ).read_text(),
            style=(FOLDER / "page.css").read_text(),
            script=(FOLDER / "page.js").read_text(),
        )
    )


def templates(*folders: Path) -> "Environment":
    """What renders the pages in these folders."""
    # Here, and not above: --help must do without the package.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


def _step(ratio: float) -> int:
    """Which of the colours stands behind a ratio."""
    return sum(ratio > edge for edge in _STEPS)


def slug(text: str) -> str:
    """A name for links within the page."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# What the templates call, those of other reports included.
FILTERS = {"step": _step, "slug": slug, "sentence": wording.sentence}
