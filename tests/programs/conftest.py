"""Fixtures of the real-program tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .launcher import Launcher, Sides

WITNESS = Path(__file__).with_name("witness.c")


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory with a short name that programs of any user can enter."""
    directory = Path(tempfile.mkdtemp(prefix="allod-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def library(scratch: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the library under test that any user can read.

    ALLOD_TEST_LIBRARY names another library than the release build's.
    """
    named = os.environ.get("ALLOD_TEST_LIBRARY")
    original = Path(named or request.getfixturevalue("liballod"))
    copy = scratch / original.name
    shutil.copyfile(original, copy)
    copy.chmod(0o755)
    return copy


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
def sides(scratch: Path, library: Path, witness: Path) -> Iterator[Sides]:
    """The plain and the preloaded side, each with an empty directory to work in."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    directory.chmod(0o755)
    pair = Sides(
        plain=Launcher(directory / "plain", library, witness, preloads=False),
        preloaded=Launcher(directory / "preloaded", library, witness, preloads=True),
    )
    yield pair
    pair.plain.close()
    pair.preloaded.close()
    shutil.rmtree(directory, ignore_errors=True)
