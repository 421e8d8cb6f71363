"""Writes the single-file header allod.hpp: what include/allod.hpp includes, each file once, in the
order of the layers, with the headers of the system in front.

Needs nothing but Python, because the build runs it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENTRY = "allod.hpp"
OURS = re.compile(r'^#include "(allod/[^"]+)"$')
SYSTEM = re.compile(r"^#include <([^>]+)>$")
ONCE = "#pragma once"


class AmalgamationError(Exception):
    """The headers cannot be put together; the text says why."""


class Amalgamation:
    """The lines of one file made of many."""

    def __init__(self, include: Path) -> None:
        self.include = include
        self.seen: set[str] = set()
        self.system: set[str] = set()

    def lines_of(self, name: str) -> Iterator[str]:
        """A header and what it includes, unless that is there already."""
        if name in self.seen:
            return
        self.seen.add(name)
        path = self.include / name
        if not path.is_file():
            raise AmalgamationError(f"{path} does not exist")
        own = [f"// ---- {name}"]
        for line in path.read_text().splitlines():
            if match := OURS.match(line):
                # What comes before an include that is not at the top belongs before it.
                if any(line and not line.startswith("//") for line in own):
                    yield from own
                    own = []
                yield from self.lines_of(match[1])
            elif match := SYSTEM.match(line):
                self.system.add(match[1])
            elif line.lstrip().startswith("#include"):
                raise AmalgamationError(f"{path}: {line} cannot be put into one file")
            elif line != ONCE:
                own.append(line)
        yield from own


def amalgamate(include: Path, version: str) -> str:
    """The text of the single header."""
    whole = Amalgamation(include)
    body = list(whole.lines_of(ENTRY))
    head = [
        f"// Allod {version}: heaps that a program composes from parts, in one file.",
        "// Made by tools/amalgamate.py. MIT licence:",
        "//",
        *(
            f"// {line}".rstrip()
            for line in (ROOT / "LICENSE").read_text().splitlines()
        ),
        # A guard, so that the file can be compiled by itself as well.
        "#ifndef ALLOD_SINGLE_HEADER",
        "#define ALLOD_SINGLE_HEADER",
        "",
        *(f"#include <{name}>" for name in sorted(whole.system)),
        "",
    ]
    text = "\n".join([*head, *body, "", "#endif"]) + "\n"
    return re.sub(r"\n{3,}", "\n\n", text)


def version_of(root: Path) -> str:
    """The version in CMakeLists.txt."""
    found = re.search(
        r"project\(allod\s+VERSION\s+([0-9.]+)", (root / "CMakeLists.txt").read_text()
    )
    return found[1] if found else "of unknown version"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        help="where it goes; by default, to standard output",
    )
    parser.add_argument(
        "--include",
        type=Path,
        default=ROOT / "include",
        help="the folder of the headers",
    )
    arguments = parser.parse_args()
    try:
        text = amalgamate(arguments.include, version_of(ROOT))
        if arguments.output is None:
            sys.stdout.write(text)
        else:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(text)
    except (AmalgamationError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
