"""The measurement measures what it says, and says so when it cannot."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.compare import (
    cached,
    cli,
    counters,
    peers,
    processes,
    progress,
    purging,
    rounds,
    runner,
    selection,
    smallest,
    storage,
    syscalls,
    targets,
    warmth,
)
from bench.compare.cases import CASES, CASES_BY_NAME, Case
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut, RunError
from bench.compare.rounds import Budget, CaseResult, Plan
from bench.compare.run import Run
from bench.samples import a_run
from bench.tiny import TINY, compile_library

GLIBC = Peer("glibc", None, "any")

# Of each kind of program one.
PROGRAMS = ("bulk", "immediate", "prodcons", "replace", "sweep", "tree")


def tiny(case: Case, **params: int) -> Case:
    return dataclasses.replace(
        case, params={**case.params, **TINY[case.program], **params}, quick={}
    )


@pytest.fixture(scope="session")
def others() -> list[Peer]:
    """A second allocator that works, and Allod as soon as it is built."""
    peers.install_missing(["tcmalloc"], print)
    found = [peers.find("tcmalloc")]
    try:
        found.append(peers.find(peers.SUBJECT))
    except peers.PeerError as missing:
        print(missing)
    return found


def run_tiny(programs: Path, case: Case, peer: Peer) -> Run:
    return runner.run_once(programs, case, peer, quick=False, number=1, timeout=60)


# The workloads.


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.program in PROGRAMS and not case.script],
    ids=lambda case: case.name,
)
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


# One run: whose malloc it was, and what can go wrong.


def compile_allocator(folder: Path, body: str) -> Peer:
    return peers.from_file("broken", compile_library(folder, body))


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


def reporting(text: str) -> list[str]:
    """A workload that prints this."""
    return [sys.executable, "-c", f"print({text!r})"]


REPORT = {
    **dict.fromkeys(("user_seconds", "system_seconds"), 0.5),
    **dict.fromkeys(("minor_faults", "major_faults"), 1),
    **dict.fromkeys(("voluntary_switches", "involuntary_switches"), 2),
    "workload": "fake",
    "params": {"ops": 4},
    "seconds": 1.0,
    "ops": 4,
    "checksum": "f00d",
    "peak_rss_kib": 2000,
    "final_rss_kib": 1000,
    "malloc_from": "/lib/libc.so.6",
    "expected_library": None,
    "compiler": "none",
}


def test_a_run_carries_all_that_a_workload_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = json.dumps(
        {
            **REPORT,
            "points": [{"name": "64", "nanoseconds": 12.5}],
            "percentiles": [{"name": "malloc", "nanoseconds": {"50": 9, "100": 800}}],
            "figures": [
                {"name": "waste", "value": 1.5, "unit": "MiB", "better": "less"}
            ],
            "series": [
                {"name": "resident", "x": "s", "y": "KiB", "points": [[0, 7], [1, 8]]}
            ],
        }
    )
    monkeypatch.setattr(runner, "command", lambda *_, **__: reporting(text))
    run = run_tiny(Path(), CASES_BY_NAME["tree"], GLIBC)
    assert run.nanoseconds == 0.25e9
    assert run.points == {"64": 12.5}
    assert run.percentiles == {"malloc": {"50": 9.0, "100": 800.0}}
    assert [(each.name, each.value) for each in run.figures] == [("waste", 1.5)]
    assert run.series[0].points == ((0.0, 7.0), (1.0, 8.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ops": 0}, "must be positive"),
        ({"seconds": "soon"}, "could not convert"),
        ({"seconds": float("nan")}, "not a finite number"),
        ({"points": [{"name": "64"}]}, "lacks 'nanoseconds'"),
        ({"figures": [{"name": "f", "value": 1, "better": "up"}]}, "better is 'up'"),
        ({"series": [{"name": "s", "x": "", "y": "", "points": [1]}]}, "unreadable"),
    ],
)
def test_a_bad_report_is_an_error_and_not_a_figure(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    text = json.dumps({**REPORT, **change})
    monkeypatch.setattr(runner, "command", lambda *_, **__: reporting(text))
    with pytest.raises(RunError, match=message):
        run_tiny(Path(), CASES_BY_NAME["tree"], GLIBC)


def test_a_process_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 1000 & echo $! >{pid}; wait"]
    with pytest.raises(RunError, match="not finished after 5 s"):
        processes.output_of(command, {"PATH": os.defpath}, timeout=5.0)
    state = Path("/proc", pid.read_text().strip(), "stat")
    # It ends by itself once it was told to, and nobody waits for it.
    deadline = time.monotonic() + 120
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while ") Z " not in state.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_interrupt_while_a_process_begins_ends_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.output_of(["sleep", "1000"], {"PATH": os.defpath}, timeout=60.0)
    assert begun[0].returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_script_gets_the_library_by_name_and_is_not_preloaded() -> None:
    library = Path("/somewhere/lib.so")
    peer = Peer("other", library, "any", (("TUNING", "1"),))
    variables = runner.environment(peer, script=True)
    assert variables["BENCH_PRELOAD"] == str(library)
    assert "LD_PRELOAD" not in variables
    assert json.loads(variables["BENCH_VARIABLES"]) == {"TUNING": "1"}
    assert "TUNING" not in variables
    assert runner.environment(GLIBC, script=True)["BENCH_PRELOAD"] == ""
    case = Case("lua", "lua", "any", params={"scale": 3}, script=True)
    command = runner.command(Path("/nowhere"), case, quick=True)
    assert command[1:] == ["-m", "bench.programs.lua", "--scale", "3", "--quick"]


def test_a_script_may_say_that_the_machine_cannot_run_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says_so = "import sys; print('no lua', file=sys.stderr); sys.exit(77)"
    monkeypatch.setattr(runner, "_script", lambda case: [sys.executable, "-c", says_so])
    case = Case("lua", "lua", "any", script=True)
    with pytest.raises(LeftOut, match="no lua"):
        runner.prepare(case, may_install=False)
    with pytest.raises(LeftOut, match="no lua"):
        run_tiny(Path(), case, GLIBC)


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
    warmed: list[float] = []
    monkeypatch.setattr(warmth, "warm", warmed.append)
    result = measure_fake("ab", repeats=1)
    peak = result.runs["a"][0].peak_rss_kib
    assert peak > 0
    assert warmed == [0, peak, peak, peak]


def test_memory_can_be_warmed() -> None:
    subprocess.run(warmth.touching(1024), check=True)
    too_much = subprocess.run(
        warmth.touching(1 << 50), check=False, capture_output=True
    )
    assert too_much.returncode != 0
    warmth.warm(1024.0)


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


# Instructions.


def around_libc(folder: Path, name: str, more: str) -> Peer:
    """The C library's allocator, with something more in each free."""
    inner = folder / name
    inner.mkdir()
    body = (
        "extern void *__libc_malloc(size_t);\n"
        "extern void __libc_free(void *);\n"
        "void *malloc(size_t n) { return __libc_malloc(n); }\n"
        f"void free(void *p) {{ {more} __libc_free(p); }}"
    )
    return dataclasses.replace(compile_allocator(inner, body), name=name)


