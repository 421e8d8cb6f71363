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
# The longer path has another length as well, which shifts what holds it.
PLACES = ("one", "another/place/that/lies/deeper")


def built(place: Path) -> dict[str, str]:
    """The digests of what a copy of the sources gives there."""
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
    files = [
        path
        for pattern in ("liballod*.so", "liballod*.a", "allod*.o")
        for path in (place / "build" / "release").glob(pattern)
    ]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_places_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (built(tmp_path / place) for place in PLACES)
    assert {"liballod-prefixed.so", "liballod-prefixed.a"} <= first.keys()
    assert first == second
