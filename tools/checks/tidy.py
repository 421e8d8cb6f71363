"""Runs clang-tidy over the library's and the live server's sources, as a build compiles them.

The products are variants of the same sources, and clang-tidy would take each of them as often as it
is compiled. What is the same text after the preprocessor is looked at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "src", ROOT / "live")
BUILD = ROOT / "build" / "clang"


@dataclass(frozen=True)
class Compilation:
    """How a build compiles a source file, without what it writes."""

    source: Path
    folder: Path
    arguments: tuple[str, ...]

    def text(self) -> bytes:
        """What the compiler sees."""
        done = subprocess.run(
            [*self.arguments, "-E"], cwd=self.folder, capture_output=True, check=True
        )
        return done.stdout

    def complaint(self) -> str | None:
        """What clang-tidy says, or None if it is content."""
        entry = {
            "file": str(self.source),
            "directory": str(self.folder),
            "arguments": self.arguments,
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


def compilations(build: Path, source: Path) -> list[Compilation]:
    """The ways in which a build compiles a source, each text once."""
    seen: dict[bytes, Compilation] = {}
    for one in _compilations_of(build, source):
        seen.setdefault(hashlib.sha256(one.text()).digest(), one)
    return [*seen.values()]


def _compilations_of(build: Path, source: Path) -> Iterator[Compilation]:
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if Path(entry["file"]) == source:
            arguments = _without_output(shlex.split(entry["command"]))
            yield Compilation(source, Path(entry["directory"]), tuple(arguments))


def _without_output(arguments: Sequence[str]) -> list[str]:
    at = arguments.index("-o")
    return [*arguments[:at], *arguments[at + 2 :]]


@click.command(help=__doc__)
@click.argument(
    "build",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=BUILD,
)
def main(build: Path) -> None:
    """Prints what clang-tidy says and fails if it is not content."""

    def complaints_on(source: Path) -> list[str]:
        said = (one.complaint() for one in compilations(build, source))
        return [text for text in said if text is not None]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for each in pool.map(complaints_on, sources()) for text in each]
    print("\n".join(found) or "clang-tidy: ok")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
