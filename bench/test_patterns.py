"""What the patterns report beside the time, and what single ones do."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.compare.cases import patterns
from bench.tiny import run

PROGRAMS = sorted({case.program for case in patterns.CASES})
PERCENTILES = ["50", "90", "99", "99.9", "99.99", "99.999", "100"]


def run_tiny(programs: Path, program: str, **params: int) -> dict[str, Any]:
    return run(programs, program, params)


@pytest.mark.parametrize(("threads", "touch"), [(1, 1), (2, 0), (8, 0)])
def test_the_sweep_reaches_64_mebibytes(
    programs: Path, threads: int, touch: int
) -> None:
    report = run_tiny(programs, "sweep", max=64 << 20, touch=touch, threads=threads)
    sizes = [int(point["name"]) for point in report["points"]]
    assert (sizes[0], sizes[-1]) == (1, 64 << 20)
    assert sizes == sorted(set(sizes))


# What is reported beside the time.


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_beside_the_time_are_well_formed(programs: Path, program: str) -> None:
    report = run_tiny(programs, program)
    for point in report.get("points", []):
        assert point["nanoseconds"] >= 0
    for figure in report.get("figures", []):
        assert set(figure) == {"name", "value", "unit", "better"}
        assert figure["value"] >= 0
        assert figure["better"] in {"less", "more"}
    for series in report.get("series", []):
        assert set(series) == {"name", "x", "y", "points"}
        assert 1 < len(series["points"]) <= 500
        along = [x for x, _ in series["points"]]
        assert along == sorted(along)
    for entry in report.get("percentiles", []):
        assert list(entry["nanoseconds"]) == PERCENTILES
        values = list(entry["nanoseconds"].values())
        assert values == sorted(values)
        assert values[0] >= 0


@pytest.mark.parametrize(
    ("program", "figures"),
    [
        ("churn", ["memory per thread ended"]),
        (
            "fragmentation",
            ["resident over live, mean", "resident over live at the end"],
        ),
        ("many_threads", ["memory per idle thread"]),
        ("phases", ["peak over live", "at the end over live"]),
        (
            "survivors",
            [
                "resident over live after freeing",
                "resident over live with other sizes",
            ],
        ),
    ],
)
def test_a_pattern_reports_its_figures(
    programs: Path, program: str, figures: list[str]
) -> None:
    found = {each["name"]: each for each in run_tiny(programs, program)["figures"]}
    assert list(found) == figures


def test_an_idle_program_is_measured_after_a_second(programs: Path) -> None:
    report = run_tiny(programs, "idle", mebibytes=8, idle=1_010)
    assert [figure["name"] for figure in report["figures"]] == [
        "resident over live after 1 s",
        "resident over live at the end",
        "processor time of the allocator while idle",
    ]
    # What stays is resident.
    assert report["figures"][0]["value"] > 0.9
    assert [series["name"] for series in report["series"]] == ["resident", "live"]
    assert report["series"][0]["points"][-1][0] >= 1


def test_holes_are_compared_with_the_pages_that_cannot_go(programs: Path) -> None:
    report = run_tiny(programs, "holes", mebibytes=8, busy=0, rest=2_010)
    assert [figure["name"] for figure in report["figures"]] == [
        "resident over pages with a live block after 2 s",
        "resident over pages with a live block at the end",
    ]
    assert report["figures"][0]["value"] > 0.9
    resident, needed = report["series"]
    assert resident["name"] == "resident"
    assert needed["name"] == "pages with a live block"
    assert resident["points"][-1][0] >= 2


def test_the_phases_need_at_least_what_one_of_them_allocates(programs: Path) -> None:
    report = run_tiny(programs, "phases", megabytes=20)
    assert report["figures"][0]["value"] > 0.95
    resident = dict(report["series"][0]["points"])
    live = dict(report["series"][1]["points"])
    assert list(resident) == list(live)
    assert max(live.values()) * 1024 == pytest.approx(20e6, rel=0.01)
    assert all(resident[at] >= 0.95 * live[at] for at in live)


def test_latencies_of_calls_and_of_nothing_are_told_apart(programs: Path) -> None:
    report = run_tiny(programs, "latency")
    assert [entry["name"] for entry in report["percentiles"]] == [
        "malloc",
        "free",
        "nothing",
    ]


def test_calls_are_told_apart_by_points(programs: Path) -> None:
    points = {
        program: [point["name"] for point in run_tiny(programs, program)["points"]]
        for program in ("aligned", "calloc", "locality", "realloc")
    }
    assert points["aligned"] == ["64", "256", "4096", "65536", "2097152"]
    assert points["calloc"][:2] == ["64 fresh", "64 recycled"]
    assert points["locality"] == ["list", "map", "vector of strings"]
    assert len(points["realloc"]) == 4


# A histogram against a sorted list, by way of a program that is compiled for it.


def test_the_histogram_agrees_with_sorting(tmp_path: Path) -> None:
    source = tmp_path / "check.cpp"
    source.write_text(
        '#include "histogram.hpp"\n'
        "#include <cstdio>\n"
        "#include <initializer_list>\n"
        "static bench::Histogram histogram;\n"
        "int main() {\n"
        "  unsigned long long value;\n"
        '  while (std::scanf("%llu", &value) == 1) histogram.add(value);\n'
        "  for (unsigned parts : {50000u, 90000u, 99000u, 99900u, 100000u})\n"
        '    std::printf("%llu\\n", (unsigned long long)histogram.at(parts));\n'
        "}\n"
    )
    program = tmp_path / "check"
    headers = Path(__file__).parent / "workloads"
    subprocess.run(
        ["c++", "-std=c++20", f"-I{headers}", str(source), "-o", str(program)],
        check=True,
    )
    values = sorted([*range(200), *(3**power for power in range(24)), *[127, 128] * 9])
    done = subprocess.run(
        [program],
        input=" ".join(map(str, values)),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [int(line) for line in done.stdout.split()]
    for parts, value in zip(
        (50_000, 90_000, 99_000, 99_900, 100_000), found, strict=True
    ):
        exact = values[-(-len(values) * parts // 100_000) - 1]
        assert exact <= value <= exact * (1 + 1 / 64)
    assert found[-1] == values[-1]