@pytest.mark.usefixtures("callgrind")
def test_twenty_instructions_more_in_each_free_are_seen(
    programs: Path, tmp_path: Path
) -> None:
    nops = "".join("nop;" for _ in range(20))
    plain = around_libc(tmp_path, "plain", "")
    same = around_libc(tmp_path, "same", "")
    slowed = around_libc(tmp_path, "slowed", f'__asm__ volatile("{nops}");')
    case = tiny(CASES_BY_NAME["immediate"])
    jobs = [(case, peer) for peer in (plain, same, slowed)]
    counts = {}
    counted = counters.count_all(programs, jobs, "callgrind", quick=True)
    for _, peer, count in counted:
        assert isinstance(count, counters.Count), count
        counts[peer.name] = count.events["instructions"]
    assert counts["same"] == pytest.approx(counts["plain"], rel=0.001)
    assert counts["slowed"] - counts["plain"] == pytest.approx(20, abs=0.1)


@pytest.mark.usefixtures("callgrind")
def test_what_callgrind_cannot_run_is_said(programs: Path, tmp_path: Path) -> None:
    crashing = compile_allocator(tmp_path, "void free(void *p) { *(int *)0 = 1; }")
    jobs = [(tiny(CASES_BY_NAME["immediate"]), crashing)]
    ((_, _, count),) = counters.count_all(programs, jobs, "callgrind", quick=True)
    assert isinstance(count, str)
    assert "SIGSEGV" in count


