"""Rounds are interleaved, end when the medians are exact, and keep to the time."""

import contextlib
import dataclasses
import io
import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from bench.compare import progress, rounds, runner, selection, warmth
from bench.compare.cases import CASES, Case
from bench.compare.peers import Peer
from bench.compare.rounds import Budget, CaseResult, Plan
from bench.compare.run import Run
from bench.compare.session import Session
from bench.samples import a_run

# Rounds.


@pytest.fixture
def fake_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Replaces the processes by equal figures; returns the order in which they run."""
    order: list[tuple[int, str]] = []

    def run_once(
        programs: Path,
        case: Case,
        peer: Peer,
        *,
        quick: bool,
        number: int,
        timeout: float,
    ) -> Run:
        order.append((number, peer.name))
        return a_run(peer.name, 10.0, round=number)

    monkeypatch.setattr(runner, "run_once", run_once)
    return order


def measure_fake(names: str, repeats: int, seconds: float | None = None) -> CaseResult:
    result = CaseResult(CASES[0])
    plan = Plan(quick=True, repeats=repeats, precision=0.01, seconds=seconds)
    fakes = [Peer(name, None, "any") for name in names]
    budget = Budget(plan, 1)
    rounds.measure(Path(), result, fakes, plan, budget, lambda done, most: None)
    return result


def test_rounds_are_interleaved_and_rotated_and_the_first_is_discarded(
    fake_runs: list[tuple[int, str]],
) -> None:
    result = measure_fake("abc", repeats=2)
    assert "".join(name for _, name in fake_runs) == "abc" + "bca" + "cab"
    assert [run.round for run in result.runs["a"]] == [1, 2]


def test_rounds_can_be_added(fake_runs: list[tuple[int, str]]) -> None:
    result = measure_fake("abc", repeats=2)
    result.failures["c"] = "crashed"
    del result.runs["c"]
    fake_runs.clear()
    plan = Plan(quick=True, repeats=2, precision=0.01)
    fakes = [Peer(name, None, "any") for name in "abc"]
    rounds.measure(
        Path(), result, fakes, plan, Budget(plan, 1), lambda done, most: None
    )
    assert "".join(name for _, name in fake_runs) == "ab" + "ba" + "ab"
    assert [run.round for run in result.runs["a"]] == [1, 2, 3, 4]
    assert [run.round for run in result.runs["b"]] == [1, 2, 3, 4]


def test_every_run_finds_warm_what_the_largest_before_took(
    monkeypatch: pytest.MonkeyPatch, fake_runs: list[tuple[int, str]]
) -> None:
    warmed: list[tuple[float, float]] = []
    monkeypatch.setattr(
        warmth, "warm", lambda kib, seconds: warmed.append((kib, seconds))
    )
    result = measure_fake("ab", repeats=1)
    peak = result.runs["a"][0].peak_rss_kib
    assert peak > 0
    assert [kib for kib, _ in warmed] == [0, peak, peak, peak]
    lengths = [seconds for _, seconds in warmed]
    assert lengths[0] == 0 < lengths[1]
    assert lengths == sorted(lengths)
    warmed.clear()
    measure_fake("ab", repeats=1, seconds=30)
    assert warmed[1:] == [(peak, 0)] * (len(warmed) - 1)


def test_memory_stays_warm_while_the_host_takes_pages() -> None:
    free = 16e6
    assert warmth.amount_kib(0, 9, free, reported_to_host=True) == 0
    assert warmth.amount_kib(1000, 9, free, reported_to_host=False) == 1250
    assert warmth.amount_kib(1000, 0.5, free, reported_to_host=True) == 1250
    of_one_pass = warmth.amount_kib(1000, 2, free, reported_to_host=True)
    assert of_one_pass == 1250 + free / 16
    of_more = warmth.amount_kib(1000, 6, free, reported_to_host=True)
    assert of_one_pass < of_more < 1250 + 3 * free / 16
    # The page cache stays, however large and long a run is.
    assert warmth.amount_kib(2 * free, 99, free, reported_to_host=True) < free


def test_it_is_seen_whether_a_host_is_told_of_free_pages(tmp_path: Path) -> None:
    assert not warmth.reported(tmp_path)
    (tmp_path / "virtio3").mkdir()
    bits = tmp_path / "virtio3" / "features"
    bits.write_text("010000000\n")
    assert not warmth.reported(tmp_path)
    bits.write_text("010001000\n")
    assert warmth.reported(tmp_path)


def test_memory_can_be_warmed() -> None:
    subprocess.run(warmth.touching(1024), check=True)
    too_much = subprocess.run(
        warmth.touching(1 << 50), check=False, capture_output=True
    )
    assert too_much.returncode != 0
    warmth.warm(1024.0)


def test_most_of_what_is_free_is_held_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert warmth.held_kib(3 << 20) == 0, "others need it"
    assert warmth.held_kib(20 << 20) == 15 << 20
    monkeypatch.setattr(warmth, "held_kib", lambda free: 64 << 10)
    before = children()
    with warmth.held() as kib:
        (holder,) = children() - before
        status = Path(f"/proc/{holder}/status").read_text()
        (resident,) = re.findall(r"VmRSS:\s*(\d+) kB", status)
        assert int(resident) > kib == 64 << 10
        assert Path(f"/proc/{holder}/oom_score_adj").read_text() == "1000\n"
    assert children() == before
    monkeypatch.setattr(warmth, "held_kib", lambda free: 1 << 40)
    with warmth.held() as kib:
        assert kib == 0, "there is not so much"
    assert children() == before


@pytest.mark.parametrize(
    ("cases", "seconds", "is_told", "is_held"),
    [
        (8, None, True, True),
        (7, None, True, False),
        (8, 9.0, True, False),
        (8, None, False, False),
    ],
)
def test_memory_is_held_where_many_runs_pay_for_it(
    monkeypatch: pytest.MonkeyPatch,
    cases: int,
    seconds: float | None,
    is_told: bool,
    is_held: bool,
) -> None:
    held = contextlib.nullcontext(1 << 20)
    monkeypatch.setattr(warmth, "reported", lambda: is_told)
    monkeypatch.setattr(warmth, "held", lambda: held)
    text = io.StringIO()
    plan = Plan(quick=False, repeats=2, precision=0.01, seconds=seconds)
    session = Session(Path(), plan, False, False, Path(), Console(file=text))
    with session.most_memory_held(cases):
        assert ("1.0 GiB taken" in text.getvalue()) == is_held


def children() -> set[int]:
    found = Path("/proc/self/task").glob("*/children")
    return {int(child) for path in found for child in path.read_text().split()}


def test_rounds_end_when_the_medians_are_exact(
    fake_runs: list[tuple[int, str]],
) -> None:
    result = measure_fake("ab", repeats=25)
    assert len(result.runs["a"]) == rounds.FEWEST_ROUNDS


def test_a_different_checksum_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_once(
        programs: Path,
        case: Case,
        peer: Peer,
        *,
        quick: bool,
        number: int,
        timeout: float,
    ) -> Run:
        return dataclasses.replace(
            a_run(peer.name, 10.0, round=number),
            checksum="other" if peer.name == "b" and number == 2 else "same",
        )

    monkeypatch.setattr(runner, "run_once", run_once)
    result = measure_fake("ab", repeats=3)
    assert list(result.runs) == ["a"]
    assert "checksum other" in result.failures["b"]


# How much time there is, and how much is left.


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_gives_each_case_its_share_of_rounds() -> None:
    clock = Clock()
    plan = Plan(quick=True, repeats=10, precision=0.01, seconds=100.0)
    budget = Budget(plan, 4, clock)
    assert budget.rounds(5.0) == 1 + 4
    assert budget.rounds(0.1) == 1 + 10
    assert budget.rounds(50.0) == 1 + rounds.FEWEST_AT_ALL
    clock.now += 80
    budget.end_case()
    budget.end_case()
    assert budget.rounds(2.0) == 1 + 4
    clock.now += 80
    assert budget.left == 0
    unlimited = Budget(dataclasses.replace(plan, seconds=None), 4, clock)
    assert (unlimited.left, unlimited.rounds(50.0)) == (None, 11)


def test_a_case_for_which_no_time_is_left_gets_the_fewest_rounds(
    fake_runs: list[tuple[int, str]],
) -> None:
    result = measure_fake("ab", repeats=10, seconds=0.0)
    assert len(result.runs["a"]) == rounds.FEWEST_AT_ALL


def test_a_limited_run_takes_the_groups_in_turn() -> None:
    cases = [
        Case(name, name, "any", group=name[0]) for name in ("a1", "a2", "a3", "b1")
    ]
    turns = [case.name for case in selection.by_turns(cases)]
    assert turns == ["a1", "b1", "a2", "a3"]


def test_the_remaining_time_is_told_from_what_the_cases_took() -> None:
    clock = Clock()
    remaining = progress.Remaining(3, None, clock)
    remaining.begin_case()
    clock.now += 10
    # A quarter of the first is done; two more like it follow.
    assert remaining.seconds(2, 8) == 30 + 2 * 40
    clock.now += 10
    remaining.end_case()
    assert remaining.seconds(0, 0) == pytest.approx(2 * 20)
    assert [progress.duration(s) for s in (0.2, 89, 91, 7500)] == [
        *("1 s", "89 s", "2 min", "2 h 5 min")
    ]
