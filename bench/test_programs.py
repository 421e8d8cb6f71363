"""The scripts of real programs measure the program they say, under the malloc they say."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.compare import runner
from bench.compare.cases.case import Case
from bench.compare.cases.programs import CASES
from bench.compare.peers import Peer
from bench.programs import commands, common, process
from bench.programs.commands import Command
from bench.programs.common import Bench, Outcome, Script
from bench.programs.process import Allocator, Failure

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted({case.program for case in CASES})
INSTALLED_BY_TESTS = {"gawk", "jq", "perl", "xslt"}
"""Of the commands: the rest is large, and is tested where a measurement installed it."""
HEAVY = {"duckdb", "mariadb"}
LIBC = ""
TINY = "1"
SMALL = "30"
"""For commands: a program that ends at once is not seen with its library."""


def start(
    name: str, *arguments: str, preload: str = LIBC, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a script as the comparison does."""
    return subprocess.run(
        [sys.executable, "-m", f"bench.programs.{name}", *arguments],
        env={
            "PATH": path or os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "BENCH_PRELOAD": preload,
            # None of these may reach the real program.
            "LD_LIBRARY_PATH": "/nowhere",
            "MALLOC_ARENA_MAX": "1",
            "PYTHONHASHSEED": "7",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def may_install(case: Case) -> list[str]:
    """For a script's preparation: tests leave out what takes minutes to install."""
    wanted = case.params.get("program")
    rare = case.program == "commands" and wanted not in INSTALLED_BY_TESTS
    return ["--no-install"] if rare or case.program in HEAVY else []


def scale_of(name: str) -> str:
    return SMALL if name == "commands" else TINY


def report(name: str, *arguments: str, preload: str = LIBC) -> dict[str, Any]:
    done = start(name, "--scale", scale_of(name), *arguments, preload=preload)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def ready() -> Callable[..., None]:
    """Makes sure of a script's program, or skips the test."""

    def prepare(name: str, *arguments: str) -> None:
        done = start(name, *arguments, "--prepare", "--scale", scale_of(name))
        if done.returncode == common.MISSING:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""

    return prepare


@pytest.fixture(scope="module")
def allod() -> str:
    library = ROOT / "build" / "release" / "liballod.so"
    if not library.is_file():
        pytest.skip(f"{library} is not there: run ./allod build")
    return str(library.resolve())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_program_gives_the_same_answers_under_every_malloc(
    ready: Callable[..., None], allod: str, case: Case
) -> None:
    name, arguments = case.program, case.arguments(quick=False)
    ready(name, *arguments, *may_install(case))
    base = report(name, *arguments)
    other = report(name, *arguments, preload=allod)
    assert Path(base["malloc_from"]).name == "libc.so.6"
    assert base["expected_library"] is None
    assert other["malloc_from"] == allod
    assert other["expected_library"] is True
    assert base["checksum"] == other["checksum"] != process.digest(b"")
    assert base["ops"] == other["ops"] > 0
    for found in (base, other):
        assert found["params"]["scale"] == int(scale_of(name))
        assert found["seconds"] > 0
        assert found["peak_rss_kib"] >= found["final_rss_kib"] > 0
        assert found["minor_faults"] > 0
        assert all(point["nanoseconds"] > 0 for point in found.get("points", []))
        assert len(found["series"][0]["points"]) <= process.MOST_POINTS


def test_more_work_gives_another_checksum(ready: Callable[[str], None]) -> None:
    ready("lua")
    longer = json.loads(start("lua", "--scale", "10").stdout)
    assert longer["ops"] == 2
    assert longer["checksum"] != report("lua")["checksum"]


# What must be refused.


def test_a_library_that_is_not_there_is_refused(ready: Callable[[str], None]) -> None:
    ready("lua")
    done = start("lua", "--scale", TINY, preload="/nowhere/libnone.so")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the library to preload is not there: /nowhere/libnone.so" in done.stderr


def test_a_file_that_is_no_library_is_refused(
    ready: Callable[[str], None], tmp_path: Path
) -> None:
    ready("lua")
    library = tmp_path / "text.so"
    library.write_text("not a library")
    done = start("lua", "--scale", TINY, preload=str(library))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{library} was not loaded" in done.stderr


def test_a_program_that_crashes_is_reported(
    ready: Callable[[str], None], tmp_path: Path
) -> None:
    ready("lua")
    source = tmp_path / "crash.c"
    source.write_text("void free(void *p) { (void)p; *(volatile int *)0 = 1; }\n")
    library = tmp_path / "crash.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    done = start("lua", "--scale", TINY, preload=str(library))
    assert (done.returncode, done.stdout) == (1, "")
    assert "lua5.4: killed by SIGSEGV" in done.stderr


def test_a_server_that_ends_by_itself_is_reported(
    ready: Callable[[str], None], tmp_path: Path
) -> None:
    ready("redis")
    source = tmp_path / "leave.c"
    source.write_text(
        "#include <unistd.h>\n"
        "__attribute__((constructor)) static void leave(void) {"
        ' (void)!write(2, "no more", 7); _exit(3); }\n'
    )
    library = tmp_path / "leave.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    done = start("redis", "--scale", TINY, preload=str(library))
    assert (done.returncode, done.stdout) == (1, "")
    assert "redis-server: exit status 3 no more" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "0"], "--scale must be from 1 to"),
        (["--scale", "much"], "invalid int value: 'much'"),
        (["--speed", "1"], "unrecognized arguments: --speed 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], message: str) -> None:
    done = start("lua", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def wait_for_end(pid: int) -> None:
    """Returns when a process runs no more, and fails when that takes too long."""
    deadline = time.monotonic() + 120
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)


# Scripts made up for a test, which run in a process of their own.


@contextlib.contextmanager
def made_up(
    folder: Path, body: str, needs: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Starts a script whose run() has this body."""
    lines = [
        "from bench.programs.common import Outcome, Script, main",
        "from bench.programs.process import digest",
        "def run(bench):",
        textwrap.indent(body, "    "),
        f"main(Script('made_up', 'A test.', {{{needs!r}: 'no-such-package'}}, run))",
    ]
    file = folder / "made_up.py"
    file.write_text("\n".join(lines))
    with subprocess.Popen(
        [sys.executable, str(file), *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            # A script that is killed leaves its folder behind.
            "TMPDIR": str(folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        try:
            yield script
        finally:
            script.kill()


def test_a_missing_python_package_has_the_same_status() -> None:
    lines = (
        "from bench.programs.common import Script, main",
        "main(Script('made_up', 'A test.', {}, lambda _: None, module='no_such_module'))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), "--prepare", "--no-install"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (common.MISSING, "")
    assert done.stderr == "missing: made_up needs the Python package no_such_module\n"


@pytest.mark.parametrize("arguments", [(), ("--prepare", "--no-install")])
def test_a_missing_program_has_a_status_of_its_own(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with made_up(tmp_path, "pass", "no-such-program", *arguments) as script:
        output, errors = script.communicate(timeout=300)
    assert (script.returncode, output) == (common.MISSING, "")
    assert "needs the Debian packages no-such-package" in errors


def test_a_failing_program_is_reported_with_what_it_says(tmp_path: Path) -> None:
    body = "bench.run('sh', '-c', 'echo it is broken >&2; exit 9')"
    with made_up(tmp_path, body, "sh") as script:
        output, errors = script.communicate(timeout=300)
    assert (script.returncode, output) == (1, "")
    assert "error: sh: exit status 9 it is broken" in errors


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_program_ends_with_its_script(tmp_path: Path, how: signal.Signals) -> None:
    body = (
        "with bench.start('sleep', '1000') as program:\n"
        "    print(program.pid, flush=True)\n"
        "    program.wait(1000)"
    )
    with made_up(tmp_path, body, "sleep") as script:
        assert script.stdout is not None
        program = int(script.stdout.readline())
        script.send_signal(how)
        script.communicate(timeout=300)
    wait_for_end(program)
    assert script.returncode == {2: 130, 15: 143}.get(how, -how)


def test_a_signal_during_a_wait_counts_whichever_thread_gets_it(tmp_path: Path) -> None:
    body = (
        "import signal, threading, time\n"
        "def interrupt():\n"
        "    time.sleep(0.5)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "with bench.start('sleep', '1000') as program:\n"
        "    threading.Thread(target=interrupt).start()\n"
        "    program.wait(1000)"
    )
    with made_up(tmp_path, body, "sleep") as script:
        script.communicate(timeout=300)
    assert script.returncode == 128 + signal.SIGTERM


# One process.


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    options = argparse.Namespace()
    return Bench(100, options, Allocator(None), tmp_path)


def test_a_program_that_hangs_is_ended(bench: Bench) -> None:
    with (
        pytest.raises(Failure, match="sleep: not finished after 0.05 s"),
        bench.start("sleep", "1000") as program,
    ):
        program.wait(0.05)
    assert not Path(f"/proc/{program.pid}").exists()


def test_what_a_program_started_is_ended_with_it(bench: Bench) -> None:
    with bench.start("sh", "-c", "sleep 1000 & echo $!; wait") as program:
        while not (text := program.output.read_text()).endswith("\n"):
            program.check_alive()
    wait_for_end(int(text))


def test_a_program_sees_nothing_of_our_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    _, output = bench.run("env")
    names = {line.partition("=")[0] for line in output.read_text().splitlines()}
    assert names == {"PATH", "HOME", "TMPDIR", "LANG", "TZ"}


def test_a_program_is_told_what_its_allocator_wants_to_know(
    allod: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures = (("ALLOD_HARDENED", "none"), ("LD_PRELOAD", "libm.so.6"))
    peer = Peer("allod", Path(allod), "any", measures)
    for name, value in runner.environment(peer, script=True).items():
        monkeypatch.setenv(name, value)
    bench = Bench(100, argparse.Namespace(), Allocator.from_name(allod), tmp_path)
    _, output = bench.run("sh", "-c", "env; sleep 2")
    lines = output.read_text().splitlines()
    assert "ALLOD_HARDENED=none" in lines
    assert f"LD_PRELOAD={allod}:libm.so.6" in lines
    assert "BENCH_VARIABLES" not in {line.partition("=")[0] for line in lines}


def test_helpers_of_a_measurement_are_not_preloaded(allod: str, tmp_path: Path) -> None:
    allocator = Allocator.from_name(allod)
    bench = Bench(100, argparse.Namespace(), allocator, tmp_path)
    assert "LD_PRELOAD" not in bench.client("env")
    _, output = bench.run("sh", "-c", "env; sleep 2")
    assert f"LD_PRELOAD={allod}" in output.read_text().splitlines()


def test_the_peak_is_that_of_the_program_and_not_ours(bench: Bench) -> None:
    ballast = bytearray(200 << 20)
    usage, _ = bench.run("sleep", "0.5")
    assert 0 < usage.peak_rss_kib < 50 << 10
    assert len(ballast) == 200 << 20


def test_a_programs_own_allocator_is_replaced_by_libcs(
    ready: Callable[[str], None],
) -> None:
    ready("redis")
    server = common.which("redis-server")
    linked = process.malloc_of(server, None)
    _, called = Allocator(None).place(server)
    assert Path(called).name == "libc.so.6"
    assert linked == called or "jemalloc" in linked


# Command lines.


def result_of(bench: Bench, script: str, **settings: Any) -> str:
    """The checksum of a command line that a shell carries out."""
    return Command({}, ("sh", "-c", script), 1, **settings).run(bench).checksum


def test_what_a_command_prints_is_its_result(bench: Bench) -> None:
    assert result_of(bench, "echo text") == process.digest(b"text\n")


def test_a_file_can_be_the_result(bench: Bench) -> None:
    found = result_of(bench, "echo more; echo text >made", result="made")
    assert found == process.digest(b"text\n")


def test_lines_in_any_order_are_the_same_result_where_that_is_said(
    bench: Bench,
) -> None:
    scripts = ("echo a; echo b", "echo b; echo a", "echo a; echo c")
    one, other, wrong = (result_of(bench, each, any_order=True) for each in scripts)
    assert one == other != wrong
    assert result_of(bench, scripts[0]) != result_of(bench, scripts[1])


def test_a_command_is_told_its_amount(bench: Bench) -> None:
    command = Command({}, ("echo", "do", commands.AMOUNT), 40)
    bench.percent = 50
    outcome = command.run(bench)
    assert (outcome.ops, outcome.checksum) == (20, process.digest(b"do 20\n"))


def test_every_command_has_a_case() -> None:
    found = [case.params["program"] for case in CASES if case.program == "commands"]
    assert sorted(map(str, found)) == sorted(commands.COMMANDS)


# Inputs.


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(common, "INPUTS", tmp_path / "inputs")
    yield tmp_path / "inputs"


def test_an_input_is_made_once_and_again_when_its_maker_changes(inputs: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("text")

    first = common.cached("a.txt", make, b"maker", 1)
    assert common.cached("a.txt", make, b"maker", 1) == first
    assert common.cached("a.txt", make, b"changed maker", 1) != first
    assert len(made) == 2
    assert sorted(path.suffix for path in inputs.iterdir()) == [".txt", ".txt"]


def test_a_half_made_input_is_not_kept(inputs: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise Failure("no room")

    with pytest.raises(Failure):
        common.cached("a.txt", fail, b"maker")
    assert list(inputs.iterdir()) == []


def test_a_script_says_what_it_found(bench: Bench) -> None:
    usage, output = bench.run("echo", "fine")
    outcome = Outcome(
        usage, 3, process.digest(output), {"one": 1.5}, [("size", 2.0, "KiB", "less")]
    )
    script = Script("made_up", "A test.", {"echo": "coreutils"}, lambda _: outcome)
    found = json.loads(common.report(script, bench, outcome))
    assert found["workload"] == "made_up"
    assert found["points"] == [{"name": "one", "nanoseconds": 1.5}]
    assert found["figures"] == [
        {"name": "size", "value": 2.0, "unit": "KiB", "better": "less"}
    ]
    assert found["compiler"].startswith("Debian, coreutils ")


def test_every_script_has_a_case() -> None:
    files = {path.stem for path in (ROOT / "bench" / "programs").glob("*.py")}
    assert files - {"__init__", "common", "process", "sockets"} == set(SCRIPTS)
