"""What `./allod` promises to a person and to a script."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from allod import cli, packages, pytest_gtest, pytest_shares, testing
from allod import fuzz as fuzzing
from allod.console import Failure
from allod.paths import ROOT, version

ALLOD = ROOT / "allod"
DebianPackages = Callable[..., None]
MAPPED = "import os; print([m for m in open('/proc/self/maps') if 'liballod' in m][0])"


def allod(
    *arguments: str | Path,
    command: Path = ALLOD,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `./allod`, without any ALLOD_* option that the test run may have."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")}
    return subprocess.run(
        [str(command), *map(str, arguments)],
        cwd=directory,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(autouse=True, scope="module")
def built(liballod: Path, liballod_debug: Path) -> None:
    """The release build is there."""
    assert liballod.exists() and liballod_debug.exists()


# Help and errors


def test_help_lists_every_command_with_one_line() -> None:
    shown = allod("help")
    assert shown.returncode == 0
    listed = shown.stdout.split("Commands:\n")[1].splitlines()
    assert len(listed) == len(cli.allod.commands)
    assert all(len(line.split()) > 2 for line in listed), listed


@pytest.mark.parametrize(
    "command", ["build", "run", "top", "test", "fuzz", "bench", "help"]
)
def test_every_command_explains_itself(command: str) -> None:
    by_option = allod(command, "--help")
    assert by_option.returncode == 0
    assert f"allod {command}" in by_option.stdout
    assert allod("help", command).stdout == by_option.stdout


def test_the_version_is_that_of_the_build() -> None:
    assert version() in allod("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["frobnicate"], "frobnicate"),
        (["--frobnicate"], "--frobnicate"),
        (["build", "--frobnicate"], "--frobnicate"),
        (["build", "--preset", "frobnicate"], "frobnicate"),
        (["run", "--frobnicate", "--", "true"], "--frobnicate"),
        (["run", "-o", "frobnicate", "--", "true"], "frobnicate"),
        (["run"], "PROGRAM"),
        (["help", "frobnicate"], "frobnicate"),
        (["test", "--only", "frobnicate"], "frobnicate"),
    ],
)
def test_what_is_unknown_is_named_and_fails(arguments: list[str], named: str) -> None:
    done = allod(*arguments)
    assert done.returncode != 0
    assert named in done.stderr
    assert "Traceback" not in done.stderr


# Run


def test_run_preloads_the_library(liballod: Path) -> None:
    done = allod("run", "--", "python3", "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    assert str(liballod.resolve()) in done.stdout


def test_run_preloads_the_debug_library_on_request(liballod_debug: Path) -> None:
    done = allod("run", "--debug", "--", "python3", "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    assert str(liballod_debug.resolve()) in done.stdout


def test_run_preloads_the_hardened_library_on_request(liballod_hardened: Path) -> None:
    done = allod("run", "--hardened", "--", "python3", "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    assert str(liballod_hardened.resolve()) in done.stdout


def test_run_checks_copies_on_request(build_dir: Path, liballod_hardened: Path) -> None:
    code = "print(open('/proc/self/maps').read())"
    done = allod("run", "--hardened", "--check-copies", "--", "python3", "-c", code)
    assert done.returncode == 0, done.stderr
    for library in (liballod_hardened, build_dir / "liballod-copies.so"):
        assert str(library.resolve()) in done.stdout


def test_run_uses_one_library_at_a_time() -> None:
    done = allod("run", "--hardened", "--debug", "--", "true")
    assert done.returncode == 2
    assert "--debug and --hardened are two libraries: choose one" in done.stderr


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_run_passes_the_exit_status_through(status: int) -> None:
    assert allod("run", "--", "sh", "-c", f"exit {status}").returncode == status


def test_run_ends_by_the_signal_that_ends_the_program() -> None:
    assert allod("run", "--", "sh", "-c", "kill -USR1 $$").returncode == -signal.SIGUSR1


def test_run_adds_nothing_to_the_output_of_the_program() -> None:
    done = allod("run", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_run_passes_arguments_untouched() -> None:
    words = ["--stats", "-v", "--", "", "two words", "--help"]
    done = allod("run", "--", "printf", "%s\\n", *words)
    assert done.stdout.splitlines() == words


def test_run_keeps_other_preloaded_libraries(liballod: Path) -> None:
    other = "libm.so.6"
    done = allod(
        "run", "--", "printenv", "LD_PRELOAD", environment={"LD_PRELOAD": other}
    )
    assert done.stdout.strip().split(":") == [str(liballod), other]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--stats"], {"ALLOD_SHOW_STATS": "text"}),
        (["--stats=json"], {"ALLOD_SHOW_STATS": "json"}),
        (["-vv"], {"ALLOD_VERBOSE": "2"}),
        (["--purge-delay", "-1"], {"ALLOD_PURGE_DELAY": "-1"}),
        (["-o", "purge-budget=4M"], {"ALLOD_PURGE_BUDGET": "4M"}),
        (["-o", "ALLOD_SHOW_ERRORS=0"], {"ALLOD_SHOW_ERRORS": "0"}),
    ],
)
def test_run_turns_its_options_into_the_library_s(
    arguments: list[str], expected: dict[str, str]
) -> None:
    done = allod("run", *arguments, "--", "env")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {k: v for k, v in found.items() if k.startswith("ALLOD_")} == expected


def test_run_finds_programs_relative_to_the_caller(tmp_path: Path) -> None:
    shutil.copy("/bin/echo", tmp_path / "here")
    assert allod("run", "--", "./here", "x", directory=tmp_path).stdout == "x\n"


def test_run_works_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(ALLOD)
    done = allod("run", "--", "echo", "x", command=link, directory=tmp_path)
    assert done.stdout == "x\n"


def test_a_program_that_is_not_there_ends_with_127() -> None:
    done = allod("run", "--", "no-such-program")
    assert (done.returncode, done.stdout) == (127, "")
    assert "no-such-program" in done.stderr


@pytest.mark.parametrize("kind", ["plain file", "folder", "script for no shell"])
def test_a_program_that_cannot_be_executed_ends_with_126(
    tmp_path: Path, kind: str
) -> None:
    program = tmp_path / "program"
    if kind == "folder":
        program.mkdir()
    else:
        program.write_text("echo\n")
        program.chmod(0o755 if kind == "script for no shell" else 0o644)
    done = allod("run", "--", program)
    assert done.returncode == 126
    assert str(program) in done.stderr


def test_a_static_program_is_refused_with_a_reason(tmp_path: Path) -> None:
    program = tmp_path / "static"
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", program, source], check=True)
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    for started in (program, script):
        done = allod("run", "--", started)
        assert done.returncode == 1
        assert f"{program} is statically linked" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_program_that_changes_privileges_is_warned_about(tmp_path: Path) -> None:
    program = tmp_path / "privileged"
    shutil.copy("/bin/true", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    done = allod("run", "--", program)
    assert done.returncode == 0
    assert "warning" in done.stderr
    assert str(program) in done.stderr


# Test


def test_the_last_line_counts_tests_and_errors_are_failures(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_skipped(): pytest.skip('why')\n"
        "@pytest.fixture\n"
        "def broken():\n"
        "    yield\n"
        "    raise RuntimeError\n"
        "def test_whose_teardown_fails(broken): pass\n"
        "def test_with_unknown_fixture(nothing): pass\n"
    )
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    done = allod(
        "test", tmp_path, "-p", "no:cacheprovider", "--continue-on-collection-errors"
    )
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "1 passed, 4 failed, 1 skipped"


def test_all_passed_is_success(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("def test_good(): pass\n")
    done = allod("test", "-p", "no:cacheprovider", tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"


@pytest.mark.parametrize("argument", ["--frobnicate", "-knothing_of_this_name"])
def test_running_nothing_is_a_failure(tmp_path: Path, argument: str) -> None:
    (tmp_path / "test_sample.py").write_text("def test_good(): pass\n")
    done = allod("test", "-p", "no:cacheprovider", tmp_path, argument)
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_quick_leaves_slow_tests_out(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\ndef test_good(): pass\n"
        "@pytest.mark.slow\ndef test_slow(): assert False\n"
    )
    done = allod("test", "--quick", "-p", "no:cacheprovider", tmp_path)
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"


def test_a_group_needs_only_its_presets() -> None:
    programs = testing.presets_for([testing.TESTS / "programs"], quick=False)
    assert [preset.name for preset in programs] == ["release"]
    everything = testing.presets_for([testing.TESTS], quick=False)
    assert {"release", "clang"} <= {preset.name for preset in everything}


# GoogleTest programs

LISTING: dict[str, object] = {
    "testsuites": [
        {
            "name": "Suite",
            "testsuite": [
                {"name": "First", "file": "../tests/first.cpp"},
                {"name": "DISABLED_Second", "file": "../tests/first.cpp"},
            ],
        },
        {
            "name": "Typed/0",
            "testsuite": [{"name": "Sized", "file": "/at/tests/second.cpp"}],
        },
        {
            "name": "Numbers/Odd",
            "testsuite": [{"name": "Is/0", "file": "first.cpp"}],
        },
    ]
}
# Plays a GoogleTest program whose second test brings it down.
PLAYER = """#!/bin/sh
case "$1" in --gtest_flagfile=*) filter=$(cat "${1#*=}") ;; esac
echo x >>"$0.starts"
case "$filter" in
*Suite.First*)
    printf '[ RUN      ] Suite.First\\nhello\\n[       OK ] Suite.First (12 ms)\\n'
    printf '[ RUN      ] Suite.Second\\nfatal words\\n'
    kill -SEGV $$ ;;
