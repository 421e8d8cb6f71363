"""Compares the C interface of the libraries with the one that is written down in allod.abi, by
abidiff of Debian's abigail-tools. --update writes it anew, after a change of allod.h.

The library with the prefix has what allod.h declares and nothing else; the others have it, too."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "release" / "liballod-prefixed.so"
WRITTEN = Path(__file__).with_name("allod.abi")
PACKAGE = "abigail-tools"
# What abidiff's status says, besides errors in the lowest two bits.
CHANGED, INCOMPATIBLE = 4, 8


def interface(library: Path) -> str:
    """The functions of a library, and the types that they take."""
    return _output(
        "abidw",
        *("--exported-interfaces-only", "--no-corpus-path"),
        *("--no-comp-dir-path", "--no-show-locs"),
        *("--no-architecture", "--no-elf-needed", "--type-id-style", "hash"),
        str(library),
    )


def complaints(library: Path, written: Path = WRITTEN) -> Iterator[str]:
    """What has changed since it was written down."""
    with tempfile.NamedTemporaryFile("w", suffix=".abi") as present:
        present.write(interface(library))
        present.flush()
        done = subprocess.run(
            ["abidiff", "--no-show-locs", written, present.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode & INCOMPATIBLE:
        yield f"programs that were built before do not run any more:\n{done.stdout}"
    elif done.returncode & CHANGED:
        yield f"{written.name} is out of date: run {Path(__file__).name} --update\n{done.stdout}"
    elif done.returncode != 0:
        yield f"abidiff ended with {done.returncode}\n{done.stderr}"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise click.ClickException(
            f"{command[0]} is missing: apt-get install {PACKAGE}"
        ) from None
    if done.returncode != 0:
        raise click.ClickException(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@click.command(help=__doc__)
@click.argument(
    "library",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=LIBRARY,
)
@click.option("--update", is_flag=True, help="Write it down.")
def main(library: Path, update: bool) -> None:
    """Prints what is wrong and fails if anything is."""
    if update:
        WRITTEN.write_text(interface(library))
        return
    found = list(complaints(library))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
