"""Builds the programs of bench/replay, which read and replay traces."""

from __future__ import annotations

import subprocess
from pathlib import Path

from allod.console import run_logged

from workshop.build import BUILD_TOOLS, GCC, building
from workshop.packages import ensure_requirements
from workshop.paths import BUILD, LOGS, ROOT

SOURCES = ROOT / "bench" / "replay"
BINARIES = BUILD / "bench" / "replay"


def ensure_tools() -> Path:
    """Builds the programs of bench/replay where needed; returns their folder."""
    ensure_requirements((*BUILD_TOOLS, *GCC))
    if not _is_built():
        with building("replay"):
            _build()
    return BINARIES


def _is_built() -> bool:
    if not (BINARIES / "build.ninja").is_file():
        return False
    ask = ["ninja", "-C", str(BINARIES), "-n"]
    done = subprocess.run(ask, capture_output=True, check=False)
    return done.returncode == 0 and b"no work to do" in done.stdout


def _build() -> None:
    if not (BINARIES / "build.ninja").is_file():
        configure = ["cmake", "-S", str(SOURCES), "-B", str(BINARIES), "-G", "Ninja"]
        run_logged("configuring the replay", configure, LOGS / "replay-configure.log")
    if not _is_built():
        build = ["cmake", "--build", str(BINARIES)]
        run_logged("building the replay", build, LOGS / "replay-build.log")