*)
    printf '[ RUN      ] Suite.Third\\n[       OK ] Suite.Third (0 ms)\\n'
    exit 3 ;;
esac
"""


def test_a_listing_gives_full_names_and_where_they_are() -> None:
    assert pytest_gtest.read_listing(LISTING) == {
        "Suite.First": "first.cpp",
        "Typed/0.Sized": "second.cpp",
        "Numbers/Odd.Is/0": "first.cpp",
    }


def test_a_crash_fails_one_test_and_the_rest_still_run(tmp_path: Path) -> None:
    player = tmp_path / "player"
    player.write_text(PLAYER)
    player.chmod(0o755)
    names = ["Suite.First", "Suite.Second", "Suite.Third"]
    verdicts = pytest_gtest.run_program(player, names)
    outcomes = [verdicts[name].outcome for name in names]
    assert outcomes == ["passed", "failed", "passed"]
    assert "fatal words" in verdicts["Suite.Second"].text
    assert "SIGSEGV" in verdicts["Suite.Second"].text
    assert verdicts["Suite.First"].seconds == 0.012
    assert (tmp_path / "player.starts").read_text().count("x") == 2


def test_a_test_that_never_runs_has_failed(tmp_path: Path) -> None:
    player = tmp_path / "player"
    player.write_text("#!/bin/sh\nexit 0\n")
    player.chmod(0o755)
    verdict = pytest_gtest.run_program(player, ["Suite.First"])["Suite.First"]
    assert verdict.outcome == "failed"


def test_a_file_is_a_share_but_for_what_is_long_or_must_not_meet_its_like() -> None:
    first, second = "tests/live/test_top.py::a", "tests/live/test_page.py::b"
    assert pytest_shares.share_of(first) == pytest_shares.share_of(second)
    assert pytest_shares.share_of("tests/unit/base.cpp::a") == "tests/unit/base.cpp"
    long = "tests/test_clang_tidy.py::test_nothing_is_found[src]"
    assert pytest_shares.share_of(long) == long


def test_what_is_long_comes_first() -> None:
    names = ["bench/a.py::a", "tests/test_clang_tidy.py::a", "tests/programs/a.py::a"]
    assert sorted(names, key=pytest_shares.place_of) == names[::-1]
    for start in (*pytest_shares.FIRST, *pytest_shares.APART, *pytest_shares.TOGETHER):
        assert (ROOT / start).exists()


# Fuzzing


@pytest.mark.usefixtures("built")
def test_pieces_of_fuzzing_are_recorded_and_summed_up(
    liballod_hardened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert liballod_hardened.exists()
    monkeypatch.setattr(fuzzing, "RECORD", tmp_path / "record.csv")
    monkeypatch.setattr(fuzzing, "CALLS", 2000)
    monkeypatch.setattr(fuzzing, "ensure_built", lambda *_, **__: False)
    for _ in range(2):
        assert fuzzing.fuzz(["corruption"], 0.01, 1, record=True) == 0
    lines = (tmp_path / "record.csv").read_text().splitlines()
    assert len(lines) == 3
    calls = sum(int(line.split(",")[4]) for line in lines[1:])
    assert calls >= 4000
    assert f"{calls:,}" in fuzzing.totals()


def test_a_fuzzer_that_ends_badly_has_found_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tests" / "fuzz_slab"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken\nexit 77\n")
    program.chmod(0o755)
    monkeypatch.setattr(fuzzing, "build_dir", lambda _: tmp_path)
    monkeypatch.setattr(fuzzing, "ensure_built", lambda *_, **__: False)
    assert fuzzing.fuzz(["fuzz_slab"], 0.01, 1, record=False) == 1
    (log,) = tmp_path.glob("fuzz_slab-*.log")
    assert "broken" in log.read_text()


@pytest.fixture
def fake_fuzzers(tmp_path: Path, record: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fuzzers that do nothing: `fuzz_slab` ends at once, `fuzz_space` goes on for ever."""
    folder = tmp_path / "tests"
    folder.mkdir()
    for name, work in (
        ("fuzz_slab", "echo 'stat::number_of_executed_units: 42'"),
        ("fuzz_space", "echo '#7 pulse'; touch began; sleep 1000"),
    ):
        (folder / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{work}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(fuzzing, "build_dir", lambda _: tmp_path)
    monkeypatch.setattr(fuzzing, "ensure_built", lambda *_, **__: False)
    assert record.parent == tmp_path
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fuzzing_that_is_interrupted_is_recorded(
    fake_fuzzers: Path, number: signal.Signals
) -> None:
    def interrupt() -> None:
        while not (fake_fuzzers / "began").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    # As in the background of a shell.
    before = signal.signal(number, signal.SIG_IGN)
    thread = threading.Thread(target=interrupt)
    thread.start()
    targets = ["fuzz_slab", "fuzz_space", "corruption"]
    with pytest.raises(Failure, match="interrupted") as caught:
        fuzzing.fuzz(targets, 100, 1, record=True)
    thread.join()
    assert signal.signal(number, before) == signal.SIG_IGN
    assert caught.value.status == 130
    rows = (fake_fuzzers / "record.csv").read_text().splitlines()[1:]
    done = [(row.split(",")[2], *row.split(",")[4:]) for row in rows]
    # What has not begun is not there.
    assert done == [("fuzz_slab", "42", "0", "0"), ("fuzz_space", "7", "0", "0")]


def test_what_cannot_be_recorded_is_said(
    fake_fuzzers: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fake_fuzzers.is_dir()
    monkeypatch.setattr(fuzzing, "RECORD", Path("/dev/full"))
    with pytest.raises(Failure, match="No space left on device"):
        fuzzing.fuzz(["fuzz_slab"], 0.01, 1, record=True)
    assert ",fuzz_slab,0,42,0,0" in capsys.readouterr().err


def test_a_finding_that_cannot_be_kept_is_said(
    fake_fuzzers: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (fake_fuzzers / "tests" / "fuzz_slab").write_text("#!/bin/sh\necho bad; exit 3\n")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert fuzzing.fuzz(["fuzz_slab"], 0.01, 1, record=False) == 1
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "bad" in said


HEADER = "date,commit,target,seconds,executions,defects,findings\n"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the record of fuzzing is for this test."""
    path = tmp_path / "record.csv"
    monkeypatch.setattr(fuzzing, "RECORD", path)
    return path


@pytest.mark.parametrize("row", ["2026,aa,corruption,12", "2026,aa,corruption,x,1,1,0"])
def test_a_bad_row_of_the_record_is_named(row: str, record: Path) -> None:
    record.write_text(f"{HEADER}2026,aa,fuzz_slab,1,1,0,0\n{row}\n")
    with pytest.raises(Failure, match="record.csv:3 is not a row of it"):
        fuzzing.totals()


def test_a_record_that_cannot_be_read_is_told(record: Path) -> None:
    record.mkdir()
    with pytest.raises(Failure, match="Is a directory"):
        fuzzing.totals()
    record.rmdir()
    record.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="it is no text"):
        fuzzing.totals()


def test_hours_with_injected_corruption_are_told_apart(record: Path) -> None:
    rows = "2026,aa,fuzz_slab,7200,1,0,0\n2026,aa,corruption,3600,1,1,0\n"
    record.write_text(HEADER + rows)
    lines = fuzzing.totals().splitlines()
    assert lines[-2].split() == ["all", "3.00"]
    assert lines[-1] == "with injected corruption 1.00"


def test_the_program_is_told_which_measures_are_left_out() -> None:
    ways = fuzzing.CORRUPTED
    for way in ways:
        assert ("heaps" in way.arguments) == (way.library == fuzzing.DEFAULT)
        assert set(filter(None, way.measures.split(","))) <= {*way.arguments}
    left_out = {word for way in ways for word in way.arguments if word[0] == "-"}
    assert {"-canary", "-origin", "-zero", "-written", "-quarantine"} <= left_out


# Packages


def test_what_is_installed_is_not_missing(debian_packages: DebianPackages) -> None:
    debian_packages("dpkg")
    names = ["dpkg", "no-such-package-of-this-name"]
    assert packages.missing_packages(names) == ["no-such-package-of-this-name"]


def test_without_root_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(packages.PackagesUnavailable, match="no-such-package"):
        packages.ensure_packages(["no-such-package"])
