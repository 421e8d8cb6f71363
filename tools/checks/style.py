"""Checks formatting, lint and types of everything in the repository; --fix formats in place."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("include", "src", "live", "tests", "bench", "tools", "examples")
C_SUFFIXES = {".c", ".h", ".cpp", ".hpp"}
PYTHON_FOLDERS = ("tools", "tests", "bench", "docs")
MOST_LINES = 100
SHELL_STARTS = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash")


@dataclass(frozen=True)
class Check:
    """One tool over its files."""

    name: str
    packages: tuple[str, ...]
    command: Callable[[bool], list[str]]

    def complaint(self, *, fix: bool = False) -> str | None:
        """What the tool says, or None if it is content."""
        command = self.command(fix)
        if shutil.which(command[0]) is None:
            return f"{command[0]} is missing: apt-get install {' '.join(self.packages)}"
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return None
        lines = f"{done.stdout}{done.stderr}".strip().splitlines()
        if len(lines) > MOST_LINES:
            left = len(lines) - MOST_LINES
            lines[MOST_LINES:] = [f"... and {left} lines more from: {self.name}"]
        return "\n".join(lines)


def c_sources() -> list[str]:
    """Every C and C++ file, relative to the repository."""
    return _relative(file for file in _files() if file.suffix in C_SUFFIXES)


def shell_scripts() -> list[str]:
    """Every shell script: by suffix, or by its first line."""
    scripts = [ROOT / "allod", *(ROOT / ".ci").iterdir()]
    scripts += [file for file in _files() if _is_shell(file)]
    return _relative(scripts)


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (file for file in (ROOT / folder).rglob("*") if file.is_file())


def _is_shell(file: Path) -> bool:
    if file.suffix not in ("", ".sh"):
        return False
    with file.open("rb") as opened:
        return file.suffix == ".sh" or opened.readline().startswith(SHELL_STARTS)


def _relative(files: Iterable[Path]) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in files)


def _python_folders() -> list[str]:
    return [folder for folder in PYTHON_FOLDERS if any((ROOT / folder).rglob("*.py"))]


def _clang_format(fix: bool) -> list[str]:
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    return ["clang-format-19", *mode, *c_sources()]


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments, *_python_folders()]


CHECKS = (
    Check("clang-format", ("clang-format-19",), _clang_format),
    Check(
        "ruff-format",
        (),
        lambda fix: _module("ruff", "format", *([] if fix else ["--check"])),
    ),
    Check(
        "ruff",
        (),
        lambda fix: _module("ruff", "check", *(["--fix"] if fix else [])),
    ),
    Check("mypy", (), lambda fix: _module("mypy")),
    Check("shellcheck", ("shellcheck",), lambda fix: ["shellcheck", *shell_scripts()]),
)


@click.command(help=__doc__)
@click.option("--fix", is_flag=True, help="Format and correct instead of complaining.")
@click.argument("names", nargs=-1, type=click.Choice([check.name for check in CHECKS]))
def main(fix: bool, names: Sequence[str]) -> None:
    """Prints what the tools say and fails if one is not content."""
    failed = False
    for check in CHECKS:
        if names and check.name not in names:
            continue
        complaint = check.complaint(fix=fix)
        print(f"{check.name}: {'ok' if complaint is None else 'not content'}")
        if complaint is not None:
            failed = True
            print(complaint)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
