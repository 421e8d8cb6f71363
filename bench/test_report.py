"""The report says what the results say: statistics, comparison, files, page."""

import csv
import importlib
import json
import random
import re
from html.parser import HTMLParser
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
    results,
    stats,
    storage,
    syscalls,
    targets,
)
from bench.compare.cases import CASES, CASES_BY_NAME, Case
from bench.compare.purging import Purging
from bench.compare.results import Results
from bench.compare.rounds import CaseResult
from bench.compare.run import Figure, Series
from bench.samples import a_case, a_run, rich_results, some_results

EXTRA = (
    Case(
        "made-up-latency", "none", "single calls", group="latency", source="A <paper>"
    ),
    Case("made-up-idle", "none", "an idle hour", group="memory over time"),
    Case("made-up-program", "none", "a program", group="real programs", script=True),
)


@pytest.fixture(scope="module")
def rich() -> Results:
    return rich_results([*CASES, *EXTRA])


# Statistics and targets.


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    summary = stats.summarise([float(value) for value in range(1, 12)])
    # From the binomial distribution with n = 11: P(X <= 1) = 0.6 %, P(X <= 2) = 3.3 %.
    assert (summary.median, summary.low, summary.high) == (6.0, 2.0, 10.0)
    assert summary.deviation == 3.0
    assert summary.half_width() == pytest.approx(4 / 6)


def test_few_values_have_a_range_instead_of_an_interval() -> None:
    summary = stats.summarise([9.0, 10.0, 12.0])
    assert (summary.low, summary.high) == (None, None)
    assert summary.interval == (9.0, 12.0)
    assert summary.half_width() == pytest.approx(0.15)


def test_a_ratio_is_not_moved_by_what_disturbs_whole_rounds() -> None:
    values = [1.0, 1.0, 5.0, 2.0, 9.0]
    ratio = stats.paired_ratio([2 * value for value in values], values)
    assert ratio.median == 2.0
    assert ratio.deviation == 0.0


def test_a_geometric_mean_weighs_twice_and_half_alike() -> None:
    ratios = [[2.0, 2.0], [0.5, 0.5]]
    mean = stats.geometric_mean([stats.summarise(each) for each in ratios])
    assert mean.value == pytest.approx(1.0)
    assert (mean.half_width, mean.count) == (0.0, 2)


def test_a_single_value_is_not_known_exactly() -> None:
    assert stats.summarise([7.0]).half_width() == 1.0
    case = a_case("tree", {"a": [7.0]})
    assert case.is_noisy("a", precision=0.01)


def times(seed: int, factor: float = 1.0, count: int = 15) -> list[float]:
    """Skewed, as run times are."""
    chance = random.Random(seed)
    return [factor * (10 + chance.expovariate(5)) for _ in range(count)]


def test_the_same_allocator_under_two_names_is_not_told_apart() -> None:
    cases = [
        a_case(name, {"a": times(10 * seed), "b": times(10 * seed + 1)})
        for seed, name in enumerate(("immediate", "replace", "tree", "bulk"))
    ]
    for case in cases:
        one, other = (stats.summarise(case.times(name)) for name in "ab")
        assert one.interval[0] <= other.interval[1]
        assert other.interval[0] <= one.interval[1]
    (overview,) = results.overviews(some_results(*cases))
    a, b = overview.time["a"], overview.time["b"]
    assert abs(a.value / b.value - 1) < a.half_width + b.half_width + 0.01


def test_a_change_is_significant_when_its_interval_excludes_none() -> None:
    assert not stats.change(times(1), times(2)).is_significant
    assert stats.change(times(1, 1.1), times(2)).is_significant
    assert stats.change([1000.0] * 7, [1000.0] * 7) == stats.Change(1.0, 1.0, 1.0)
    assert stats.change([11.0, 12.0, 13.0], [9.0, 10.0, 10.5]).is_significant
    assert not stats.change([10.0, 12.0, 13.0], [9.0, 10.0, 10.5]).is_significant


def test_the_subject_is_never_its_own_measure() -> None:
    ratios = results.time_ratios(
        a_case("tree", {"allod": [5.0], "a": [10.0], "b": [8.0]})
    )
    assert ratios is not None
    assert ratios.best == "b"
    assert ratios.of["allod"].median == pytest.approx(0.625)


