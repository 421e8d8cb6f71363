"""Checks that the user's pages read at once: no sentence of more than 35 words, and none of the
phrases that make a reader go back.

Code, tables, headings and the targets of links do not count."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 35
PHRASES = (
    *("front door", "of which", "that what", "that which", "what was", "what were"),
    *("who has", "one that was", "those that were"),
)
PATTERNS = ("README.md", "CONTRIBUTING.md", "docs/*.md", "examples/*.md", "bench/*.md")
# Written by the laboratory.
GENERATED = {
    "docs/results.md",
    "docs/security-results.md",
    "docs/security-attacks.md",
    "docs/security-distances.md",
    "docs/security-prices.md",
}

FENCE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
TABLE = re.compile(r"^ *\|.*$|^#+ .*$", re.MULTILINE)
IMAGE = re.compile(r"!\[[^]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
# An item of a list is a paragraph of its own.
PARAGRAPH = re.compile(r"^.*\S.*\n?(?:^(?! *(?:[*-]|\d+\.) ).*\S.*\n?)*", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+")
WORD = re.compile(r"\S*\w\S*")
# A table's value that says less than yes or no.
VAGUE_CELL = re.compile(r"\| *(there|not yet)\b[^|]{0,12}\|")


def pages(root: Path) -> list[Path]:
    """The pages that a user reads."""
    found = (path for pattern in PATTERNS for path in sorted(root.glob(pattern)))
    return [path for path in found if str(path.relative_to(root)) not in GENERATED]


def faults(text: str) -> Iterator[str]:
    """What is wrong with a page: the number of a line and what stands there."""
    for cell in VAGUE_CELL.finditer(text):
        yield f"{_line(text, cell.start())}: '{cell[1]}' as the value of a table"
    plain = _plain(text)
    for paragraph in PARAGRAPH.finditer(plain):
        where = _line(plain, paragraph.start())
        for sentence in SENTENCE_END.split(paragraph[0]):
            words = WORD.findall(sentence)
            if len(words) > MOST_WORDS:
                yield f"{where}: {len(words)} words: {' '.join(words[:8])} ..."
        lower = " ".join(paragraph[0].lower().split())
        for phrase in PHRASES:
            for _ in re.finditer(rf"\b{phrase}\b", lower):
                yield f"{where}: '{phrase}'"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _plain(text: str) -> str:
    """The prose alone, line by line where it was."""
    for pattern in (FENCE, INDENTED, TABLE, IMAGE):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = CODE.sub(lambda match: "code" + "\n" * match[0].count("\n"), text)
    return LINK.sub(r"\1", text)


def complaints(root: Path) -> Iterator[str]:
    """The faults of every page."""
    for page in pages(root):
        name = page.relative_to(root)
        yield from (f"{name}:{fault}" for fault in faults(page.read_text()))


@click.command(help=__doc__)
def main() -> None:
    """Prints the faults and fails if there are any."""
    found = list(complaints(ROOT))
    for line in found:
        click.echo(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