def test_perf_events_that_the_machine_has_are_read() -> None:
    text = """\
# started on Monday
<not supported>,,cycles,0,100.00,,
5000,,instructions:u,100,100.00,,
20,,cache-misses,100,50.00,0.1,of all
"""
    assert counters.parse_perf(text) == {"instructions": 5000.0, "cache-misses": 20.0}


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


def test_calls_that_give_memory_back_are_those_of_the_program() -> None:
    log = """\
7     munmap(0x1, 4096)                 = 0 <0.000010>
7 clone3({flags=CLONE_VM, parent_tid=0x7f0}, stack=0x7f1} => {parent_tid=[8]}, 88) = 8 <0.00002>
8 clone(child_stack=0x1, flags=CLONE_THREAD|CLONE_CHILD_SETTID, child_tidptr=0x7) = 9 <0.00002>
9 madvise(0x1, 4096, MADV_DONTNEED) = 0 <0.005000>
8     madvise(0x1, 4096, MADV_HUGEPAGE) = 0 <0.000020>
8 madvise(0x1, 4096, MADV_DONTNEED <unfinished ...>
9 madvise(0x1, 4096, MADV_DONTNEED <unfinished ...>
7 madvise(0x1, 4096, MADV_NOHUGEPAGE <unfinished ...>
8 <... madvise resumed>) = 0 <0.000300>
9 <... madvise resumed>) = 0 <0.000400>
7 <... madvise resumed>) = 0 <0.000500>
7 clone(child_stack=0x1, flags=CLONE_THREAD|CLONE_PARENT_SETTID, parent_tid=[10]) = 10 <0.1>
10 madvise(0x1, 4096, MADV_FREE) = 0 <0.000030>
"""
    assert purging.calls_of_program(log) == pytest.approx([10.0, 300.0, 30.0])
    assert purging.percentile_99([]) == 0.0
    assert purging.percentile_99(range(1, 201)) == 198


def test_what_giving_memory_back_costs_is_measured(programs: Path) -> None:
    if not syscalls.prepare(print, may_install=True):
        pytest.skip("strace is not there and cannot be installed")
    case = CASES_BY_NAME["phases"]
    cost = purging.measure(programs, case, GLIBC, quick=True)
    assert cost.key == ("phases", "glibc")
    assert cost.calls > 0
    assert cost.held_us > 0
    assert cost.helper_share < 0.01, "it has no helper"
    try:
        allod = peers.find("allod")
    except peers.PeerError:
        pytest.skip("the library is not built")
    # Two looks at a thread may both miss what it does.
    share = 0.0
    for _ in range(5):
        share = share or purging.measure(programs, case, allod, quick=True).helper_share
    assert 0.0 < share < 1.0


@pytest.mark.parametrize("piece", cached.WAYS)
def test_a_small_program_stays_small_however_files_came_into_memory(piece: int) -> None:
    try:
        allod = peers.find("allod")
    except peers.PeerError:
        pytest.skip("the library is not built")
    environments = [runner.environment(peer) for peer in (GLIBC, allod)]
    plain, ours = smallest.means_kib(environments, piece, repeats=25)
    assert ours - plain <= targets.SMALLEST_LIMIT_KIB


