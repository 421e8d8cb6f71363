"""Runs clang-tidy over the library's and the live server's sources, as a build compiles them.

The products are variants of the same sources, and clang-tidy would take each of them as often as it
is compiled. Each is looked at as the first product compiles it: what belongs to another one is
there too, in branches that are not taken, and the few lines that a macro chooses come with the
sources which that product alone has.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "src", ROOT / "live")
BUILD = ROOT / "build" / "clang"
# How many states the analyzer looks at from each function. Its own limit, 225000, takes two and a
# half times as long over the sources and has found nothing more. It is the compiler's option:
# clang-tidy hands on those of single checks alone.
ANALYZER = ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=50000")


@dataclass(frozen=True)
class Compilation:
    """How a build compiles a source file, without what it writes."""

    source: Path
    folder: Path
    arguments: tuple[str, ...]

    def complaint(self) -> str | None:
        """What clang-tidy says, or None if it is content."""
        entry = {
            "file": str(self.source),
            "directory": str(self.folder),
            "arguments": (*self.arguments, *ANALYZER),
        }
        with tempfile.TemporaryDirectory(prefix="allod-tidy-") as scratch:
            (Path(scratch) / "compile_commands.json").write_text(json.dumps([entry]))
            done = subprocess.run(
                ["clang-tidy-19", "--quiet", "-p", scratch, str(self.source)],
                capture_output=True,
                text=True,
                check=False,
            )
        return None if done.returncode == 0 else done.stdout or done.stderr


def sources() -> list[Path]:
    """Every file that clang-tidy looks at."""
    return sorted(source for folder in FOLDERS for source in folder.glob("*.cpp"))


def compilation(build: Path, source: Path) -> Compilation | None:
    """The first way in which a build compiles a source, if it does: by itself, or else in a file
    that includes several."""
    in_company = None
    for entry in json.loads((build / "compile_commands.json").read_text()):
        folder = Path(entry["directory"])
        file = folder / entry["file"]
        if file == source:
            return Compilation(source, folder, _arguments(entry))
        if in_company is None and "Unity" in file.parts and _includes(file, source):
            in_company = Compilation(
                source, folder, (*_arguments(entry)[:-1], str(source))
            )
    return in_company


def _includes(file: Path, source: Path) -> bool:
    return f'#include "{source}"' in file.read_text()


def _arguments(entry: Mapping[str, str]) -> tuple[str, ...]:
    """The compiler's, without what it writes; the source is the last."""
    arguments = shlex.split(entry["command"])
    at = arguments.index("-o")
    return (*arguments[:at], *arguments[at + 2 :])


@click.command(help=__doc__)
@click.argument(
    "build",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=BUILD,
)
def main(build: Path) -> None:
    """Prints what clang-tidy says and fails if it is not content."""

    def complaint_on(source: Path) -> str | None:
        one = compilation(build, source)
        return one.complaint() if one else None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(complaint_on, sources()) if text]
    print("\n".join(found) or "clang-tidy: ok")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
