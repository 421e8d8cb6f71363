"""libevent and zlib for the live server of a system that Debian has no such libraries for: from the
sources of this machine's release of Debian, by the compiler of the system."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.debian_files import SOURCE_NAMES, ensure_sources
from workshop.locks import held
from workshop.paths import BUILD, LOGS, ROOT

PROJECT = ROOT / "cmake" / "live_parts"
# The first line of debian/changelog.
CHANGED = re.compile(r"^\S+ \((?P<version>[^)]+)\)")


def version(name: str) -> str:
    """The version of a source package, as Debian counts."""
    found = CHANGED.match(about(name, "changelog"))
    if found is None:
        raise Failure(f"the sources of {name} do not say which version they are")
    return found["version"]


def about(name: str, file: str) -> str:
    """A file of Debian's about a source package: changelog or copyright."""
    return (ensure_sources() / name / "debian" / file).read_text()


def ensure_live_parts(system: str, toolchain: Path) -> Path:
    """A folder with the libraries and their headers for a system."""
    sources = ensure_sources()
    folder = BUILD / "live-parts" / system
    recipe = (PROJECT / "CMakeLists.txt", toolchain)
    stamps = [f"{file.name} {file.stat().st_mtime_ns}" for file in recipe]
    made = "\n".join([str(ROOT), *map(version, SOURCE_NAMES), *stamps])
    with held(BUILD / f".live-parts-{system}.lock", f"libevent for {system}"):
        done = folder / ".done"
        if not done.exists() or done.read_text() != made:
            shutil.rmtree(folder, ignore_errors=True)
            _build(system, toolchain, sources, folder)
            done.write_text(made)
    return folder


def _build(system: str, toolchain: Path, sources: Path, folder: Path) -> None:
    work = str(folder / "work")
    for what, command in (
        (
            "configuring",
            [
                *("cmake", "-G", "Ninja", "-S", str(PROJECT), "-B", work),
                f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
                f"-DALLOD_SOURCES={sources}",
            ],
        ),
        ("building", ["cmake", "--build", work, "--target", "parts"]),
        ("collecting", ["cmake", "--install", work, "--prefix", str(folder)]),
    ):
        title = f"{what} libevent and zlib for {system}"
        run_logged(title, command, LOGS / f"live-parts-{what}.log")
