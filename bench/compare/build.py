"""Builds the programs that run under the allocators: workloads, and those with defects; and
the counter of cache lines."""

import shutil
import subprocess
from pathlib import Path

from workshop.locks import held
from workshop.packages import PackagesUnavailable

from bench.compare import packages
from bench.compare.peers import ROOT

WORKLOADS = ROOT / "bench" / "workloads"
LINES = ROOT / "bench" / "lines"
DEFECTS = ROOT / "bench" / "security" / "programs"


class BuildError(Exception):
    """The programs cannot be built; the text holds the tool's output."""


def build(*, may_install: bool) -> Path:
    """Configures and builds the workloads where needed; returns their folder."""
    return _build(WORKLOADS, "workloads", may_install)


def build_defects(*, may_install: bool) -> Path:
    """The same for the programs of the security suite."""
    return _build(DEFECTS, "security", may_install)


def build_lines(*, may_install: bool) -> Path:
    """The same for the counter of cache lines; returns the plug-in."""
    return _build(LINES, "lines", may_install) / "lines.so"


def _build(sources: Path, name: str, may_install: bool) -> Path:
    needed = {"cmake": "cmake", "c++": "g++", "make": "make"}
    if shutil.which("ninja") is not None:
        del needed["make"]
    missing = [
        package for tool, package in needed.items() if shutil.which(tool) is None
    ]
    if missing:
        if not may_install:
            raise BuildError(f"needed to build the programs: {' '.join(missing)}")
        try:
            packages.install(missing)
        except PackagesUnavailable as error:
            raise BuildError(str(error)) from error
    binaries = ROOT / "build" / "bench" / name
    with held(binaries.with_name(f".{name}.lock"), f"a build of the programs: {name}"):
        if not (binaries / "CMakeCache.txt").is_file():
            generator = ["-G", "Ninja"] if shutil.which("ninja") is not None else []
            _run(["cmake", "-S", str(sources), "-B", str(binaries), *generator])
        _run(["cmake", "--build", str(binaries), "--parallel", "2"])
    return binaries


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
