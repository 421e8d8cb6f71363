"""What profilers cost is counted on the program alone, with them and without."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bench.compare import markdown, packages, peers
from bench.compare.peers import PeerError
from bench.profilers import cli, cost, profilers
from bench.profilers.cost import Costs
from bench.profilers.profilers import EVERY, SAMPLES, Profiler

GLIBC = peers.find("glibc")


@pytest.fixture
def short_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop of few operations is all that is counted."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not here")
    monkeypatch.setattr(cost, "OPERATIONS", {SAMPLES: 20_000, EVERY: 20_000})
    monkeypatch.setattr(cost, "PROGRAMS", {"immediate": "a loop"})


def test_ratios_are_told_as_people_read_them() -> None:
    assert cli.told(1.0196) == "+2.0 %"
    assert cli.told(0.998) == "-0.2 %"
    assert cli.told(12.34) == "12.3 times"
    assert cli.told(None) == "–"


def test_a_profiler_that_sees_only_python_has_no_figure_for_the_loops() -> None:
    found = [
        Profiler("one", SAMPLES, GLIBC, GLIBC),
        Profiler("two", EVERY, GLIBC, GLIBC, starter=("python3", "-m", "two")),
    ]
    costs = Costs({"one": {"small": 1.02, "python": 1.002}, "two": {"python": 3}})
    lines = markdown.table(cli.table(found, costs))
    assert lines[0] == "| profiler | keeps | small | immediate | replace | python |"
    assert lines[2] == f"| one | {SAMPLES} | +2.0 % | – | – | +0.2 % |"
    assert lines[3] == f"| two | {EVERY} | – | – | – | 3.0 times |"


@pytest.mark.usefixtures("short_loop")
def test_a_profiler_is_counted_beside_its_allocator(programs: Path) -> None:
    try:
        allod = peers.find("allod")
    except PeerError as missing:
        pytest.skip(str(missing))
    each = replace(allod, variables=(("ALLOD_PROFILE", "2"),))
    found = [
        Profiler("the same", SAMPLES, allod, allod),
        Profiler("every block", EVERY, allod, each),
        Profiler("broken", EVERY, allod, replace(each, library=Path("/dev/null"))),
    ]
    costs = cost.measure(programs, found, print)
    assert costs.ratios["the same"]["immediate"] == pytest.approx(1, abs=1e-3)
    assert costs.ratios["every block"]["immediate"] > 5
    assert len(costs.failures) == 1
    assert costs.failures[0].startswith("broken, immediate: ")


def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "files", lambda package: [])
    monkeypatch.setattr(packages, "version", lambda package: None)
    found, notes = profilers.find(tmp_path)
    assert "heaptrack is left out: the package libheaptrack is not installed" in notes
    assert "heaptrack" not in {each.name for each in found}
