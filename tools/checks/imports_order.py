"""Checks that no part of the Python and of the live page's TypeScript imports a higher one, and
that nothing imports in a circle."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
# From the lowest to the highest: a part imports of itself and of what stands above it here.
ORDER = (
    ("what a user runs", ("tools/allod",)),
    ("what builds and tests", ("tools/workshop",)),
    ("what measures", ("bench",)),
    ("the commands of a clone", ("tools/clone",)),
    ("checks, and scripts that write files", ("tools",)),
    ("tests", ("tests", "docs")),
)
TEST_FILES = re.compile(r"bench/(test_\w+|conftest|fakes|samples|tiny)\.py")
# Within the package of a user, a feature imports none of these from another one.
FEATURES = ("tools/allod/profile", "tools/allod/trace")
# The folders that Python finds modules in.
PYTHON_ROOTS = ("", "tools", "tests")
PYTHON_FOLDERS = ("tools", "bench", "tests", "docs")
PAGE = "live/page"
PAGE_IMPORT = re.compile(
    r"""^\s*(?:import|export)\b[^"';]*?["'](\./[^"']+)["']""", re.MULTILINE
)


@dataclass(frozen=True)
class Import:
    """A line of a file that names another one; both are paths within the repository."""

    file: str
    line: int
    target: str


def violations(root: Path) -> Iterator[str]:
    """What is wrong with the imports below a folder that is laid out as the repository."""
    for found in (list(python_imports(root)), list(page_imports(root))):
        for each in found:
            complaint = _complaint(each)
            if complaint is not None:
                yield f"{each.file}:{each.line}: {complaint}"
        for circle in circles(found):
            yield f"circle of imports: {' -> '.join(circle)}"


def _complaint(given: Import) -> str | None:
    own, target = _rank(given.file), _rank(given.target)
    if own is not None and target is not None and target > own:
        return f"{ORDER[own][0]} must not import {ORDER[target][0]} ({given.target})"
    own_feature, feature = _feature(given.file), _feature(given.target)
    if own_feature and feature and own_feature != feature:
        return f"{own_feature} must not import {feature} ({given.target})"
    return None


def _rank(file: str) -> int | None:
    if TEST_FILES.fullmatch(file):
        return len(ORDER) - 1
    ranks = {
        folder: rank
        for rank, (_, folders) in enumerate(ORDER)
        for folder in folders
        if file.startswith(f"{folder}/")
    }
    return ranks[max(ranks, key=len)] if ranks else None


def _feature(file: str) -> str | None:
    return next((each for each in FEATURES if file.startswith(f"{each}/")), None)


# Python


def python_imports(root: Path) -> Iterator[Import]:
    """Every import of one of our modules, wherever in a file it stands."""
    for folder in PYTHON_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            file = str(path.relative_to(root))
            for node in ast.walk(ast.parse(path.read_text(), file)):
                if not isinstance(node, ast.Import | ast.ImportFrom):
                    continue
                for name in _names(node, file):
                    target = _module(root, name)
                    if target is not None and target != file:
                        yield Import(file, node.lineno, target)


def _names(node: ast.Import | ast.ImportFrom, file: str) -> Iterator[str]:
    """What an import names: modules, or names in modules."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
        return
    base = node.module or ""
    if node.level:
        package = ".".join(Path(file).parts[: -node.level])
        base = f"{package}.{base}".strip(".")
    yield from (f"{base}.{each.name}" for each in node.names)


def _module(root: Path, name: str) -> str | None:
    """The file of a module, or of that which it is a name in."""
    for module in (name, name.rpartition(".")[0]):
        place = module.replace(".", "/")
        for found in (f"{above}/{place}".strip("/") for above in PYTHON_ROOTS):
            for file in (f"{found}.py", f"{found}/__init__.py"):
                if place and (root / file).is_file():
                    return file
    return None


# TypeScript


def page_imports(root: Path) -> Iterator[Import]:
    """The same for the page, types included."""
    for path in sorted((root / PAGE).glob("*.ts")):
        text = path.read_text()
        for match in PAGE_IMPORT.finditer(text):
            target = (path.parent / match[1]).with_suffix(".ts")
            if target.is_file():
                yield Import(
                    str(path.relative_to(root)),
                    text.count("\n", 0, match.start(1)) + 1,
                    str(target.relative_to(root)),
                )


# Circles


def circles(imports: list[Import]) -> Iterator[list[str]]:
    """Each circle once, by the files on it, with the first one again at the end."""
    targets: dict[str, list[str]] = {}
    for each in imports:
        targets.setdefault(each.file, []).append(each.target)
    finished: set[str] = set()
    for start in targets:
        yield from _circles_from(start, targets, [], finished)


def _circles_from(
    file: str,
    targets: Mapping[str, list[str]],
    way: list[str],
    finished: set[str],
) -> Iterator[list[str]]:
    if file in way:
        yield [*way[way.index(file) :], file]
    elif file not in finished:
        for target in dict.fromkeys(targets.get(file, [])):
            yield from _circles_from(target, targets, [*way, file], finished)
        finished.add(file)


@click.command(help=__doc__)
def main() -> None:
    """Prints the violations and fails if there are any."""
    found = list(violations(ROOT))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
