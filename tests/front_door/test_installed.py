"""The commands of a user need nothing of a clone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from allod import run, supplies
from allod.console import Failure
from commands import ended
from workshop.paths import ROOT

MAPPED = "import os; print([m for m in open('/proc/self/maps') if 'liballod' in m][0])"


@pytest.fixture
def installed(tmp_path: Path, liballod: Path) -> Path:
    """A prefix with the package and the libraries that its simplest commands take."""
    modules = tmp_path / "lib" / "python3" / "site-packages"
    shutil.copytree(ROOT / "tools" / "allod", modules / "allod")
    shutil.copy(liballod, tmp_path / "lib")
    shutil.copy(liballod.with_name("liballod-ends.so"), tmp_path / "lib")
    return tmp_path


def allod(prefix: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command of an installed package, where no module of the clone is found."""
    modules = prefix / "lib" / "python3" / "site-packages"
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "for name in ('workshop', 'bench', 'clone'): sys.modules[name] = None\n"
        "from allod.cli import main; main()"
    )
    return ended(sys.executable, "-c", code, modules, *arguments, directory=prefix)


def test_run_takes_the_library_that_is_installed_beside(installed: Path) -> None:
    done = allod(installed, "run", "--", "python3", "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    assert str(installed / "lib" / "liballod.so") in done.stdout


def test_leaks_are_found_by_an_installed_package(installed: Path) -> None:
    done = allod(installed, "leaks", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "--debug", "--", "true"], "liballod-debug.so is not installed beside"),
        (["trace", "info", "allod.cli"], "allod.cli does not exist"),
        (["replay", "lib/liballod.so", "--peer", "x=/gone"], "/gone is not a file"),
        (["record", "--", "true"], "liballod-record.so is not installed beside"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_what_is_not_installed_is_named(
    installed: Path, words: list[str], complaint: str
) -> None:
    done = allod(installed, *words)
    assert done.returncode == 1
    assert done.stderr.startswith("allod: error: ")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_for_another_libc_is_refused_with_a_reason(installed: Path) -> None:
    program = installed / "foreign"
    image = Path("/bin/true").read_bytes()
    program.write_bytes(image.replace(b"/lib64/ld-linux-", b"/lib/x/ld-musl-/"))
    program.chmod(0o755)
    for words in (["run"], ["run", "--live"], ["leaks"]):
        done = allod(installed, *words, "--", str(program))
        assert done.returncode == 126
        assert "the program is for musl, and liballod" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_program_for_glibc_is_refused_where_the_system_has_musl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supplies, "_current", supplies.Installed())
    for module in (run, supplies):
        monkeypatch.setattr(module, "is_musl_here", lambda: True)
    with pytest.raises(Failure, match="the program is for glibc") as raised:
        run.library_for(Path("/bin/true"), "liballod.so")
    assert raised.value.status == 126


@pytest.mark.parametrize(
    "command",
    [
        *(
            "run",
            "leaks",
            "symbolize",
            "gdb",
            "live",
            "profile",
            "top",
            "diff",
            "export",
        ),
        *("record", "replay", "trace"),
    ],
)
def test_every_command_of_a_user_is_installed(installed: Path, command: str) -> None:
    done = allod(installed, command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: allod {command}" in done.stdout
