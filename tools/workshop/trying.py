"""Tries what is handed out: in a new environment of Python, or unpacked in a new folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from allod.console import Failure, run_logged, say

from workshop.paths import LOGS
from workshop.systems import System

SOURCE = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n"


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


def try_library(artifact: Path, system: System) -> str:
    """Unpacks an artifact, and preloads its library into a program for its system."""
    with tempfile.TemporaryDirectory(prefix="allod-fresh-") as folder:
        place = Path(folder)
        _unpack(artifact, place / "unpacked")
        found = sorted((place / "unpacked").rglob("liballod.so*"))
        libraries = [each for each in found if each.is_file() and not each.is_symlink()]
        if not libraries:
            return "unpacked"
        program = place / "program"
        source = place / "program.c"
        source.write_text(SOURCE)
        compiled = [*system.compiler, "-fno-builtin", "-o", str(program), str(source)]
        subprocess.run(compiled, check=True)
        done = subprocess.run(
            [*system.emulator, program],
            env={"LD_PRELOAD": str(libraries[0]), "ALLOD_VERBOSE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or "serves process" not in done.stderr:
            raise Failure(
                f"the library of {artifact.name} serves no program\n{done.stderr}"
            )
    return "a program ran" + (", emulated" if system.emulator else "")


def _unpack(artifact: Path, folder: Path) -> None:
    folder.mkdir()
    if artifact.suffix == ".whl":
        shutil.unpack_archive(artifact, folder, "zip")
    elif artifact.suffix == ".gz":
        shutil.unpack_archive(artifact, folder, "gztar")
    elif artifact.suffix == ".deb":
        command = ["dpkg-deb", "--extract", str(artifact), str(folder)]
        subprocess.run(command, check=True)
    elif artifact.suffix == ".rpm":
        unpack = 'rpm2cpio "$0" | cpio --extract --make-directories --quiet'
        subprocess.run(["sh", "-c", unpack, str(artifact)], cwd=folder, check=True)
    else:
        raise Failure(f"nothing is known of files like {artifact.name}")
