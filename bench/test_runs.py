"""One run measures what it says, and says so when it cannot."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.compare import peers, processes, runner
from bench.compare.cases import CASES, CASES_BY_NAME, Case
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut, RunError
from bench.tiny import GLIBC, compile_allocator, run_tiny, tiny

# Of each kind of program one.
PROGRAMS = ("bulk", "immediate", "prodcons", "replace", "sweep", "tree")


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
