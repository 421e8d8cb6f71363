"""Writes into the reference what the library says about itself: the table of its options.

The table stands between two comments in reference.md; everything else there is left alone."""

from __future__ import annotations

import argparse
import ctypes
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference.md"
LIBRARY = ROOT / "build" / "release" / "liballod.so"
BEGIN = "<!-- options: written by docs/generate.py -->\n"
END = "<!-- end of options -->\n"

Write = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def options_table(library: Path) -> str:
    """The options as the library describes them, in Markdown."""
    pieces: list[bytes] = []

    def take(text: int, length: int, _context: int | None) -> None:
        pieces.append(ctypes.string_at(text, length))

    ctypes.CDLL(str(library)).allod_options_markdown(Write(take), None)
    return b"".join(pieces).decode()


def with_table(text: str, table: str) -> str:
    """The reference with this table in the place of its own."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the comments around the table are missing: {BEGIN}{END}")
    return f"{before}{begin}{table}{end}{after}"


def main() -> None:
    """Brings the reference up to date, or says that it is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, default=LIBRARY)
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    text = REFERENCE.read_text()
    wanted = with_table(text, options_table(arguments.library))
    if wanted == text:
        return
    if arguments.check:
        sys.exit("docs/reference.md is out of date: run python3 docs/generate.py")
    REFERENCE.write_text(wanted)
    print("docs/reference.md is brought up to date")


if __name__ == "__main__":
    main()
