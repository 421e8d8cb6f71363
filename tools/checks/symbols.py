"""Checks that a shared library exports exactly what it should, needs nothing but libc, and uses
nothing of that but what imports.toml explains.

A library exports what include/allod.h declares, in the versions of cmake/allod.map; one that
replaces malloc exports the names in symbols.txt as well, and without versions: so they serve
references to a version of another library."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
LIBC = re.compile(r"libc\.so\.6|ld-linux[-\w]*\.so\.\d+")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)
VERSIONS = ROOT / "cmake" / "allod.map"
# A version in such a file, and what it has.
NODE = re.compile(r"(\w[\w.]*) *\{(.*?)\}", re.DOTALL)
FUNCTION = re.compile(r"\b(allod_\w+)\s*\(")


def complaints(library: Path, expected: set[str]) -> Iterator[str]:
    """What is wrong with the dynamic section of a library."""
    exported = exported_symbols(library)
    for name in sorted(exported - expected):
        yield f"{library.name} exports {name}, which is not expected"
    for name in sorted(expected - exported):
        yield f"{library.name} does not export {name}"
    for name in needed_libraries(library):
        if LIBC.fullmatch(name) is None:
            yield f"{library.name} needs {name}"


def version_complaints(library: Path, own: Mapping[str, str]) -> Iterator[str]:
    """Where a library's exported names have other versions than these, or have some and are not
    among them."""
    for name, version in sorted(exported_versions(library).items()):
        wanted = own.get(name, "")
        if version != wanted:
            yield (
                f"{library.name} exports {name} in version {version or 'none'}, not"
                f" {wanted or 'none'}"
            )


def own_versions(script: Path = VERSIONS) -> dict[str, str]:
    """The version of each function that the linker is told."""
    text = COMMENT.sub("", script.read_text())
    return {
        name: version
        for version, names in NODE.findall(text)
        for name in re.findall(r"\w+(?=;)", names)
    }


def unexplained_imports(library: Path, explained: set[str]) -> Iterator[str]:
    """What a library uses of others without a word about who may stand in front of it."""
    for name in sorted(imported_symbols(library) - explained):
        yield f"{library.name} uses {name}, of which imports.toml says nothing"


def explained_imports() -> dict[str, set[str]]:
    """The names in imports.toml: functions, data, and what is there at run time alone."""
    tables = tomllib.loads(Path(__file__).with_name("imports.toml").read_text())
    return {kind: set(names) for kind, names in tables.items()}


def expected_symbols(*, header: Path, names: Path | None) -> set[str]:
    """The functions of a C header and the names listed in a file."""
    expected = declared_functions(header.read_text())
    if names is not None:
        lines = (
            line.split("#", 1)[0].strip() for line in names.read_text().split("\n")
        )
        expected |= {line for line in lines if line}
    return expected


def declared_functions(text: str) -> set[str]:
    """The functions that a C header declares. A name of the prefix that is followed by a
    parenthesis is one, if the header has no macros with arguments and no inline bodies."""
    return set(FUNCTION.findall(DIRECTIVE.sub("", COMMENT.sub("", text))))


def exported_symbols(library: Path) -> set[str]:
    """The names that a shared library defines for others."""
    return set(exported_versions(library))


def exported_versions(library: Path) -> dict[str, str]:
    """The version of each name that a shared library defines for others, or nothing."""
    return _dynamic_symbols(library, "--defined-only")


def imported_symbols(library: Path) -> set[str]:
    """The names that a shared library looks for in others."""
    return set(_dynamic_symbols(library, "--undefined-only"))


def _dynamic_symbols(library: Path, which: str) -> dict[str, str]:
    text = _output("nm", "--dynamic", which, "--format=posix", str(library))
    symbols: dict[str, str] = {}
    for line in text.splitlines():
        symbol, kind, *_ = line.split()
        name, _, version = symbol.partition("@")
        # The versions themselves are absolute.
        if kind != "A":
            symbols[name] = version.strip("@")
    return symbols


def needed_libraries(library: Path) -> list[str]:
    """The libraries that a shared library is linked with."""
    return NEEDED.findall(_output("readelf", "--dynamic", "--wide", str(library)))


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@click.command(help=__doc__)
@click.argument(
    "library",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=ROOT / "build" / "release" / "liballod.so",
)
@click.option("--prefixed", is_flag=True, help="The library must not replace malloc.")
def main(library: Path, prefixed: bool) -> None:
    """Prints what is wrong and fails if anything is."""
    header = ROOT / "include" / "allod.h"
    names = None if prefixed else Path(__file__).with_name("symbols.txt")
    found = list(complaints(library, expected_symbols(header=header, names=names)))
    found += version_complaints(library, own_versions())
    found += unexplained_imports(library, set().union(*explained_imports().values()))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
