"""Statistics say what values say, and targets are passed or missed by them."""

import pytest

from bench.compare import results, stats, syscalls, targets
from bench.compare.cases import CASES, CASES_BY_NAME
from bench.compare.purging import Purging
from bench.compare.results import Results
from bench.compare.rounds import CaseResult
from bench.compare.run import Figure, Series
from bench.samples import EXTRA, a_case, a_run, some_results, times


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
