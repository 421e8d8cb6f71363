"""Builds the workload programs."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.compare import packages
from bench.compare.peers import ROOT

SOURCES = ROOT / "bench" / "workloads"
BINARIES = ROOT / "build" / "bench" / "workloads"


class BuildError(Exception):
    """The workloads cannot be built; the text holds the tool's output."""


def build(say: Callable[[str], None], may_install: bool) -> Path:
    """Configures and builds the workloads where needed; returns their folder."""
    needed = {"cmake": "cmake", "c++": "g++", "make": "make"}
    if shutil.which("ninja") is not None:
        del needed["make"]
    missing = [
        package for tool, package in needed.items() if shutil.which(tool) is None
    ]
    if missing:
        if not may_install:
            raise BuildError(f"needed to build the workloads: {' '.join(missing)}")
        say(f"installing {' '.join(missing)}")
        try:
            packages.install(missing)
        except packages.PackageError as error:
            raise BuildError(str(error)) from error
    if not (BINARIES / "CMakeCache.txt").is_file():
        generator = ["-G", "Ninja"] if shutil.which("ninja") is not None else []
        _run(["cmake", "-S", str(SOURCES), "-B", str(BINARIES), *generator])
    _run(["cmake", "--build", str(BINARIES), "--parallel", "2"])
    return BINARIES


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
