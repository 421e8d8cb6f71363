"""What the commands need besides this package: libraries, programs, other allocators.

`Installed` finds them beside the package and on the machine. A clone has supplies of its own, which
build and install what is missing; whoever runs the commands there hands them in with `use`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from allod.console import Failure
from allod.elf import is_musl_here

if TYPE_CHECKING:
    from allod.replays import Allocator, Plan, Replays

LIVE = "liballod-live.so"
# The version of the libraries' interface, which ends their names where nothing is linked with them.
INTERFACE = "0"
# Where packages of systems have the programs.
PROGRAMS = Path("libexec") / "allod"

NOT_EXECUTABLE = 126
SYMBOLIZERS = ("llvm-symbolizer", "llvm-symbolizer-19", "llvm-symbolizer-14")

Purpose = Literal["profiles", "flames", "plots", "statistics"]
# What each imports besides this package's dependencies.
MODULES: dict[Purpose, tuple[str, ...]] = {
    "profiles": (),
    "flames": ("plotly",),
    "plots": ("numpy", "matplotlib"),
    "statistics": (),
}


class Supplies(Protocol):
    """Where things come from. What cannot be had is a Failure that says why."""

    def library(self, name: str, *, musl: bool) -> Path:
        """One of Allod's libraries, for programs of musl or of glibc."""

    def live_library(self, *, musl: bool) -> Path:
        """The library that serves the live page."""

    def trace_programs(self) -> Path:
        """The folder of the programs that read and replay traces."""

    def symbolizer(self) -> str:
        """A program that takes what llvm-symbolizer takes, and answers as that does."""

    def python_packages(self, purpose: Purpose) -> None:
        """Sees to it that what a part of this package imports is there."""

    def allocator(self, given: str) -> Allocator:
        """The allocator of NAME or NAME=LIBRARY."""

    def replay(
        self,
        plan: Plan,
        allocators: Sequence[Allocator],
        progress: Callable[[int, int], None],
    ) -> Replays:
        """Replays a prepared trace under each allocator by turns, and measures; an interrupt ends
        it early."""


@dataclass(frozen=True)
class Library:
    """An allocator in a file."""

    name: str
    library: Path | None
    variables: tuple[tuple[str, str], ...] = ()


def not_for_here(name: str) -> Failure:
    """Says that a program is for the libc that this system does not have."""
    here, other = ("musl", "glibc") if is_musl_here() else ("glibc", "musl")
    example = {"musl": "Alpine Linux", "glibc": "Debian"}[other]
    return Failure(
        f"the program is for {other}, and {name} here for {here}; install Allod in a system that"
        f" has {other}, such as {example}",
        NOT_EXECUTABLE,
    )


class Installed:
    """Takes what this package was installed with: libraries in lib/ and programs in bin/ or
    libexec/allod/, in its own folder or in one that it lies in."""

    def library(self, name: str, *, musl: bool) -> Path:
        """From the nearest folder of libraries."""
        if musl != is_musl_here():
            raise not_for_here(name)
        # Where Debian's interpreters say how its folders of libraries are named.
        multiarch = getattr(sys.implementation, "_multiarch", "")
        return self._beside(
            *(
                folder / each
                for folder in (Path("lib"), Path("lib") / multiarch, Path("lib64"))
                for each in (name, f"{name}.{INTERFACE}")
            )
        )

    def live_library(self, *, musl: bool) -> Path:
        """As the others."""
        return self.library(LIVE, musl=musl)

    def trace_programs(self) -> Path:
        """From the nearest folder of programs."""
        return self._program("trace-tool").parent

    def symbolizer(self) -> str:
        """LLVM's, or the one that came with this package and knows less of columns."""
        for name in SYMBOLIZERS:
            if (found := shutil.which(name)) is not None:
                return found
        return str(self._program("allod-symbolizer"))

    def python_packages(self, purpose: Purpose) -> None:
        """Those for figures are not installed unless they are asked for."""
        from importlib.util import find_spec

        missing = [name for name in MODULES[purpose] if find_spec(name) is None]
        if missing:
            raise Failure(
                f"this needs the Python package {missing[0]}: pip install 'allod[plots]', or the"
                f" system's package python3-{missing[0]}"
            )

    def allocator(self, given: str) -> Allocator:
        """The C library's, ours, or a file."""
        name, _, file = given.partition("=")
        if given == "glibc":
            return Library("musl" if is_musl_here() else name, None)
        library = (
            Path(file) if file else self.library(f"lib{name}.so", musl=is_musl_here())
        )
        if not library.is_file():
            raise Failure(f"{library} is not a file")
        return Library(name, library.resolve())

    def replay(
        self,
        plan: Plan,
        allocators: Sequence[Allocator],
        progress: Callable[[int, int], None],
    ) -> Replays:
        """By rounds in which each has its turn."""
        from allod.rounds import measure

        return measure(self.trace_programs() / "replay", plan, allocators, progress)

    def _program(self, name: str) -> Path:
        return self._beside(Path("bin") / name, PROGRAMS / name)

    def _beside(self, *names: Path) -> Path:
        for folder in Path(__file__).resolve().parents:
            for name in names:
                if (folder / name).is_file():
                    return folder / name
        raise Failure(
            f"{names[0].name} is not installed beside {Path(__file__).parent}"
        )


_current: Supplies = Installed()


def current() -> Supplies:
    """Those that the commands take from."""
    return _current


def use(supplies: Supplies) -> None:
    """Has the commands take from these from now on."""
    global _current
    _current = supplies
