"""Builds what is handed out: a wheel of Python for each system that the presets can build for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure, run_logged, say, shown

from workshop.build import (
    BUILD_TOOLS,
    GCC,
    GCC_ARM64,
    GCC_MUSL,
    LIVE_TOOLS,
    PRESETS,
    building,
    ensure_built,
    ensure_live_built,
)
from workshop.packages import Requirement, ensure_requirements
from workshop.paths import BUILD, LOGS, ROOT, build_dir, version

DIST = ROOT / "dist"
WORK = BUILD / "dist"
PACKAGE = ROOT / "tools" / "allod"
# The most bytes that a wheel may have.
MOST_BYTES = 15_000_000
LIBRARIES = ("", "-debug", "-hardened", "-prefixed", "-copies", "-ends", "-record")
PROGRAMS = ("trace-tool", "replay", "allod-symbolizer")
# The time of every file in a wheel, so that the same sources give the same bytes.
EPOCH = "315532800"


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
        ),
    )
}


@dataclass(frozen=True)
class Artifact:
    """A file that is handed out, and what was tried of it here."""

    path: Path
    tried: str

    @property
    def digest(self) -> str:
        """Its SHA-256."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def release(names: Sequence[str]) -> list[Artifact]:
    """Builds the wheels of these systems into dist/, tries those that run here, and writes the
    checksums of all that is there."""
    DIST.mkdir(exist_ok=True)
    artifacts = []
    for name in names:
        system = SYSTEMS[name]
        wheel = make_wheel(system, DIST)
        tried = try_wheel(wheel) if system.runs_here else "not run here"
        artifacts.append(Artifact(wheel, tried))
    wheels = sorted(DIST.glob("*.whl"))
    sums = [f"{Artifact(path, '').digest}  {path.name}\n" for path in wheels]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    return artifacts


def table(artifacts: Sequence[Artifact]) -> Iterator[str]:
    """A line for each artifact."""
    width = max(len(shown(each.path)) for each in artifacts)
    for each in artifacts:
        size = each.path.stat().st_size / 1e6
        yield (
            f"{shown(each.path):{width}}  {size:5.2f} MB  {each.digest[:16]}  {each.tried}"
        )


def make_wheel(system: System, folder: Path) -> Path:
    """Builds the wheel of a system into a folder, and returns it."""
    ensure_requirements((*BUILD_TOOLS, *system.needs))
    with building(f"dist-{system.name}"):
        binaries = _build(system)
        stage = WORK / f"{system.name}-wheel"
        shutil.rmtree(stage, ignore_errors=True)
        _stage(system, binaries, stage)
        wheel = _wheel_of(system, stage, folder)
    if wheel.stat().st_size > MOST_BYTES:
        raise Failure(f"{shown(wheel)} has more than {MOST_BYTES} bytes")
    return wheel


@dataclass(frozen=True)
class Binaries:
    """Where the libraries and the programs of a system are."""

    libraries: Path
    programs: Path


def _build(system: System) -> Binaries:
    folder = WORK / system.name
    if system.runs_here:
        ensure_built(PRESETS[system.preset])
        ensure_live_built()
        libraries = build_dir(system.preset)
    else:
        # A build of its own: where an emulator is to run tests, they are compiled differently.
        libraries = folder
        _logged(
            f"configuring {system.name} for release",
            *("cmake", "--preset", system.preset, "-B", str(folder)),
            "-DALLOD_BUILD_TESTS=OFF",
        )
        _logged(
            f"building {system.name} for release",
            *("cmake", "--build", str(folder), "--target", "products"),
        )
    if system.has_programs:
        toolchain = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/{system.preset}.cmake"]
        _logged(
            f"configuring the programs of {system.name}",
            *("cmake", "-G", "Ninja", "-S", str(ROOT / "tools" / "programs")),
            *("-B", str(folder / "programs")),
            *(toolchain if system.tools else []),
        )
        _logged(
            f"building the programs of {system.name}",
            *("cmake", "--build", str(folder / "programs")),
        )
    return Binaries(libraries, folder / "programs")


def _logged(title: str, *command: str) -> None:
    name = title.replace(" ", "-")
    run_logged(title, command, LOGS / f"{name}.log", directory=ROOT)


def _stage(system: System, binaries: Binaries, stage: Path) -> None:
    """A project of Python that has the package with its libraries and programs in it."""
    package = stage / "allod"
    shutil.copytree(
        PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    libraries = [f"liballod{variant}.so" for variant in LIBRARIES]
    if system.has_live:
        libraries.append("liballod-live.so")
    (package / "lib").mkdir()
    for name in libraries:
        # Debug information is not for those who run programs; names that are exported stay.
        target = package / "lib" / name
        strip = f"{system.tools}strip"
        done = subprocess.run(
            [strip, "--strip-unneeded", "-o", target, binaries.libraries / name],
            check=False,
        )
        if done.returncode != 0:
            raise Failure(f"{name} cannot be stripped")
        target.chmod(0o755)
    if system.has_programs:
        (package / "bin").mkdir()
        for name in PROGRAMS:
            shutil.copy(binaries.programs / name, package / "bin" / name)
    shutil.copy(ROOT / "LICENSE", stage / "LICENSE")
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


def try_wheel(wheel: Path) -> str:
    """Installs a wheel into a new environment, and runs its commands in a folder that cannot be
    written, with nothing of this clone or of a compiler at hand."""
    with tempfile.TemporaryDirectory(prefix="allod-fresh-") as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True, symlinks=True)
        python = place / "venv" / "bin" / "python"
        run_logged(
            f"installing {wheel.name} into a new environment",
            [
                *(str(python), "-m", "pip", "install", "--disable-pip-version-check"),
                *("--quiet", str(wheel)),
            ],
            LOGS / "wheel-install.log",
        )
        command = str(python.with_name("allod"))
        trace = str(place / "true.trace")
        tries: tuple[tuple[str, ...], ...] = (
            (command, "--version"),
            (str(python), "-m", "allod", "run", "--", "true"),
            (command, "run", "--debug", "--", "true"),
            (command, "run", "--hardened", "--check-copies", "--", "true"),
            (command, "run", "--live", "--", "true"),
            (command, "leaks", "--", "true"),
            (command, "record", "--output", trace, "--", "ls"),
            (command, "trace", "info", trace),
            (command, "replay", trace, "--rounds", "2"),
        )
        for words in tries:
            _try(words)
    return f"{len(tries)} commands ran"


def _try(words: Sequence[str]) -> None:
    shown_words = " ".join([Path(words[0]).name, *words[1:]])
    done = subprocess.run(
        words,
        cwd="/proc",
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failure(f"{shown_words} ended with {done.returncode}\n{done.stderr}")
    say(f"{shown_words}: works")
