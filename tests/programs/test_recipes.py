"""Ways to preload the library that docs/recipes.md shows, each in a root of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .launcher import DebianPackages

PLACE = "/usr/local/lib/liballod.so"
BASH = Path("/bin/bash")
# A process of its own, a pipe, and a few blocks.
SCRIPT = "words=$(for i in {1..2000}; do echo word$i; done); echo ${#words}"
PRINTED = "16892\n"


@pytest.fixture(autouse=True)
def bubblewrap(debian_packages: DebianPackages) -> None:
    debian_packages("bubblewrap")


def run_in_root(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new mount namespace, which the words describe."""
    return subprocess.run(
        ["bwrap", "--clearenv", "--setenv", "ALLOD_VERBOSE", "1", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def served(errors: str) -> int:
    """How many processes said that Allod serves them, and nothing else."""
    lines = errors.splitlines()
    assert all(re.fullmatch(r"allod: .* serves process \d+", line) for line in lines)
    return len(lines)


def test_an_image_with_little_more_than_the_c_library(library: Path) -> None:
    """No shell but the program, no /proc, no /etc, and nothing that can be written."""
    told = subprocess.run(["ldd", BASH], capture_output=True, text=True, check=True)
    files = re.findall(r"(/\S+) \(0x", told.stdout)
    assert any("libc.so.6" in name for name in files)
    mounts = [word for name in files for word in ("--ro-bind", name, name)]
    done = run_in_root(
        *(*mounts, "--ro-bind", BASH, "/program", "--ro-bind", library, PLACE),
        *("--setenv", "LD_PRELOAD", PLACE, "--remount-ro", "/"),
        *("/program", "-c", SCRIPT),
    )
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr
    assert served(done.stderr) == 1


def test_the_file_of_the_loader_reaches_every_program(
    library: Path, tmp_path: Path
) -> None:
    file = tmp_path / "ld.so.preload"
    file.write_text(f"{library}\n")
    root = (
        "--ro-bind",
        "/",
        "/",
        "--tmpfs",
        "/etc",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
    )
    done = run_in_root(
        *(*root, "--ro-bind", file, "/etc/ld.so.preload"),
        *("--setenv", "PATH", "/usr/bin:/bin"),
        *(BASH, "-c", f"{SCRIPT}; env true"),
    )
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr
    # The shell, and `env`, which becomes `true`: one process twice.
    assert served(done.stderr) == 3


def test_a_library_that_is_not_there_stops_no_program(tmp_path: Path) -> None:
    done = run_in_root(
        *("--ro-bind", "/", "/", "--dev", "/dev"),
        *("--setenv", "LD_PRELOAD", tmp_path / "liballod.so"),
        *(BASH, "-c", SCRIPT),
    )
    assert (done.returncode, done.stdout) == (0, PRINTED)
    assert "cannot be preloaded" in done.stderr
