"""The report says what the results say: comparison, files, page."""

import csv
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.compare import (
    charts,
    cli,
    markdown,
    page,
    plot,
    publish,
    regressions,
    storage,
    targets,
)
from bench.compare.cases import CASES
from bench.compare.results import Results
from bench.samples import EXTRA, Page, a_case, a_run, rich_results, some_results, times

# Files.


def test_results_are_the_same_when_read_again(rich: Results, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    storage.save(rich, file)
    assert storage.to_json(storage.load(file)) == file.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "is not a results.json of format"),
        ('{"schema": 1}', "is not a results.json of format"),
        ('{"format": 99}', "but of format 99"),
        (f'{{"format": {storage.FORMAT}}}', "is damaged"),
    ],
)
def test_a_file_that_holds_no_results_is_refused(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.json"
    file.write_text(text)
    assert cli.main(["--from", str(file)]) == 1
    assert message in capsys.readouterr().err


def test_results_that_cannot_be_written_are_printed(
    rich: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "old.json", tmp_path / "out"
    storage.save(rich, source)
    # As a disk is that gets full.
    (out / "report.html").mkdir(parents=True)
    assert cli.main(["--from", str(source), "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(source.read_text())
    assert "cannot write" in said.err
    assert "the results are on standard output" in said.err


def test_every_run_is_a_line_with_its_setting(rich: Results, tmp_path: Path) -> None:
    storage.write_csv(rich, tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    every = sum(len(runs) for case in rich.cases for runs in case.runs.values())
    assert len(rows) == every
    assert {row["version"] for row in rows} == {peer.version for peer in rich.peers}
    assert {row["kernel"] for row in rows} == {rich.machine.kernel}


# Comparison with an earlier run.


def planted(factor: float) -> Results:
    return some_results(
        a_case("tree", {"allod": times(1, factor), "a": times(2)}),
        a_case("bulk", {"allod": times(3), "a": times(4)}),
    )


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    storage.save(planted(1.0), old)
    storage.save(planted(1.2), new)
    return old, new


def test_a_planted_regression_is_found_and_nothing_else() -> None:
    comparison = regressions.compare(planted(1.2), planted(1.0))
    (entry,) = comparison.significant
    assert (entry.case, entry.peer, entry.what) == ("tree", "allod", "time")
    assert entry.change.low < 1.2 < entry.change.high * 1.001
    assert comparison.worse_than(10) == [entry]
    assert comparison.worse_than(30) == []
    assert regressions.compare(planted(1.0), planted(1.2)).worse_than(0) == []
    assert comparison.drift("a", "time") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("percent", "status"), [(None, 0), ("30", 0), ("10", cli.REGRESSION_STATUS)]
)
def test_a_regression_changes_the_status_only_when_asked(
    two_files: tuple[Path, Path],
    percent: str | None,
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = two_files
    asked = ["--fail-on-regression", percent] if percent else []
    assert cli.main(["--from", str(new), "--compare", str(old), *asked]) == status
    said = capsys.readouterr()
    assert "| tree | allod | time | 1.2" in said.out
    assert ("regression: tree, allod: time +20" in said.err) == (status != 0)
    assert 'id="changes"' in (new.parent / "report.html").read_text()


def test_what_was_measured_otherwise_is_not_compared() -> None:
    new, old = planted(1.2), planted(1.0)
    for runs in old.cases[0].runs.values():
        runs[:] = [a_run(run.peer, run.nanoseconds, params={"ops": 5}) for run in runs]
    del old.cases[1]
    comparison = regressions.compare(new, old)
    assert comparison.entries == []
    assert comparison.notes == [
        "tree: other parameters then, not compared",
        "bulk: not measured then",
    ]


# Markdown.


def test_the_report_marks_the_measure_and_the_noisy() -> None:
    steady = [10.0] * 7
    noisy = [20.0 + number for number in range(1, 8)]
    found = some_results(a_case("immediate", {"a": steady, "b": noisy}))
    assert "| immediate | 10 ns | **1.00** | 2.40 ~ |" in markdown.render(
        found, [], None
    )


# The page.


@pytest.fixture(scope="module")
def html(rich: Results) -> Page:
    comparison = regressions.compare(rich, rich_results([*CASES, *EXTRA], seed=2))
    return Page(page.render(rich, targets.check(rich), comparison))


def test_the_page_loads_nothing(html: Page) -> None:
    assert html.outside == []
    assert not html.open
    assert html.policy.startswith("default-src 'none';")
    assert not re.search(r"url\(|@import", "".join(html.texts["style"]))
    # The last script is ours, the one before it the library.
    assert "http" not in html.texts["script"][0] + html.texts["script"][-1]


def test_the_page_holds_every_case_and_links_to_it(html: Page) -> None:
    wanted = {page.slug(case.name) for case in (*CASES, *EXTRA)}
    assert wanted <= set(html.ids)
    assert {f"#{name}" for name in wanted} <= set(html.references)
    assert len(html.ids) == len(set(html.ids))
    inner = {each[1:] for each in html.references if each.startswith("#")}
    assert inner <= set(html.ids)
    for what in ("changes", "targets", "overview", "setting", "method"):
        assert what in html.ids


def test_the_charts_are_ones_that_plotly_draws(html: Page, rich: Results) -> None:
    drawings: dict[str, Any] = json.loads(html.texts["script"][0])
    assert set(drawings["looks"]) == {peer.name for peer in rich.peers}
    figure = importlib.import_module("plotly.graph_objects").Figure
    titles = [each["title"] for each in drawings["figures"]]
    for each in drawings["figures"]:
        # Raises for what plotly does not know.
        figure(data=each["data"], layout=each["layout"])
        assert each["data"]
        assert {trace["meta"]["peer"] for trace in each["data"]} <= set(
            drawings["looks"]
        )
    for what in (
        "made-up-latency: percentiles of malloc",
        "made-up-idle: resident over seconds",
        "made-up-idle: resident over live",
        "sweep: each point",
        "tree: instructions for each operation",
        "tree: time and peak memory",
        "Real programs: time and peak memory, geometric means",
    ):
        assert what in titles


def test_a_bar_that_is_cut_off_says_so() -> None:
    lengths = {"short": 10.0, "longer": 59.0, "far too long": 90.0}
    rows = [charts.Bar(name, x, x, x, f"{x} ns") for name, x in lengths.items()]
    layout = charts.bars("three of them", rows, "ns").layout
    assert layout["yaxis"]["ticktext"] == [
        "short  10.0 ns",
        "longer  59.0 ns",
        "far too long  90.0 ns, cut off",
    ]
    end = layout["xaxis"]["range"][1]
    assert lengths["longer"] < end < lengths["far too long"]


def test_text_from_outside_does_not_break_the_page(rich: Results) -> None:
    text = page.render(rich, [], None)
    assert "killed by SIGSEGV &lt;/script&gt;" in text
    assert "A &lt;paper&gt;." in text
    assert "&lt;not built&gt;" in text


def test_a_page_of_nothing_is_still_a_page() -> None:
    empty = Page(page.render(some_results(), [], None))
    assert json.loads(empty.texts["script"][0])["figures"] == []


# The page of the documents.


def test_full_results_are_published(
    rich: Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "results.json"
    docs = tmp_path / "docs"
    old = docs / "images" / "results-old.svg"
    old.parent.mkdir(parents=True)
    old.write_text("")
    storage.save(rich, file)
    monkeypatch.setattr(cli, "DOCS", docs)
    # One case has a failure.
    assert cli.main(["--from", str(file), "--publish"]) == 1
    text = (docs / "results.md").read_text()
    assert text.startswith(publish.HEADER)
    for case in CASES:
        assert f"| {case.name} |" in text
    for table in (
        "System calls in the sweep",
        "Memory given back",
        "The smallest program",
    ):
        assert f"### {table}" in text
    pictures = re.findall(r"\]\((images/[^)]+)\)", text)
    assert len(pictures) == 4
    assert all((docs / name).read_text().startswith("<?xml") for name in pictures)
    assert not old.exists()


def test_equal_results_make_equal_pictures(rich: Results, tmp_path: Path) -> None:
    small = some_results(*rich.cases[:2])
    one, other = (
        [path.read_text() for _, path in plot.draw(small, tmp_path, prefix)]
        for prefix in ("one-", "other-")
    )
    assert one == other


@pytest.mark.parametrize(
    ("kind", "interrupted", "message"),
    [
        ("quick", False, "a quick run is not published"),
        ("full", True, "a run without cfrac, .* is not published"),
        ("full", False, "a run without cfrac, .* is not published"),
    ],
)
def test_only_whole_results_are_published(
    tmp_path: Path, kind: str, interrupted: bool, message: str
) -> None:
    found = some_results(kind=kind)
    found.interrupted = interrupted
    with pytest.raises(publish.PublishError, match=message):
        publish.write(found, tmp_path)
    assert list(tmp_path.iterdir()) == []
