"""The same sources give the same bytes, wherever they lie."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from workshop.paths import ROOT

SOURCES = (
    *("CMakeLists.txt", "CMakePresets.json", "LICENSE"),
    *("cmake", "include", "live", "src", "tools/packages"),
)
TARGETS = ("allod_prefixed_shared", "allod_prefixed_static", "allod_record_shared")
PRODUCTS = ("liballod-prefixed.so", "liballod-prefixed.a", "liballod-record.so")
# A path of another length as well, which shifts what holds it.
PLACE = "another/place/that/lies/deeper"


def digests(build: Path) -> dict[str, str]:
    """What a build has made."""
    return {
        name: hashlib.sha256((build / name).read_bytes()).hexdigest()
        for name in PRODUCTS
    }


def build_copy(place: Path) -> Path:
    """The build folder of a copy of the sources there."""
    place.mkdir(parents=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, place / name, ignore=shutil.ignore_patterns("node_modules")
            )
        else:
            shutil.copy(source, place / name)
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    for command in (
        ("cmake", "--preset", "release"),
        ("cmake", "--build", "build/release", "--target", *TARGETS),
    ):
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return place / "build" / "release"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_places_give_the_same_bytes(build_dir: Path, tmp_path: Path) -> None:
    assert digests(build_copy(tmp_path / PLACE)) == digests(build_dir)
