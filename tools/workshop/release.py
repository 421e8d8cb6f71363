"""Builds what is handed out: for each system that the presets can build for, a wheel of Python and
the packages of its package managers; with checksums and a bill of materials."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure, run_logged, say, shown

from workshop import parts
from workshop.bill import bill_of, digest, sums_of
from workshop.build import BUILD_TOOLS, building
from workshop.cpack import make_packages
from workshop.crates import CargoUnavailable, make_crates
from workshop.packages import ensure_requirements
from workshop.paths import LOGS, ROOT, version
from workshop.systems import (
    PROGRAMS,
    SYSTEMS,
    WORK,
    Binaries,
    System,
    build,
    fresh,
    strip,
)
from workshop.trying import try_library, try_wheel

DIST = ROOT / "dist"
PACKAGE = ROOT / "tools" / "allod"
# The most bytes that a wheel may have.
MOST_BYTES = 15_000_000
# The time of every file in what is handed out, so that the same sources give the same bytes.
EPOCH = "315532800"
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Artifact:
    """A file that is handed out, and what was tried of it here."""

    path: Path
    # None: for any.
    system: System | None
    tried: str


def release(names: Sequence[str]) -> list[Artifact]:
    """Builds what is handed out for these systems into dist/, and nothing else is there. Tries what
    runs here."""
    fresh(DIST)
    artifacts: list[Artifact] = []
    for name in names:
        system = SYSTEMS[name]
        wheel = make_wheel(system, DIST)
        tried = try_wheel(wheel) if system.runs_here else try_library(wheel, system)
        artifacts.append(Artifact(wheel, system, tried))
        for kind in system.packages:
            for package in make_packages(system, kind, DIST, EPOCH):
                tried = try_library(package, system)
                artifacts.append(Artifact(package, system, tried))
    artifacts += [Artifact(crate, None, "packed") for crate in _crates()]
    bill = DIST / f"allod-{version()}.spdx.json"
    bill.write_text(bill_of({each.path: each.system for each in artifacts}, EPOCH))
    artifacts.append(Artifact(bill, None, "written"))
    (DIST / SUMS).write_text(sums_of(each.path for each in artifacts))
    return artifacts


def _crates() -> list[Path]:
    """The crates, which are sources for any system. None where there is no cargo."""
    try:
        return make_crates(DIST)
    except CargoUnavailable as unavailable:
        say(f"no crates are packed: {unavailable}")
        return []


def table(artifacts: Sequence[Artifact]) -> Iterator[str]:
    """A line for each artifact."""
    width = max(len(shown(each.path)) for each in artifacts)
    for each in artifacts:
        size = each.path.stat().st_size / 1e6
        system = "any" if each.system is None else each.system.name
        yield (
            f"{shown(each.path):{width}}  {system:12}  {size:5.2f} MB"
            f"  {digest(each.path)[:16]}  {each.tried}"
        )


def make_wheel(system: System, folder: Path) -> Path:
    """Builds the wheel of a system into a folder, and returns it."""
    ensure_requirements((*BUILD_TOOLS, *system.needs))
    with building(f"dist-{system.name}"):
        binaries = build(system)
        stage = WORK / f"{system.name}-wheel"
        shutil.rmtree(stage, ignore_errors=True)
        _stage(system, binaries, stage)
        wheel = _wheel_of(system, stage, folder)
    if wheel.stat().st_size > MOST_BYTES:
        raise Failure(f"{shown(wheel)} has more than {MOST_BYTES} bytes")
    return wheel


def _stage(system: System, binaries: Binaries, stage: Path) -> None:
    """A project of Python that has the package with its libraries and programs in it."""
    package = stage / "allod"
    shutil.copytree(
        PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    (package / "lib").mkdir()
    # Debug information is not for those who run programs.
    strip(system, binaries, package / "lib")
    (package / "bin").mkdir()
    for name in PROGRAMS:
        shutil.copy(binaries.programs / name, package / "bin" / name)
    shutil.copy(ROOT / "LICENSE", stage / "LICENSE")
    (stage / parts.FILE).write_text(parts.licences(system))
    shutil.copy(ROOT / "tools" / "wheel" / "README.md", stage / "README.md")
    shutil.copy(ROOT / "tools" / "wheel" / "setup.py", stage / "setup.py")
    described = (ROOT / "tools" / "wheel" / "pyproject.toml").read_text()
    (stage / "pyproject.toml").write_text(described.replace("VERSION", version()))


def _wheel_of(system: System, stage: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="allod-wheel-") as packed:
        run_logged(
            f"packing the wheel for {system.name}",
            [
                *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir"),
                *("--disable-pip-version-check", "--wheel-dir", packed, str(stage)),
            ],
            LOGS / f"wheel-{system.name}.log",
            environment={
                **os.environ,
                "SOURCE_DATE_EPOCH": EPOCH,
                "ALLOD_WHEEL_PLATFORM": system.platform,
            },
        )
        (made,) = Path(packed).glob("*.whl")
        return Path(shutil.move(made, folder / made.name))
