"""What `./allod` promises to a person and to a script."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from allod import build as building
from allod import (
    cli,
    files,
    locks,
    packages,
    preload,
    pytest_gtest,
    pytest_shares,
    testing,
    trace,
)
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


COMMANDS = [*cli.allod.commands, "trace info", "trace dump"]
# Runs a command where nothing can be installed, built or found that was installed when needed.
BARE = """
import sys
for name in ("jinja2", "matplotlib", "numpy", "plotly", "scipy", "google.protobuf"):
    sys.modules[name] = None
def refuse(*_, **__): sys.exit("something is installed or built")
from allod import build, cli, environment, packages
environment._ensure = build.building = packages.ensure_packages = refuse
cli.main()
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    by_option = allod(*command.split(), "--help")
    assert by_option.returncode == 0
    assert f"allod {command}" in by_option.stdout
    assert allod(*command.split(), "-h").stdout == by_option.stdout
    assert allod("help", *command.split()).stdout == by_option.stdout


@pytest.mark.parametrize(
    "words",
    [
        *(each.split() for each in COMMANDS),
        ["bench", "--security"],
        ["bench", "--profilers"],
    ],
    ids=" ".join,
)
def test_no_explanation_installs_or_builds_anything(words: list[str]) -> None:
    for help_option in ("-h", "--help"):
        done = subprocess.run(
            [sys.executable, "-c", BARE, *words, help_option],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Usage: allod" in done.stdout
        assert done.stderr == ""


def test_letters_of_pytest_s_options_do_not_ask_for_help(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("def test_hello(): pass\n")
    done = allod("test", "-p", "no:cacheprovider", tmp_path, "-khello")
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"


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


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["bulid"], "build"),
        (["help", "reply"], "replay"),
        (["trace", "inf"], "info"),
        (["run", "--stat", "--", "true"], "--stats"),
        (["test", "--only", "progams"], "programs"),
        (["replay", "x", "--peer", "alod"], "allod"),
    ],
)
def test_what_is_misspelt_is_understood_and_refused(
    arguments: list[str], meant: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(trace.MAGIC)
    done = allod(*arguments, directory=tmp_path)
    assert done.returncode != 0
    assert "did you mean" in done.stderr.lower()
    assert meant in done.stderr.lower().partition("did you mean")[2]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "--profile", "--interval", "0", "--", "true"], "from 1 on"),
        (["run", "--profile", "--interval", "-1", "--", "true"], "from 1 on"),
        (["run", "--profile", "--interval", "many", "--", "true"], "from 1 on"),
        (["run", "--interval", "4K", "--", "true"], "--interval needs --profile"),
        (["run", "--output", "x", "--", "true"], "--output needs --profile"),
        (["run", "--profile", "--live", "--", "true"], "--live does not go with"),
        (["run", "--profile", "--check-copies", "--", "true"], "does not go with"),
        (["top", "--once", "--every", "3"], "--every does nothing with --once"),
        (["fuzz", "--totals", "--record"], "--record does nothing with --totals"),
        (["record", "-o", "x", "--", "true"], "write --output x"),
    ],
)
def test_an_option_without_effect_is_an_error(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    done = allod(*arguments, directory=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert os.listdir(tmp_path) == []


# Output that goes nowhere


@pytest.mark.parametrize(
    "words", [["help"], ["run", "--help"], ["--version"], ["test", "--list-groups"]]
)
def test_a_full_disk_behind_the_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [ALLOD, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "allod: error: standard output: No space left on device\n"


def test_nobody_who_reads_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [ALLOD, "help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_messages_that_nobody_takes_change_nothing() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([ALLOD, "bulid"], stderr=full, check=False)
    assert done.returncode == 2


# Files that are written


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk without room, in which files can be made."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        (folder / "fill").write_bytes(bytes(16 << 10))
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_file_that_is_written_is_whole_or_as_it_was(full_disk: Path) -> None:
    with pytest.raises(Failure, match=r"cannot write .*new: No space left on device"):
        files.write_whole(full_disk / "new", "x")
    (full_disk / "fill").write_text("old")
    before = set(os.listdir(full_disk))
    with pytest.raises(Failure, match="No space left"):
        files.write_whole(full_disk / "fill", bytes(32 << 10))
    assert (full_disk / "fill").read_text() == "old"
    assert set(os.listdir(full_disk)) == before


def test_a_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Is a directory"):
        files.write_whole(tmp_path, "x")
    with pytest.raises(Failure, match=r"cannot write .*gone/x: No such file"):
        files.write_whole(tmp_path / "gone" / "x", "x")
    with pytest.raises(Failure, match="No space left"):
        files.write_whole(Path("/dev/full"), "x")


def test_a_file_keeps_its_mode_and_the_links_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    files.write_whole(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_profile_that_cannot_be_written_is_kept(
    full_disk: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    done = allod(
        *("run", "--profile", "--interval", "1", "--output", full_disk / "x"),
        *("--", "true"),
        environment={"TMPDIR": str(kept)},
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (folder,) = kept.glob("allod-profile-*")
    assert done.stderr.splitlines()[-1] == (
        f"allod: error: cannot write {full_disk}/x.pb.gz: No space left on device;"
        f" what the library wrote is kept in {folder}, and ./allod diff reads it"
    )
    assert os.listdir(full_disk) == ["fill"]
    (profile, *_) = sorted(folder.iterdir())
    assert allod("diff", profile, profile).returncode == 0


# Paths that LD_PRELOAD cannot name


@pytest.mark.parametrize("name", ["two words", "a:colon", "$ORIGIN", "a 'quote':"])
def test_a_library_at_any_path_is_preloaded(
    name: str, liballod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / name
    folder.mkdir()
    library = Path(shutil.copy(liballod, folder))
    variables = {"LD_PRELOAD": preload.preloaded(library)}
    done = subprocess.run(
        ["sh", "-c", "cat /proc/self/maps"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(library) in done.stdout
    assert done.stderr == ""
    # Again, and there is still one link.
    assert preload.preloaded(library) == variables["LD_PRELOAD"]
    assert len(list((tmp_path / f"allod-{os.geteuid()}").iterdir())) == 1


def test_no_link_is_kept_where_others_could_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library = tmp_path / "a:b" / "library.so"
    own = tmp_path / f"allod-{os.geteuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(Failure, match="others than this user can write"):
        preload.plain_name(library)
    own.rmdir()
    own.symlink_to(tmp_path)
    with pytest.raises(Failure, match="others than this user can write"):
        preload.plain_name(library)
    own.unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(Failure, match="others than this user can write"):
        preload.plain_name(library)
    tmp_path.chmod(0o1777)
    assert preload.plain_name(library).is_symlink()


# The first run, other users


# Plays an interpreter that makes environments like itself, and installs nothing.
PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*)
    for folder; do :; done
    case $folder in *:*) echo "refused: $folder"; exit 1 ;; esac
    mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python" ;;
*"-m allod"*) echo "runs: $4" ;;
esac
"""


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts the front door of a clone in a folder of this name."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(PYTHON)
    (tmp_path / "bin" / "python3").chmod(0o755)

    def start(name: str, *arguments: str) -> subprocess.Popen[str]:
        clone = tmp_path / name
        (clone / "tools").mkdir(parents=True, exist_ok=True)
        shutil.copy(ALLOD, clone)
        for file in ("pyproject.toml", "requirements.txt"):
            shutil.copy(ROOT / "tools" / file, clone / "tools")
        return subprocess.Popen(
            [clone / "allod", *arguments],
            env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.parametrize("name", ["plain", "two words", "a:colon", "a 'quote':$x"])
def test_a_clone_can_have_any_path(
    name: str, fresh_clone: Callable[..., subprocess.Popen[str]]
) -> None:
    first = fresh_clone(name, "word")
    output, complaints = first.communicate()
    assert (first.returncode, output) == (0, "runs: word\n"), complaints
    # The second finds all done.
    assert fresh_clone(name, "word").communicate() == ("runs: word\n", "")


def test_the_second_of_two_first_runs_says_whom_it_waits_for(
    fresh_clone: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    lock = tmp_path / "clone" / ".allod" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4711\n")
        file.flush()
        second = fresh_clone("clone")
        assert second.stderr is not None
        begin = "allod: waiting for process 4711, which prepares this checkout"
        assert second.stderr.read(len(begin)) == begin
    output, complaints = second.communicate()
    assert (second.returncode, output) == (0, "runs: \n"), complaints


def test_the_second_of_two_builds_says_whom_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "folder" / "lock"
    waits = threading.Event()
    done = []

    def second() -> None:
        waits.set()
        with locks.held(lock, "a build of x"):
            done.append("second")

    thread = threading.Thread(target=second)
    with locks.held(lock, "a build of x"):
        thread.start()
        waits.wait()
        line = f"allod: waiting for process {os.getpid()}: a build of x ...\n"
        said = ""
        end = time.monotonic() + 60
        while said != line and time.monotonic() < end:
            said += capsys.readouterr().err
        done.append("first")
    thread.join()
    assert said == line
    assert done == ["first", "second"]


def test_what_is_built_is_used_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(building, "build_dir", lambda _: tmp_path)
    monkeypatch.setattr(building, "building", refuse)
    library = tmp_path / building.LIVE
    library.touch()
    digest = building.digest_of_inputs(tests=False, more=("live",))
    (tmp_path / ".built-live").write_text(digest)
    assert building.ensure_live_built() == library


NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["run", "--", "echo", "x"], "x\n"),
        (["run", "--debug", "--stats=json", "--", "echo", "x"], "x\n"),
        (["--version"], f"allod, version {version()}\n"),
    ],
    ids=" ".join,
)
def test_another_user_needs_nothing_that_can_be_written(
    words: list[str], output: str
) -> None:
    try:
        done = subprocess.run(
            [ALLOD, *words],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
    except PermissionError:
        pytest.skip("the checkout is closed to other users")
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_who_may_not_build_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("/proc/1/nothing/lock")
    with (
        pytest.raises(Failure, match=r"a build of x is needed, and /proc.* cannot be"),
        locks.held(place, "a build of x"),
    ):
        pass


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