def checks_of(*cases: CaseResult) -> dict[str, targets.Check]:
    return {check.name: check for check in targets.check(some_results(*cases))}


@pytest.mark.parametrize(("allod", "passed"), [(10.0, True), (10.2, False)])
def test_a_target_is_passed_or_missed(allod: float, passed: bool) -> None:
    checks = checks_of(
        a_case("tree", {"allod": [allod], "a": [10.0]}, {"allod": 1000, "a": 900}),
        a_case("bulk", {"allod": [10.0], "a": [10.0]}, {"allod": 900, "a": 900}),
    )
    assert {name: check.passed for name, check in checks.items()} == {
        "every workload: failures": True,
        "workloads: time": passed,
        "workloads: memory": False,
        "every workload: time, at the end of its noise": True,
        "every workload: memory": True,
        "tree: page faults": True,
    }


def test_a_failure_is_a_missed_target() -> None:
    tree = a_case("tree", {"a": [10.0]})
    tree.failures["allod"] = "killed by SIGSEGV"
    checks = checks_of(tree, a_case("bulk", {"allod": [9.0], "a": [10.0]}))
    assert not checks["every workload: failures"].passed
    assert checks["every workload: failures"].detail == "tree"


def test_workloads_that_miss_are_named_unless_a_run_was_disturbed() -> None:
    checks = checks_of(
        a_case("tree", {"allod": [20.0, 30.0], "a": [10.0, 10.0]}),
        a_case("bulk", {"allod": [12.0, 10.0], "a": [10.0, 10.0]}),
    )
    time = checks["every workload: time, at the end of its noise"]
    assert (time.value, time.detail) == (2.0, "1 of 2 above: tree 2.00")


def test_our_other_libraries_are_no_measure() -> None:
    ours = {"allod": [10.0], "allod-hardened": [1.0], "allod-hardened+zero": [1.0]}
    compared = a_case("tree", {**ours, "a": [5.0]})
    alone = a_case("bulk", {**ours})
    for checks in (checks_of(compared), checks_of(compared, alone)):
        assert checks["workloads: time"].value == 2.0
        assert checks["every workload: time, at the end of its noise"].value == 2.0
    assert list(checks_of(alone)) == ["every workload: failures"]


def test_real_programs_are_measured_by_the_best_of_all() -> None:
    checks = checks_of(
        a_case("redis", {"allod": [9.0], "a": [10.0], "b": [5.0]}),
        a_case("sqlite", {"allod": [9.0], "a": [10.0], "b": [40.0]}),
    )
    assert checks["real programs: time"].value == pytest.approx(0.9)
    assert checks["real programs: time"].detail == "geometric mean of 2, best: a"
    assert checks["real programs: memory"].value == pytest.approx(1.0)


def test_real_programs_that_a_peer_did_not_run_do_not_make_it_better() -> None:
    checks = checks_of(
        a_case("redis", {"allod": [9.0], "a": [10.0]}),
        a_case("sqlite", {"allod": [20.0], "a": [20.0], "b": [19.0]}),
    )
    # In the one that b ran it is ahead of Allod by more than a is in both.
    assert checks["real programs: time"].detail == "geometric mean of 1, best: b"
    assert checks["real programs: time"].value == pytest.approx(20 / 19)


def test_memory_after_a_peak_counts_whatever_is_resident() -> None:
    def series(late: float) -> tuple[Series, ...]:
        resident = ((0.0, 9e5), (0.5, 8e5), (1.0, late), (1.5, 1.0))
        live = tuple((at, 102_400.0) for at, _ in resident)
        return (
            Series("resident", "seconds", "KiB", resident),
            Series("live", "seconds", "KiB", live),
        )

    runs = {
        "allod": [a_run("allod", 1.0, series=series(116_736.0), minor_faults=40)],
        "a": [a_run("a", 1.0, series=series(204_800.0), minor_faults=100)],
    }
    checks = checks_of(CaseResult(CASES_BY_NAME["idle"], runs))
    resident = checks["idle: resident over live memory after a second"]
    assert resident.value == 1.14
    assert resident.limit == pytest.approx(1.12)
    assert resident.detail == "best peer: 2.00"
    assert checks["idle: page faults"].value == 0.4


