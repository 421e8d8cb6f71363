"""The measurement measures what it says, and says so when it cannot."""

import csv
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.compare import (
    build,
    cli,
    machine,
    peers,
    report,
    results,
    runner,
    stats,
    syscalls,
    targets,
)
from bench.compare.cases import CASES, CASES_BY_NAME, Case
from bench.compare.peers import Peer
from bench.compare.runner import CaseResult, Plan, Run, RunError

GLIBC = Peer("glibc", None, "any")

TINY: dict[str, dict[str, int]] = {
    "immediate": {"ops": 20_000},
    "replace": {"ops": 5_000, "live": 2_000},
    "tree": {"depth": 10, "rounds": 2},
    "prodcons": {"batches": 50, "batch": 32, "ring": 4},
    "sweep": {"pairs": 2, "batches": 1},
    "bulk": {"count": 300, "rounds": 3},
}


def tiny(case: Case, **params: int) -> Case:
    return dataclasses.replace(
        case, params={**case.params, **TINY[case.program], **params}, quick={}
    )


@pytest.fixture(scope="session")
def programs() -> Path:
    return build.build(print, may_install=True)


@pytest.fixture(scope="session")
def others() -> list[Peer]:
    """A second allocator that works, and Allod as soon as it is built."""
    peers.install_missing(["mimalloc"], print)
    found = [peers.find("mimalloc")]
    try:
        found.append(peers.find(peers.SUBJECT))
    except peers.PeerError as missing:
        print(missing)
    return found


def run_tiny(programs: Path, case: Case, peer: Peer) -> Run:
    return runner.run_once(programs, case, peer, quick=False, number=1, timeout=60)


def a_run(peer: str, nanoseconds: float, peak: int = 1000, number: int = 1) -> Run:
    return Run(
        peer=peer,
        round=number,
        seconds=1.0,
        user_seconds=1.0,
        system_seconds=0.0,
        nanoseconds=nanoseconds,
        ops=1,
        checksum="same",
        peak_rss_kib=peak,
        final_rss_kib=peak,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
        disturbed=False,
        compiler="none",
        params={},
        points={},
    )


def some_results(*cases: CaseResult) -> results.Results:
    names = dict.fromkeys(name for case in cases for name in case.runs)
    return results.Results(
        machine.describe(),
        "today",
        quick=False,
        precision=0.01,
        peers=[Peer(name, None, "any") for name in names],
        cases=list(cases),
    )


# The workloads.


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_workload_does_the_same_work_under_every_allocator(
    programs: Path, others: list[Peer], case: Case
) -> None:
    small = tiny(case)
    base = run_tiny(programs, small, GLIBC)
    assert base.ops > 0
    assert base.seconds > 0
    assert base.final_rss_kib > 0
    assert base.peak_rss_kib >= base.final_rss_kib
    for peer in others:
        run = run_tiny(programs, small, peer)
        assert run.checksum == base.checksum
        assert run.ops == base.ops
        assert run.points.keys() == base.points.keys()


@pytest.mark.parametrize("name", ["immediate", "replace", "prodcons"])
def test_the_checksum_depends_on_the_seed(programs: Path, name: str) -> None:
    case = CASES_BY_NAME[name]
    sums = {run_tiny(programs, tiny(case, seed=s), GLIBC).checksum for s in (1, 2, 1)}
    assert len(sums) == 2


