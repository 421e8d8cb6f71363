"""The systems that binaries are made for, and their binaries: as built, and without debug
information, which is in files of its own then."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.build import (
    GCC,
    GCC_ARM64,
    GCC_MUSL,
    LIVE_TOOLS,
    PRESETS,
    ensure_built,
    ensure_live_built,
)
from workshop.packages import Requirement
from workshop.paths import BUILD, LOGS, ROOT, build_dir

WORK = BUILD / "dist"
LIBRARIES = ("", "-debug", "-hardened", "-prefixed", "-copies", "-ends", "-record")
LIVE = "-live"
ARCHIVES = ("liballod.a", "liballod-prefixed.a", "allod.o")
PROGRAMS = ("trace-tool", "replay", "allod-symbolizer")
BUILD_ID = re.compile(r"Build ID: ([0-9a-f]{3,})")


@dataclass(frozen=True)
class System:
    """What binaries are made for."""

    name: str
    preset: str
    # The platform's name in the name of a wheel.
    platform: str
    needs: tuple[Requirement, ...]
    tools: str = ""
    has_live: bool = False
    has_programs: bool = True
    runs_here: bool = False
    # What cpack makes for it.
    packages: tuple[str, ...] = ("DEB", "RPM", "TGZ")

    @property
    def libraries(self) -> tuple[str, ...]:
        """The names of its shared libraries."""
        variants = (*LIBRARIES, LIVE) if self.has_live else LIBRARIES
        return tuple(f"liballod{variant}.so" for variant in variants)


SYSTEMS = {
    system.name: system
    for system in (
        System(
            *("x86-64", "release", "manylinux_2_17_x86_64", (*GCC, *LIVE_TOOLS)),
            has_live=True,
            runs_here=True,
        ),
        System(
            *("arm64", "arm64", "manylinux_2_17_aarch64", GCC_ARM64),
            tools="aarch64-linux-gnu-",
        ),
        System(
            *("x86-64-musl", "musl", "musllinux_1_2_x86_64", GCC_MUSL),
            has_programs=False,
            packages=("TGZ",),
        ),
    )
}


@dataclass(frozen=True)
class Binaries:
    """Where the libraries and the programs of a system are."""

    libraries: Path
    programs: Path


def build(system: System) -> Binaries:
    """Brings the libraries and the programs of a system up to date."""
    folder = WORK / system.name
    if system.runs_here:
        ensure_built(PRESETS[system.preset])
        ensure_live_built()
        libraries = build_dir(system.preset)
    else:
        # A build of its own: where an emulator is to run tests, they are compiled differently.
        libraries = folder
        logged(
            f"configuring {system.name} for release",
            *("cmake", "--preset", system.preset, "-B", str(folder)),
            "-DALLOD_BUILD_TESTS=OFF",
        )
        logged(
            f"building {system.name} for release",
            *("cmake", "--build", str(folder), "--target", "products"),
        )
    if system.has_programs:
        toolchain = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/{system.preset}.cmake"]
        logged(
            f"configuring the programs of {system.name}",
            *("cmake", "-G", "Ninja", "-S", str(ROOT / "tools" / "programs")),
            *("-B", str(folder / "programs")),
            *(toolchain if system.tools else []),
        )
        logged(
            f"building the programs of {system.name}",
            *("cmake", "--build", str(folder / "programs")),
        )
    return Binaries(libraries, folder / "programs")


def strip(system: System, binaries: Binaries, folder: Path) -> None:
    """Puts the shared libraries without debug information into a folder. Names that are exported
    stay."""
    for name in system.libraries:
        _tool(
            f"{system.tools}strip",
            *("--strip-unneeded", "-o", folder / name, binaries.libraries / name),
        )
        (folder / name).chmod(0o755)


def strip_archives(system: System, binaries: Binaries, folder: Path) -> None:
    """Puts the static forms without debug information into a folder."""
    for name in ARCHIVES:
        _tool(
            f"{system.tools}strip",
            *("--strip-debug", "--enable-deterministic-archives"),
            *("-o", folder / name, binaries.libraries / name),
        )
        (folder / name).chmod(0o644)


def separate_debug(system: System, binaries: Binaries, folder: Path) -> None:
    """Puts the debug information of the shared libraries where debuggers look for it, by build
    ids, below a folder."""
    for name in system.libraries:
        library = binaries.libraries / name
        found = BUILD_ID.search(_tool(f"{system.tools}readelf", "--notes", library))
        if found is None:
            raise Failure(f"{name} has no build id")
        place = folder / ".build-id" / found[1][:2] / f"{found[1][2:]}.debug"
        place.parent.mkdir(parents=True, exist_ok=True)
        _tool(
            f"{system.tools}objcopy",
            *("--only-keep-debug", "--compress-debug-sections", library, place),
        )
        place.chmod(0o644)


def fresh(folder: Path) -> Path:
    """An empty folder in the place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def logged(title: str, *command: str, **variables: str) -> None:
    """Runs a command of the build with these variables, and keeps what it says in a log."""
    run_logged(
        title,
        command,
        LOGS / f"{title.replace(' ', '-')}.log",
        directory=ROOT,
        environment={**os.environ, **variables},
    )


def _tool(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout
