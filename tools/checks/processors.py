"""Checks that only base/ and os/ ask for a processor.

Code above asks for what Allod has there, by the names in base/processor/features.hpp."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
# Where the sources are, and the folders of these that may ask.
FOLDERS = ("include", "src", "live", "examples")
MAY_ASK = (Path("include/allod/base"), Path("include/allod/os"))
SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".inc", ".ipp", ".S"}
# What compilers define for a processor, its width or its order of bytes.
NAMES = re.compile(
    r"\b(__x86_64(__)?|__amd64(__)?|__i[3-6]86(__)?|_M_(X64|AMD64|IX86|ARM|ARM64)"
    r"|__aarch64__|__arm64__|__arm__|__ARM_\w+|__riscv\w*|__powerpc\w*|__ppc\w*|__PPC\w*"
    r"|__s390x?__|__mips\w*|__loongarch\w*|__sparc\w*"
    r"|_?_?LP64_?_?|__ILP32__|__SIZEOF_POINTER__|__BIG_ENDIAN__|__LITTLE_ENDIAN__)\b"
)
# A conditional with the lines that continue it.
CONDITIONAL = re.compile(
    r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(?:[^\n\\]|\\.|\\\n)*",
    re.MULTILINE,
)


def violations(root: Path) -> Iterator[str]:
    """The conditionals below a folder that ask for a processor and may not."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            place = file.relative_to(root)
            if file.suffix in SUFFIXES and not _may_ask(place):
                yield from _violations_in(file, place)


def _may_ask(place: Path) -> bool:
    return any(folder in place.parents for folder in MAY_ASK)


def _violations_in(file: Path, place: Path) -> Iterator[str]:
    text = file.read_text()
    for conditional in CONDITIONAL.finditer(text):
        name = NAMES.search(conditional[0])
        if name is not None:
            line = text.count("\n", 0, conditional.start()) + 1
            yield f"{place}:{line}: asks for {name[0]}; base/ and os/ do that"


@click.command(help=__doc__)
def main() -> None:
    """Prints the violations and fails if there are any."""
    found = list(violations(ROOT))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
