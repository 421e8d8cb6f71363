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
    ensure_toolchain,
    live_options,
)
from workshop.debian_files import MUSL_ARM64
from workshop.packages import Requirement
from workshop.paths import BUILD, LOGS, ROOT, build_dir

WORK = BUILD / "dist"
EMULATOR = Requirement("qemu-aarch64-static", "qemu-user-static")
# What the names of systems with musl end in.
MUSL = "-musl"
VARIANTS = (
    *("", "-debug", "-hardened", "-prefixed", "-copies", "-ends", "-record"),
    "-live",
)
LIBRARIES = tuple(f"liballod{variant}.so" for variant in VARIANTS)
ARCHIVES = ("liballod.a", "liballod-prefixed.a", "allod.o")
# They run on any Linux of their processor.
STATIC_PROGRAMS = ("trace-tool", "allod-symbolizer")
PROGRAMS = (*STATIC_PROGRAMS, "replay")
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
    runs_here: bool = False
    # What cpack makes for it.
    packages: tuple[str, ...] = ("DEB", "RPM", "TGZ")

    @property
    def compiler(self) -> tuple[str, ...]:
        """The compiler of programs in C for it."""
        if not self.is_musl:
            return (f"{self.tools}gcc",)
        if not self.tools:
            return ("musl-gcc",)
        return (f"{self.tools}gcc", f"-specs={WORK / self.name}/musl-gcc.specs")

    @property
    def emulator(self) -> tuple[str, ...]:
        """What runs its programs here, if this machine does not."""
        if not self.tools:
            return ()
        root = MUSL_ARM64 if self.is_musl else Path("/usr/aarch64-linux-gnu")
        return (EMULATOR.needs, "-L", str(root))

    @property
    def is_musl(self) -> bool:
        """Whether its libc is musl."""
        return self.name.endswith(MUSL)


SYSTEMS = {
    system.name: system
    for system in (
        System(
            *("x86-64", "release", "manylinux_2_17_x86_64", (*GCC, *LIVE_TOOLS)),
            runs_here=True,
        ),
        System(
            *("arm64", "arm64", "manylinux_2_17_aarch64"),
            (*GCC_ARM64, *LIVE_TOOLS, EMULATOR),
            tools="aarch64-linux-gnu-",
        ),
        System(
            *("x86-64-musl", "musl", "musllinux_1_2_x86_64", (*GCC_MUSL, *LIVE_TOOLS)),
            packages=("TGZ",),
        ),
        System(
            *("arm64-musl", "arm64-musl", "musllinux_1_2_aarch64"),
            (*GCC_ARM64, *LIVE_TOOLS, EMULATOR),
            tools="aarch64-linux-gnu-",
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
        ensure_toolchain(system.preset)
        logged(
            f"configuring {system.name} for release",
            *("cmake", "--preset", system.preset, "-B", str(folder)),
            *("-DALLOD_BUILD_TESTS=OFF", *live_options(system.preset)),
        )
        logged(
            f"building {system.name} for release",
            *("cmake", "--build", str(folder), "--target", "products", "live"),
        )
    return Binaries(libraries, _programs(system, folder / "programs"))


def _programs(system: System, folder: Path) -> Path:
    """Brings the programs of a system up to date, in this folder."""
    toolchain = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/{system.preset}.cmake"]
    logged(
        f"configuring the programs of {system.name}",
        *("cmake", "-G", "Ninja", "-S", str(ROOT / "tools" / "programs")),
        *("-B", str(folder), *([] if system.runs_here else toolchain)),
    )
    logged(
        f"building the programs of {system.name}", *("cmake", "--build", str(folder))
    )
    if system.is_musl:
        # Debian has no library of C++ for musl, and static programs need none of the system.
        other = SYSTEMS[system.name.removesuffix(MUSL)]
        glibc = _programs(other, WORK / other.name / "programs")
        for name in STATIC_PROGRAMS:
            shutil.copy2(glibc / name, folder / name)
    return folder


def strip(system: System, binaries: Binaries, folder: Path) -> None:
    """Puts the shared libraries without debug information into a folder. Names that are exported
    stay."""
    for name in LIBRARIES:
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
    for name in LIBRARIES:
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
