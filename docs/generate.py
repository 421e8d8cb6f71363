"""Writes into pages what the library and the commands say of themselves: the table of the options
in the reference, and parts of the manual pages.

Each part stands between two comments. Everything else on a page is left alone."""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path

from allod.cli import allod
from workshop import manual
from workshop.paths import version

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference.md"
MANUAL = ROOT / "docs" / "man" / "allod.1"
LIBRARY_MANUAL = ROOT / "docs" / "man" / "liballod.7"
LIBRARY = ROOT / "build" / "release" / "liballod.so"
# The comments around a part, by what a page's name ends in.
MARKDOWN = ("<!-- {}: written by docs/generate.py -->\n", "<!-- end of {} -->\n")
ROFF = ('.\\" {}: written by docs/generate.py\n', '.\\" end of {}\n')

Write = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def options_table(library: Path) -> str:
    """The options as the library describes them, in Markdown."""
    pieces: list[bytes] = []

    def take(text: int, length: int, _context: int | None) -> None:
        pieces.append(ctypes.string_at(text, length))

    ctypes.CDLL(str(library)).allod_options_markdown(Write(take), None)
    return b"".join(pieces).decode()


def parts(library: Path) -> Mapping[Path, Mapping[str, str]]:
    """What each page is to have, by the names of its parts."""
    table = options_table(library)
    return {
        REFERENCE: {"options": table},
        MANUAL: {
            "title": manual.title("allod", 1, version(), "User Commands"),
            "commands": manual.commands(allod, "allod"),
        },
        LIBRARY_MANUAL: {
            "title": manual.title("liballod", 7, version(), "Allod"),
            "options": manual.options(table),
        },
    }


def with_parts(page: Path, wanted: Mapping[str, str]) -> str:
    """The text of a page with these parts in the places of its own."""
    text = page.read_text()
    for name, part in wanted.items():
        marks = MARKDOWN if page.suffix == ".md" else ROFF
        begin, end = (mark.format(name) for mark in marks)
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{page} has no comments around a part: {begin}{end}")
        text = f"{before}{begin}{part}{end}{after}"
    return text


def main() -> None:
    """Brings the pages up to date, or says that they are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, default=LIBRARY)
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    stale = False
    for page, wanted in parts(arguments.library).items():
        text = with_parts(page, wanted)
        if text == page.read_text():
            continue
        name = page.relative_to(ROOT)
        stale = True
        if arguments.check:
            print(f"{name} is out of date: run docs/generate.py")
        else:
            page.write_text(text)
            print(f"{name} is brought up to date")
    sys.exit(1 if stale and arguments.check else 0)


if __name__ == "__main__":
    main()
