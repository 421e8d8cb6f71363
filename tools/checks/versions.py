"""Lists the symbol versions that shared libraries and programs need of the C library, and checks
that glibc 2.17 has them all: then they load on that and on any later one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
NEWEST = (2, 17)
NEEDED = re.compile(r"Name: (\S+)  Flags:")
OF_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")
LIBRARIES = (
    *("liballod.so", "liballod-debug.so", "liballod-hardened.so"),
    *("liballod-prefixed.so", "liballod-copies.so", "liballod-record.so"),
    "liballod-ends.so",
)
LIVE = "liballod-live.so"


def needed_versions(file: Path) -> set[str]:
    """The versions that the loader looks for before it loads a file."""
    done = subprocess.run(
        ["readelf", "--version-info", "--wide", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise click.ClickException(done.stderr.strip())
    return set(NEEDED.findall(done.stdout))


def complaints(file: Path) -> Iterator[str]:
    """The versions that glibc 2.17 does not have."""
    for version in sorted(needed_versions(file), key=_in_order):
        if _in_order(version) > NEWEST:
            newest = ".".join(map(str, NEWEST))
            yield f"{file.name} needs {version}, which glibc {newest} has not"


def _in_order(version: str) -> tuple[int, ...]:
    """Names without a number, such as GLIBC_PRIVATE, belong to one release, and come last."""
    numbers = OF_GLIBC.fullmatch(version)
    return (sys.maxsize,) if numbers is None else (int(numbers[1]), int(numbers[2]))


@click.command(help=__doc__)
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Prints what each needs, and fails if anything is too new."""
    build = ROOT / "build" / "release"
    given = files or tuple(
        build / name for name in (*LIBRARIES, LIVE) if (build / name).exists()
    )
    found: list[str] = []
    for file in given:
        needed = sorted(needed_versions(file), key=_in_order)
        print(f"{file.name}: {' '.join(needed) or 'none'}")
        found += complaints(file)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
