"""The command measures what it is told to, and keeps what it has."""

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

import pytest

from bench.compare import cli, peers, runner, selection, storage
from bench.compare.cases import CASES, CASES_BY_NAME, Case
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut
from bench.compare.run import Run
from bench.samples import a_run
from bench.tiny import compile_allocator


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
