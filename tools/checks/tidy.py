"""Runs clang-tidy over the library's and the live server's sources, as a build compiles them.

The products are variants of the same sources, and clang-tidy would take each of them as often as it
is compiled. Each is looked at as the first product compiles it: what belongs to another one is
there too, in branches that are not taken, and the few lines that a macro chooses come with the
sources which that product alone has. What is compiled as one file is looked at as one: most of the
time goes into headers that all sources have in common.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "src", ROOT / "live")
BUILD = ROOT / "build" / "clang"
# How many states the analyzer looks at from each function. Over the largest unit, 50000 take twice
# as long and find nothing more. Its own limit, 225000, takes five times as long, and finds one
# thing that is none: it takes what a system call has written for uninitialized. It is the
# compiler's option: clang-tidy hands on those of single checks alone.
ANALYZER = ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=20000")


@dataclass(frozen=True)
class Unit:
    """Sources that a build compiles as one, and how, without what it reads and writes."""

    sources: tuple[Path, ...]
    folder: Path
    arguments: tuple[str, ...]

    def complaint(self) -> str | None:
        """What clang-tidy says, or None if it is content."""
        with tempfile.TemporaryDirectory(prefix="allod-tidy-") as scratch:
            file = self.sources[0]
            beside = ("-iquote", str(file.parent))
            if len(self.sources) > 1:
                file = Path(scratch) / "sources.cpp"
                file.write_text(joined(self.sources))
            entry = {
                "file": str(file),
                "directory": str(self.folder),
                "arguments": (*self.arguments, *beside, str(file), *ANALYZER),
            }
            (Path(scratch) / "compile_commands.json").write_text(json.dumps([entry]))
            configuration = f"--config-file={ROOT / '.clang-tidy'}"
            done = subprocess.run(
                ["clang-tidy-19", "--quiet", configuration, "-p", scratch, str(file)],
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode == 0:
            return None
        return self._with_own_lines(done.stdout or done.stderr, file)

    def _with_own_lines(self, text: str, file: Path) -> str:
        """What was said of the joined file, said of the sources."""
        if file in self.sources:
            return text
        places = [
            (source, number)
            for source in self.sources
            for number, _ in enumerate(source.read_text().splitlines(), 1)
        ]

        def place(found: re.Match[str]) -> str:
            source, number = places[int(found[1]) - 1]
            return f"{source}:{number}"

        return re.sub(rf"{re.escape(str(file))}:(\d+)", place, text)


def joined(sources: Sequence[Path]) -> str:
    """The sources as one text, line for line. clang-tidy looks less closely at what is included
    than at the file that it is given, and complains there of what is included twice: it gets to see
    that within a source alone."""
    lines: list[str] = []
    before: set[str] = set()
    for source in sources:
        again = set(before)
        for line in source.read_text().splitlines():
            if line in again:
                again.remove(line)
                lines.append("")
                continue
            if line.startswith("#include "):
                before.add(line)
            lines.append(line)
    return "\n".join([*lines, ""])


def units(build: Path, folder: Path) -> Iterator[Unit]:
    """The sources of a folder that a build compiles, each once."""
    known: set[Path] = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        directory = Path(entry["directory"])
        sources = tuple(
            source
            for source in _sources_of(directory / entry["file"])
            if source.is_relative_to(folder)
            and source.suffix == ".cpp"
            and source not in known
        )
        known.update(sources)
        if sources:
            yield Unit(sources, directory, _arguments(entry))


def _sources_of(file: Path) -> list[Path]:
    """A file, or those that it includes where it is one that CMake wrote for several."""
    if "Unity" not in file.parts:
        return [file]
    included = re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)
    return [Path(name) for name in included]


def _arguments(entry: Mapping[str, str]) -> tuple[str, ...]:
    """The compiler's, without the source, which is the last, and what it writes."""
    arguments = shlex.split(entry["command"])
    at = arguments.index("-o")
    return (*arguments[:at], *arguments[at + 2 : -1])


@click.command(help=__doc__)
@click.argument(
    "build",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=BUILD,
)
def main(build: Path) -> None:
    """Prints what clang-tidy says and fails if it is not content."""
    everything = [unit for folder in FOLDERS for unit in units(build, folder)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(Unit.complaint, everything) if text]
    print("\n".join(found) or "clang-tidy: ok")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