@pytest.mark.parametrize("peer", ["allod", "allod-hardened"])
@pytest.mark.parametrize("name", ["cfrac", "cache-scratch", "larson", "prodcons"])
def test_common_programs_need_two_windows_of_code(
    programs: Path, tmp_path: Path, name: str, peer: str
) -> None:
    """The kernel maps the library's code in windows of 64 KiB; see ALLOD_HOT."""
    try:
        allod = peers.find(peer)
    except peers.PeerError:
        pytest.skip("the library is not built")
    watcher = compile_library(
        tmp_path,
        "#include <fcntl.h>\n#include <unistd.h>\n"
        "__attribute__((destructor)) static void copy(void) {\n"
        '  int from = open("/proc/self/smaps", O_RDONLY);\n'
        '  int to = open(getenv("COPY"), O_CREAT | O_WRONLY, 0600);\n'
        "  char text[4096];\n"
        "  for (ssize_t n; (n = read(from, text, sizeof text)) > 0;)\n"
        "    if (write(to, text, n) != n) abort();\n}\n",
    )
    copy = tmp_path / "smaps"
    assert allod.library is not None
    library = cached.copy_by_pages(allod.library, tmp_path / "copy")
    preload = f"{library}:{watcher}"
    subprocess.run(
        runner.command(programs, CASES_BY_NAME[name], quick=True),
        env={"PATH": os.defpath, "LD_PRELOAD": preload, "COPY": str(copy)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    code = re.search(
        r" r-xp .*/liballod[^/]*\.so.*\nSize: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB",
        copy.read_text(),
    )
    assert code is not None
    size_kib, resident_kib = map(int, code.groups())
    # The code ends with `_fini`, in what is left of a window, or in a whole one: every program
    # needs that at its end. One more is allowed for what a busy machine makes happen.
    assert resident_kib <= 3 * 64 + (size_kib % 64 or 64)


def test_a_library_that_touches_memory_is_seen(tmp_path: Path) -> None:
    fat = compile_library(
        tmp_path,
        "static char fat[1 << 20];\n"
        "__attribute__((constructor)) static void touch(void) {\n"
        "  for (volatile char *p = fat; p < fat + sizeof fat; p += 4096) *p = 1;\n}\n",
    )
    plain, more = smallest.means_kib([{}, {"LD_PRELOAD": str(fat)}])
    assert 1000 < more - plain < 1200
    noisy = {"LD_PRELOAD": str(tmp_path / "missing.so")}
    with pytest.raises(smallest.SmallestError, match="missing.so"):
        smallest.means_kib([noisy])


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


def bench(tmp_path: Path, *arguments: str) -> int:
    """The comparison with glibc alone, into a folder of its own."""
    return cli.main([*("--peer", "glibc", "--out", str(tmp_path)), *arguments])


def test_a_quick_comparison_writes_its_files(
    programs: Path,
    others: list[Peer],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ["--peer", "tcmalloc", "--workload", "tree", "--repeats", "2"]
    assert bench(tmp_path, *chosen, "--quick", "--json") == 0
    text = (tmp_path / "results.json").read_text()
    assert capsys.readouterr().out == text
    document = json.loads(text)
    assert document["format"] == storage.FORMAT
    assert [peer["name"] for peer in document["peers"]] == ["glibc", "tcmalloc"]
    (case,) = document["cases"]
    assert case["failures"] == {}
    assert len(case["runs"]) == 2 * 2
    assert {run["round"] for run in case["runs"]} == {1, 2}
    assert len({run["checksum"] for run in case["runs"]}) == 1
    assert document["machine"]["kernel"].startswith("Linux")
    assert "| tree |" in (tmp_path / "report.md").read_text()
    assert 'id="tree"' in (tmp_path / "report.html").read_text()
    assert (tmp_path / "runs.csv").read_text().count("\ntree,") == 4


def test_rounds_are_added_to_what_they_belong_to_alone(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, "--workload", "tree", "--quick", "--repeats", "1") == 0
    stored = tmp_path / "results.json"
    more = ["--more", str(stored), "--repeats", "2"]
    assert cli.main([*more, "--workload", "immediate", "--workload", "tree"]) == 0
    document = json.loads(stored.read_text())
    assert [peer["name"] for peer in document["peers"]] == ["glibc"]
    by_name = {case["case"]["name"]: case["runs"] for case in document["cases"]}
    assert [run["round"] for run in by_name["tree"]] == [1, 2, 3]
    assert [run["round"] for run in by_name["immediate"]] == [1, 2]
    (note,) = document["notes"]
    assert re.fullmatch(r"rounds added at .+: immediate 2, tree 2", note)

    document["peers"][0]["version"] = "glibc 1.0"
    stored.write_text(json.dumps(document))
    capsys.readouterr()
    assert cli.main(more) == 1
    assert "glibc was glibc 1.0, and is glibc 2" in capsys.readouterr().err
    document["machine"]["cores"] = 4711
    stored.write_text(json.dumps(document))
    assert cli.main(more) == 1
    assert "on the same kind of machine only" in capsys.readouterr().err


def test_a_failing_allocator_is_reported_and_the_others_are_kept(
    programs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = compile_allocator(tmp_path, "void free(void *p) { *(int *)0 = 1; }")
    chosen = ["--peer", f"broken={broken.library}", "--workload", "tree", "--quick"]
    assert bench(tmp_path, *chosen, "--repeats", "1") == 1
    assert "broken FAILED: killed by SIGSEGV" in capfd.readouterr().err
    text = (tmp_path / "report.md").read_text()
    assert "* broken failed: killed by SIGSEGV" in text
    assert "**1.00" in text


def test_an_interrupted_comparison_keeps_what_is_done(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_runs() -> Iterator[Run]:
        yield a_run("glibc", 10.0, round=0)
        yield a_run("glibc", 10.0, round=1)
        raise KeyboardInterrupt

    runs = interrupted_runs()
    monkeypatch.setattr(runner, "run_once", lambda *_, **__: next(runs))
    assert bench(tmp_path, "--workload", "tree") == 130
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["interrupted"] is True
    assert [run["round"] for run in document["cases"][0]["runs"]] == [1]
    assert "interrupted" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_workload_too_and_keeps_what_is_done(
    programs: Path, tmp_path: Path, number: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    marking = compile_allocator(
        tmp_path,
        "#include <stdio.h>\n#include <unistd.h>\n"
        "extern void *__libc_malloc(size_t);\n"
        "void *malloc(size_t n) { return __libc_malloc(n); }\n"
        "__attribute__((constructor)) static void begin(void) {\n"
        f'  FILE *file = fopen("{begun}", "a");\n'
        '  fprintf(file, "%d\\n", getpid());\n'
        "  fclose(file);\n}",
    )
    command = [sys.executable, "-m", "bench.compare", "--no-install"]
    chosen = ["--peer", "glibc", "--peer", f"marking={marking.library}"]
    endless = ["--workload", "tree", "--quick", "--repeats", "1000"]
    endless += ["--precision", "0.0000001"]
    process = subprocess.Popen(
        [*command, *chosen, *endless, "--out", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(peers.ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The first round is discarded: in the third, one is measured.
    while not begun.exists() or begun.read_text().count("\n") < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 130, complaints
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["interrupted"] is True
    assert document["cases"][0]["runs"]
    assert "interrupted" in (tmp_path / "report.md").read_text()
    last = begun.read_text().split()[-1]
    assert not Path("/proc", last).exists()


def test_what_the_machine_cannot_run_is_left_out(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(case: Case, *, may_install: bool) -> None:
        raise LeftOut("no redis here")

    script = dataclasses.replace(CASES_BY_NAME["tree"], script=True)
    monkeypatch.setattr(runner, "prepare", refuse)
    monkeypatch.setattr(selection, "choose_cases", lambda *_, **__: [script])
    assert bench(tmp_path) == 0
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["notes"] == ["tree is left out: no redis here"]
    assert document["cases"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "nothing"], "'nothing' is not one of"),
        (["--group", "nothing"], "'nothing' is not one of 'small objects'"),
        (["--peer", "nothing"], "unknown peer 'nothing'; known: allod, glibc"),
        (["--peer", "x=/no/such/library.so"], "/no/such/library.so is not a file"),
        (["--peer", "glibc=/lib/libc.so"], "the name 'glibc' is taken"),
        (["--peer", "=/lib/libc.so"], "should be NAME=/PATH/LIBRARY.so"),
        (["--repeats", "0"], "0 is not in the range"),
        (["--repeats", "few"], "'few' is not a valid integer"),
        (["--precision", "0"], "is not in the range"),
        (["--quick", "--full"], "exclude each other"),
        (["--fail-on-regression", "5"], "needs --compare"),
        (["--publish"], "--publish needs --full"),
        (["--compare", "/no/such.json"], "does not exist"),
        (["--more", __file__, "--peer", "glibc"], "--more goes with the kind"),
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
        [sys.executable, "-m", "bench.compare", "--list", "--peer", "glibc"],
        env={**os.environ, "PYTHONPATH": str(peers.ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    for case in CASES:
        assert f"  {case.name} " in done.stdout
    assert "  glibc " in done.stdout