def test_the_sweep_has_eight_sizes_to_a_doubling(programs: Path) -> None:
    run = run_tiny(programs, tiny(CASES_BY_NAME["sweep"]), GLIBC)
    sizes = [int(size) for size in run.points]
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, 4 << 20)
    assert sum(1 << 20 <= size < 2 << 20 for size in sizes) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "many"], "--ops must be a whole number from 1 to"),
        (["--ops", "-1"], "--ops must be a whole number from 1 to"),
        (["--max", "65536"], "--max must be a whole number from 1 to 65535"),
        (["--speed", "1"], "unrecognized option '--speed'"),
        (["fast"], "unexpected argument 'fast'"),
    ],
)
def test_a_workload_refuses_bad_arguments(
    programs: Path, arguments: list[str], message: str
) -> None:
    command = [str(programs / "immediate"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_workload_needs_the_c_library_only(programs: Path, name: str) -> None:
    listing = subprocess.run(
        ["readelf", "--dynamic", str(programs / name)],
        capture_output=True,
        text=True,
        check=True,
    )
    needed = [line for line in listing.stdout.splitlines() if "(NEEDED)" in line]
    assert len(needed) == 1
    assert "libc.so.6" in needed[0]


# One run: whose malloc it was, and what can go wrong.


def compile_allocator(folder: Path, body: str) -> Peer:
    source = folder / "allocator.c"
    library = folder / "allocator.so"
    source.write_text(f"#include <stddef.h>\n{body}\n")
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return peers.from_file("broken", library)


def test_an_allocator_that_hands_out_live_memory_is_caught(
    programs: Path, tmp_path: Path
) -> None:
    broken = compile_allocator(
        tmp_path,
        "static char pool[1 << 20];\n"
        "void *malloc(size_t n) { (void)n; return pool; }\n"
        "void *calloc(size_t n, size_t m) { (void)n; (void)m; return pool; }\n"
        "void free(void *p) { (void)p; }",
    )
    with pytest.raises(RunError, match="was overwritten"):
        run_tiny(programs, tiny(CASES_BY_NAME["replace"]), broken)


def test_a_library_without_a_malloc_is_not_measured(
    programs: Path, tmp_path: Path
) -> None:
    idle = compile_allocator(tmp_path, "int nothing;")
    with pytest.raises(RunError, match="malloc comes from .*libc"):
        run_tiny(programs, tiny(CASES_BY_NAME["immediate"]), idle)


def test_a_library_that_cannot_be_loaded_is_not_measured(
    programs: Path, tmp_path: Path
) -> None:
    library = tmp_path / "text.so"
    library.write_text("not a library")
    with pytest.raises(RunError, match="was not loaded"):
        run_tiny(
            programs,
            tiny(CASES_BY_NAME["immediate"]),
            peers.from_file("text", library),
        )


def test_a_crash_names_its_signal(programs: Path, tmp_path: Path) -> None:
    crashing = compile_allocator(tmp_path, "void free(void *p) { *(int *)0 = 1; }")
    with pytest.raises(RunError, match="SIGSEGV"):
        run_tiny(programs, tiny(CASES_BY_NAME["immediate"]), crashing)


def test_options_of_allocators_do_not_reach_the_workloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("LD_PRELOAD", "")
    assert set(runner.environment(GLIBC)) == {"PATH"}


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
        return a_run(peer.name, 10.0, number=number)

    monkeypatch.setattr(runner, "run_once", run_once)
    return order


def measure_fake(names: str, repeats: int) -> CaseResult:
    result = CaseResult(CASES[0])
    plan = Plan(quick=True, repeats=repeats, precision=0.01)
    fakes = [Peer(name, None, "any") for name in names]
    runner.measure(Path(), result, fakes, plan, lambda steps: None)
    return result


def test_rounds_are_interleaved_and_rotated_and_the_first_is_discarded(
    fake_runs: list[tuple[int, str]],
) -> None:
    result = measure_fake("abc", repeats=2)
    assert "".join(name for _, name in fake_runs) == "abc" + "bca" + "cab"
    assert [run.round for run in result.runs["a"]] == [1, 2]


def test_rounds_end_when_the_medians_are_exact(
    fake_runs: list[tuple[int, str]],
) -> None:
    result = measure_fake("ab", repeats=25)
    assert len(result.runs["a"]) == runner.FEWEST_ROUNDS


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
            a_run(peer.name, 10.0, number=number),
            checksum="other" if peer.name == "b" and number == 2 else "same",
        )

    monkeypatch.setattr(runner, "run_once", run_once)
    result = measure_fake("ab", repeats=3)
    assert list(result.runs) == ["a"]
    assert "checksum other" in result.failures["b"]


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
    assert summary.half_width() == pytest.approx(0.15)


def test_a_ratio_is_not_moved_by_what_disturbs_whole_rounds() -> None:
    rounds = [1.0, 1.0, 5.0, 2.0, 9.0]
    ratio = stats.paired_ratio([2 * value for value in rounds], rounds)
    assert ratio.median == 2.0
    assert ratio.deviation == 0.0


def test_the_subject_is_never_its_own_measure() -> None:
    runs = {
        "allod": [a_run("allod", 5.0)],
        "a": [a_run("a", 10.0)],
        "b": [a_run("b", 8.0)],
    }
    ratios = results.time_ratios(CaseResult(CASES_BY_NAME["tree"], runs))
    assert ratios is not None
    assert ratios.best == "b"
    assert ratios.of["allod"].median == pytest.approx(0.625)


@pytest.mark.parametrize(("allod", "passed"), [(10.0, True), (10.2, False)])
def test_a_target_is_passed_or_missed(allod: float, passed: bool) -> None:
    runs = {"allod": [a_run("allod", allod, 1000)], "a": [a_run("a", 10.0, 900)]}
    checks = targets.check(some_results(CaseResult(CASES_BY_NAME["tree"], runs)))
    assert [(check.name, check.passed) for check in checks] == [
        ("tree: time", passed),
        ("tree: peak resident size", False),
    ]


def test_the_sweep_is_checked_for_cliffs_and_system_calls() -> None:
    points = {"1": 5.0, "1024": 6.0, "2048": 8.0, "4096": 17.0}
    run = dataclasses.replace(a_run("allod", 1.0), points=points)
    found = some_results(CaseResult(CASES_BY_NAME["sweep"], {"allod": [run]}))
    found.system_calls = [syscalls.SystemCalls("allod", {1024: 0.0, 4096: 2.0})]
    checks = {check.name.partition(":")[2]: check for check in targets.check(found)}
    assert [check.value for check in checks.values()] == [17.0 / 8.0, 2.0]
    assert not any(check.passed for check in checks.values())


# System calls.


def test_system_calls_are_counted_between_the_marks() -> None:
    log = """\
7 brk(NULL) = 0x1
7 write(-1, "sweep begin size=64 pairs=10", 28) = -1 EBADF (Bad file descriptor)
7 write(-1, "sweep end size=64 pairs=10", 26) = -1 EBADF (Bad file descriptor)
7 munmap(0x1, 4096) = 0
7 write(-1, "sweep begin size=128 pairs=2", 28) = -1 EBADF (Bad file descriptor)
7 mmap(NULL, 4096 <unfinished ...>
8 munmap(0x1, 4096) = 0
7 <... mmap resumed>) = 0x2
7 write(-1, "sweep end size=128 pairs=2", 26) = -1 EBADF (Bad file descriptor)
"""
    assert syscalls.parse(log) == {64: 0.0, 128: 1.0}


def test_an_allocator_that_maps_every_block_is_seen(
    programs: Path, tmp_path: Path
) -> None:
    if not syscalls.prepare(print, may_install=True):
        pytest.skip("strace is not there and cannot be installed")
    mapping = compile_allocator(
        tmp_path,
        "#include <sys/mman.h>\n"
        "static size_t length = 8 << 20;\n"
        "void *malloc(size_t n) { (void)n; return mmap(0, length,"
        " PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }\n"
        "void free(void *p) { if (p) munmap(p, length); }",
    )
    assert set(syscalls.count(programs, mapping).per_pair.values()) == {2.0}
    assert syscalls.count(programs, GLIBC).per_pair[64] == 0.0


# The command.


def test_a_quick_comparison_writes_its_files(
    programs: Path,
    others: list[Peer],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ["--peer", "glibc", "--peer", "mimalloc", "--workload", "tree"]
    status = cli.main([*chosen, "--quick", "--json", "--out", str(tmp_path)])
    assert status == 0
    document = json.loads((tmp_path / "results.json").read_text())
    assert json.loads(capsys.readouterr().out) == document
    assert [peer["name"] for peer in document["peers"]] == ["glibc", "mimalloc"]
    (case,) = document["cases"]
    assert case["failures"] == {}
    assert len(case["runs"]) == 2 * cli.QUICK_REPEATS
    assert {run["round"] for run in case["runs"]} == {1, 2, 3}
    assert len({run["checksum"] for run in case["runs"]}) == 1
    assert document["machine"]["kernel"].startswith("Linux")
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["workload"], row["peer"]) for row in rows} == {
        ("tree", "glibc"),
        ("tree", "mimalloc"),
    }
    assert "| tree |" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_failing_allocator_is_reported_and_the_others_are_kept(
    programs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = compile_allocator(tmp_path, "void free(void *p) { *(int *)0 = 1; }")
    status = cli.main(
        [
            *("--peer", "glibc", "--peer", f"broken={broken.library}"),
            *("--workload", "tree", "--quick", "--repeats", "1"),
            *("--out", str(tmp_path / "out")),
        ]
    )
    assert status == 1
    assert "broken FAILED: killed by SIGSEGV" in capfd.readouterr().err
    text = (tmp_path / "out" / "report.md").read_text()
    assert "* broken failed: killed by SIGSEGV" in text
    assert "| tree | **1.00" in text


def test_an_interrupted_comparison_keeps_what_is_done(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_runs() -> Iterator[Run]:
        yield a_run("glibc", 10.0, number=0)
        yield a_run("glibc", 10.0, number=1)
        raise KeyboardInterrupt

    runs = interrupted_runs()
    monkeypatch.setattr(runner, "run_once", lambda *_, **__: next(runs))
    status = cli.main(["--peer", "glibc", "--workload", "tree", "--out", str(tmp_path)])
    assert status == 130
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["interrupted"] is True
    assert [run["round"] for run in document["cases"][0]["runs"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "nothing"], "'nothing' is not one of 'immediate'"),
        (["--peer", "nothing"], "unknown peer 'nothing'; known: allod, glibc"),
        (["--peer", "x=/no/such/library.so"], "/no/such/library.so is not a file"),
        (["--peer", "glibc=/lib/libc.so"], "the name 'glibc' is taken"),
        (["--peer", "=/lib/libc.so"], "should be NAME=/PATH/LIBRARY.so"),
        (["--repeats", "0"], "0 is not in the range"),
        (["--repeats", "few"], "'few' is not a valid integer"),
        (["--precision", "0"], "is not in the range"),
        (["--fast"], "No such option '--fast'"),
        (["tree"], "unexpected extra argument (tree)"),
    ],
)
def test_the_command_refuses_bad_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--no-install", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_targets_cannot_be_checked_without_the_subject(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--no-install", "--check", "--peer", "glibc"]) == 1
    assert "--check needs allod" in capsys.readouterr().err


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.compare", "--list"],
        env={**os.environ, "PYTHONPATH": str(peers.ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    for case in CASES:
        assert f"  {case.name} " in done.stdout
    assert "  glibc " in done.stdout


def test_the_report_marks_the_measure_and_the_noisy() -> None:
    steady = [a_run("a", 10.0, number=number) for number in range(1, 8)]
    noisy = [a_run("b", 20.0 + number, number=number) for number in range(1, 8)]
    found = some_results(CaseResult(CASES[0], {"a": steady, "b": noisy}))
    assert "| immediate | **1.00** | 2.40 ~ |" in report.render(found, [])
