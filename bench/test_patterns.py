"""Each pattern does the same work under every allocator, and its results are well-formed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.compare.cases import GROUPS, Case, patterns

ALLOD = Path(__file__).resolve().parents[1] / "build" / "release" / "liballod.so"

# Parameters with which a program ends at once.
TINY: dict[str, dict[str, int]] = {
    "aligned": {"ops": 2_000},
    "bulk": {"count": 300, "rounds": 3},
    "calloc": {"mebibytes": 4, "rounds": 1},
    "churn": {"threads": 40, "blocks": 50},
    "fragmentation": {"mebibytes": 1, "epochs": 7},
    "generations": {"generations": 3, "objects": 4_000, "threads": 3},
    "idle": {"mebibytes": 2, "together": 500, "idle": 100},
    "immediate": {"ops": 20_000},
    "large": {"ops": 5, "live": 2},
    "latency": {"ops": 5_000, "live": 500},
    "locality": {"elements": 1_000, "walks": 2},
    "many_threads": {"threads": 30, "ops": 30_000, "once": 100},
    "pareto": {"ops": 20_000, "slots": 2_000},
    "phases": {"megabytes": 2},
    "prodcons": {"batches": 50, "batch": 32, "ring": 4},
    "realloc": {"rounds": 1},
    "replace": {"ops": 5_000, "live": 2_000},
    "rptest": {"rounds": 40, "blocks": 300},
    "survivors": {"mebibytes": 2},
    "sweep": {"pairs": 2, "batches": 1},
    "tree": {"depth": 10, "rounds": 2},
}
SEEDED = sorted(set(TINY) - {"bulk", "calloc", "realloc", "sweep", "tree"})
PERCENTILES = ["50", "90", "99", "99.9", "99.99", "99.999", "100"]


def run(program: Path, params: dict[str, int], library: Path | None) -> dict[str, Any]:
    arguments = [
        part for name, value in params.items() for part in (f"--{name}", str(value))
    ]
    environment = {"PATH": os.defpath}
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    done = subprocess.run(
        [program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def run_tiny(programs: Path, program: str, **params: int) -> dict[str, Any]:
    return run(programs / program, {**TINY[program], **params}, None)


@pytest.fixture(scope="session")
def allod() -> Path:
    if not ALLOD.is_file():
        pytest.skip("build/release/liballod.so is not built")
    return ALLOD


# The work.


@pytest.mark.parametrize("program", sorted(TINY))
def test_a_pattern_has_the_same_checksum_each_time(
    programs: Path, program: str
) -> None:
    first, second = (run_tiny(programs, program) for _ in range(2))
    assert first["seconds"] > 0
    assert first["ops"] == second["ops"] > 0
    assert first["checksum"] == second["checksum"]


@pytest.mark.parametrize("program", sorted(TINY))
def test_a_pattern_does_the_same_work_under_allod(
    programs: Path, allod: Path, program: str
) -> None:
    plain = run_tiny(programs, program)
    preloaded = run(programs / program, TINY[program], allod)
    assert Path(preloaded["malloc_from"]).samefile(allod)
    for same in ("ops", "checksum", "params"):
        assert plain[same] == preloaded[same]
    for kind in ("points", "series", "percentiles", "figures"):
        names = [entry["name"] for entry in plain.get(kind, [])]
        assert [entry["name"] for entry in preloaded.get(kind, [])] == names


@pytest.mark.parametrize("program", SEEDED)
def test_the_checksum_of_a_pattern_depends_on_its_seed(
    programs: Path, program: str
) -> None:
    assert (
        run_tiny(programs, program, seed=1)["checksum"]
        != run_tiny(programs, program, seed=2)["checksum"]
    )


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("pareto", {"threads": 2}),
        ("large", {"threads": 2}),
        ("rptest", {"threads": 1, "falloff": 2}),
        ("rptest", {"threads": 5, "falloff": 0, "cross": 1}),
        ("churn", {"at-once": 5, "left": 0}),
        ("latency", {"busy": 0}),
    ],
)
def test_a_pattern_runs_with_few_and_many_threads(
    programs: Path, program: str, params: dict[str, int]
) -> None:
    first, second = (run_tiny(programs, program, **params) for _ in range(2))
    assert first["checksum"] == second["checksum"]


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("pareto", {"max": 8, "slots": 1}),
        ("generations", {"max": 24, "objects": 1}),
        ("rptest", {"max": 24, "falloff": 2, "blocks": 1, "ops": 1}),
        ("latency", {"max": 16, "live": 1, "ops": 1}),
        ("large", {"min": 1, "max": 1, "part": 1024, "live": 1}),
        ("churn", {"blocks": 1, "left": 1}),
        ("idle", {"mebibytes": 1, "together": 1, "idle": 1}),
        ("fragmentation", {"epochs": 1}),
    ],
)
def test_a_pattern_runs_at_its_limits(
    programs: Path, program: str, params: dict[str, int]
) -> None:
    assert run_tiny(programs, program, **params)["ops"] > 0


@pytest.mark.parametrize(("threads", "touch"), [(1, 1), (2, 0), (8, 0)])
def test_the_sweep_reaches_64_mebibytes(
    programs: Path, threads: int, touch: int
) -> None:
    report = run_tiny(programs, "sweep", max=64 << 20, touch=touch, threads=threads)
    sizes = [int(point["name"]) for point in report["points"]]
    assert (sizes[0], sizes[-1]) == (1, 64 << 20)
    assert sizes == sorted(set(sizes))


# What is reported beside the time.


@pytest.mark.parametrize("program", sorted(TINY))
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


# Mistakes.


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["pareto", "--max", "7"], "--max must be a whole number from 8 to"),
        (["generations", "--threads", "0"], "--threads must be a whole number from 1"),
        (["rptest", "--falloff", "3"], "--falloff must be a whole number from 0 to 2"),
        (["large", "--min", "9", "--max", "8"], "--min is above --max"),
        (["churn", "--blocks", "5", "--left", "6"], "--left is above --blocks"),
        (["phases", "--phases", "1"], "--phases must be a whole number from 2 to 10"),
        (["idle", "--idle", "soon"], "--idle must be a whole number from 1 to"),
        (["fragmentation", "--epochs", "-1"], "--epochs must be a whole number"),
        (["survivors", "--every", "1"], "--every must be a whole number from 2 to"),
        (["locality", "--elements"], "option '--elements' requires an argument"),
        (["latency", "--busy", "65"], "--busy must be a whole number from 0 to 64"),
        (["many_threads", "--threads", "1025"], "from 2 to 1024"),
        (["many_threads", "--ops", "9"], "--ops is below --threads"),
        (["realloc", "fast"], "unexpected argument 'fast'"),
        (["calloc", "--seed", "1"], "unrecognized option '--seed'"),
        (["aligned", "--ops", "1"], "--ops must be a whole number from 64 to"),
        (["aligned", "--min", "65", "--max", "66"], "no alignment between --min and"),
        (["sweep", "--markers", "1", "--threads", "2"], "--markers needs one thread"),
    ],
)
def test_a_pattern_refuses_bad_parameters(
    programs: Path, command: list[str], message: str
) -> None:
    program, *arguments = command
    done = subprocess.run(
        [programs / program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_an_allocator_that_does_not_clear_is_caught(
    programs: Path, tmp_path: Path
) -> None:
    source = tmp_path / "soiled.c"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n"
        "void *calloc(size_t n, size_t m) {\n"
        "  char *p = malloc(n * m); if (p) memset(p, n * m >= 64, n * m); return p; }\n"
    )
    library = tmp_path / "soiled.so"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-fno-builtin",
        "-o",
        str(library),
        str(source),
    ]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [programs / "calloc", "--mebibytes", "4"],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a block was not cleared" in done.stderr


# The cases.


def test_every_program_has_a_case_and_tiny_parameters() -> None:
    assert {case.program for case in patterns.CASES} == set(TINY)


@pytest.mark.parametrize("case", patterns.CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("quick", [False, True])
def test_the_parameters_of_a_case_are_known(
    programs: Path, case: Case, quick: bool
) -> None:
    assert case.group in GROUPS
    # --help is looked at last, after every parameter was checked.
    command = [str(programs / case.program), *case.arguments(quick), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
