"""A clone prepares itself: environment, builds and packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from allod.console import Failure
from commands import ALLOD
from workshop import build as building
from workshop import locks, packages
from workshop.paths import ROOT, version

DebianPackages = Callable[..., None]


# The first run, other users


# Plays an interpreter that makes environments like itself, and installs nothing.
PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*)
    for folder; do :; done
    case $folder in *:*) echo "refused: $folder"; exit 1 ;; esac
    mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python" ;;
*"-m clone"*) echo "runs: $4" ;;
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