def test_idle_threads_and_single_calls_have_limits_of_their_own() -> None:
    def kept(kib: float) -> tuple[Figure, ...]:
        return (Figure("memory per idle thread", kib, "KiB", "less"),)

    tail = {"99.99": 1.0, "99.999": 21_000.0}
    floor = {"99.999": 20_500.0}
    runs = {
        "allod": [a_run("allod", 1.0, figures=kept(20))],
        "a": [a_run("a", 1.0, figures=kept(70))],
    }
    calls = {
        peer: [a_run(peer, 1.0, percentiles={"malloc": tail, "nothing": floor})]
        for peer in runs
    }
    checks = checks_of(
        CaseResult(CASES_BY_NAME["many-threads"], runs),
        CaseResult(CASES_BY_NAME["latency"], calls),
    )
    idle = checks["many-threads: memory per idle thread, in KiB"]
    assert (idle.value, idle.passed, idle.detail) == (20, False, "best peer: 70.0")
    slow = checks["latency: malloc, 99.999 %, in ns"]
    assert not slow.passed
    assert slow.detail == "best peer: 21000, no call at all: 20500"
    assert checks["latency: malloc, 99.99 %, in ns"].passed


def test_the_sweep_is_checked_for_cliffs_and_system_calls() -> None:
    ours = {"1": 5.0, "1024": 6.0, "2048": 8.0, "4096": 17.0}
    theirs = {"1": 5.0, "1024": 5.0, "4096": 20.0}
    runs = {
        "allod": [a_run("allod", 1.0, points=ours)],
        "a": [a_run("a", 1.0, points=theirs)],
    }
    found = some_results(CaseResult(CASES_BY_NAME["sweep"], runs))
    found.system_calls = [syscalls.SystemCalls("allod", {1024: 0.0, 4096: 2.0})]
    checks = {check.name: check for check in targets.check(found)}
    assert checks["sweep: the dearest size against the cheapest"].value == 17.0 / 5.0
    assert checks["sweep: any size against its best peer"].value == 1.2
    assert (
        checks["sweep: any size against its best peer"].detail
        == "1 of 3 sizes above, most at 1024 B"
    )
    assert checks["sweep: system calls for each pair"].value == 2.0


def test_giving_memory_back_has_limits() -> None:
    found = some_results()
    found.purging = [
        Purging("a", "phases", 900, 5000.0, 0.5),
        Purging("allod", "phases", 3, 120.0, 0.009),
    ]
    checks = {check.name: check for check in targets.check(found)}
    waits = checks["phases: who frees waits for the system, 99 %, in µs"]
    assert (waits.value, waits.passed) == (120.0, False)
    assert waits.detail == "3 calls, with what strace adds"
    assert checks["phases: the helper's part of the processor time"].passed


def test_a_program_that_does_nothing_has_a_limit() -> None:
    found = some_results()
    found.smallest = {"allod": 1400.0, "glibc": 980.0, "a": 900.0}
    name = "a program that does nothing: more memory than with glibc, in KiB"
    (small,) = (check for check in targets.check(found) if check.name == name)
    assert (small.value, small.passed, small.detail) == (420.0, False, "glibc: 980")
    del found.smallest["glibc"]
    assert name not in {check.name for check in targets.check(found)}


def test_real_programs_have_an_overview_of_their_own(rich: Results) -> None:
    workloads, programs = results.overviews(rich)
    scripts = sum(case.group == results.REAL_PROGRAMS for case in (*CASES, *EXTRA))
    assert (workloads.title, programs.cases) == ("Workloads", scripts)
    assert workloads.cases + programs.cases == len(CASES) + len(EXTRA)


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


class Page(HTMLParser):
    """What a page refers to and holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.references += [
            value for name, value in given.items() if name in {"src", "href", "data"}
        ]
        if "id" in given:
            self.ids.append(given["id"])
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        self.labels.add(given.get("aria-label", ""))
        self.open.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]].append(data)

    def handle_endtag(self, tag: str) -> None:
        self.open.append("")


@pytest.fixture(scope="module")
def html(rich: Results) -> Page:
    comparison = regressions.compare(rich, rich_results([*CASES, *EXTRA], seed=2))
    return Page(page.render(rich, targets.check(rich), comparison))


def test_the_page_loads_nothing(html: Page) -> None:
    outside = [each for each in html.references if not each.startswith(("#", "data:"))]
    assert outside == []
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
