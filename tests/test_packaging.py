"""Recipes for package managers of C and C++ describe this library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from workshop.paths import ROOT, version

PACKAGING = ROOT / "packaging"


def test_the_port_for_vcpkg_has_the_version_of_the_library() -> None:
    described = json.loads((PACKAGING / "vcpkg" / "allod" / "vcpkg.json").read_text())
    assert (described["name"], described["version"]) == ("allod", version())


@pytest.mark.slow
def test_conan_makes_a_package_that_programs_link(tmp_path: Path) -> None:
    if shutil.which("conan") is None:
        pytest.skip("conan is missing: pip install conan")
    environment = {**os.environ, "CONAN_HOME": str(tmp_path)}
    for words in (["profile", "detect"], ["create", PACKAGING / "conan"]):
        done = subprocess.run(
            ["conan", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    assert done.stdout.count(f"allod {version()}: serves malloc") == 3
