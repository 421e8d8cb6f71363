"""Fixtures of the real-program tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .launcher import Launcher, Preload, Sides

WITNESS = Path(__file__).with_name("witness.c")


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory with a short name that programs of any user can enter."""
    directory = Path(tempfile.mkdtemp(prefix="allod-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session", params=["liballod", "liballod_hardened"])
def preload(scratch: Path, request: pytest.FixtureRequest) -> Preload:
    """A copy of a library that any user can read; the hardened one with all its measures."""
    original: Path = request.getfixturevalue(request.param)
    copy = scratch / original.name
    shutil.copyfile(original, copy)
    copy.chmod(0o755)
    options = {"ALLOD_SHOW_ERRORS": "1", "ALLOD_ABORT_ON_ERROR": "1"}
    is_hardened = request.param == "liballod_hardened"
    if is_hardened:
        options["ALLOD_HARDENED"] = "all,sweep"
    return Preload(copy, options, is_hardened)


@pytest.fixture(scope="session")
def witness(scratch: Path) -> Path:
    """The library that tells which programs ran, and with whose malloc."""
    built = scratch / "witness.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O2", "-fPIC", "-shared", "-o", built, WITNESS], check=True
    )
    return built


@pytest.fixture
def sides(scratch: Path, preload: Preload, witness: Path) -> Iterator[Sides]:
    """The plain and the preloaded side, each with an empty directory to work in."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    directory.chmod(0o755)
    pair = Sides(
        plain=Launcher(directory / "plain", preload, witness, preloads=False),
        preloaded=Launcher(directory / "preloaded", preload, witness, preloads=True),
    )
    yield pair
    pair.plain.close()
    pair.preloaded.close()
    shutil.rmtree(directory, ignore_errors=True)
