"""Our own walk over call stacks finds what libgcc's finds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from surface.black_box import SKIPPED, Case, cases_in, describe, run_program

FOLDER = Path(__file__).parent
# The first that tells where a function's tables are without taking a lock.
OLDEST_GLIBC = (2, 35)


def glibc_version() -> tuple[int, int] | None:
    """The version of the C library if it is glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except ValueError:
        return None
    if name != "glibc":
        return None
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@pytest.fixture(scope="session")
def built(build_dir: Path) -> Path:
    """The folder of what is built here."""
    version = glibc_version()
    if version is None or version < OLDEST_GLIBC:
        needed = ".".join(map(str, OLDEST_GLIBC))
        pytest.skip(f"libgcc's walk is the only one without glibc {needed} or later")
    folder = build_dir / "tests" / "unwind"
    if not folder.exists():
        pytest.skip("libgcc's walk is the only one on this machine")
    return folder


@pytest.mark.parametrize(
    ("told", "version"),
    [("glibc 2.31", (2, 31)), ("glibc 2.36.9000", (2, 36)), (None, None)],
)
def test_the_version_of_glibc_is_found(
    told: str | None, version: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "confstr", lambda _: told)
    assert glibc_version() == version


@pytest.mark.parametrize("case", cases_in(FOLDER), ids=str)
def test_both_find_the_same(case: Case, built: Path, tmp_path: Path) -> None:
    result = run_program([built / case.program, case.name], os.environ, tmp_path)
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    if result.returncode != 0:
        pytest.fail(describe(result), pytrace=False)


PYTHON = "import decimal, json; [json.loads(json.dumps([{}] * i)) for i in range(200)]"
PERL = "my %h; $h{$_} = [1..5] for 1..3000"


def walks_in(built: Path, command: list[str | Path], folder: Path) -> tuple[int, int]:
    """How often a program's stack was walked both ways, and how often ours gave up."""
    report = folder / "report"
    variables = os.environ | {
        "LD_PRELOAD": str(built / "libunwind_preloaded.so"),
        "UNWIND_REPORT": str(report),
    }
    result = run_program(command, variables, folder)
    assert result.returncode == 0, describe(result)
    walks, given_up = report.read_text().split()
    return int(walks), int(given_up)


@pytest.mark.parametrize(
    "command",
    [["python3", "-c", PYTHON], ["perl", "-e", PERL]],
    ids=lambda each: each[0],
)
def test_in_a_program(command: list[str], built: Path, tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    walks, given_up = walks_in(built, [*command], tmp_path)
    assert walks > 100
    assert given_up == 0


def test_in_a_program_in_rust(built: Path, tmp_path: Path) -> None:
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("there is no rustc here")
    program = tmp_path / "blocks"
    subprocess.run([rustc, "-O", FOLDER / "blocks.rs", "-o", program], check=True)
    walks, given_up = walks_in(built, [program], tmp_path)
    assert walks > 100
    assert given_up == 0
