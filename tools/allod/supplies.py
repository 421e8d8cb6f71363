"""What the commands need besides this package: libraries, programs, other allocators.

`Installed` finds them on the machine. A clone has supplies of its own, which build and install
what is missing; whoever runs the commands there hands them in with `use`.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from allod.console import Failure

LIVE = "liballod-live.so"

Purpose = Literal["profiles", "statistics"]


class Allocator(Protocol):
    """An allocator under a name; without a library it is the C library's own."""

    @property
    def name(self) -> str: ...
    @property
    def library(self) -> Path | None: ...
    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """What a program under it needs in its environment."""


@dataclass(frozen=True)
class Replays:
    """What replays of one trace measured, by the allocators' names: each run as the replay has
    reported it, the 95 % interval of the seconds, and why an allocator failed."""

    runs: Mapping[str, Sequence[Mapping[str, Any]]]
    intervals: Mapping[str, tuple[float, float]]
    failures: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """How a prepared trace is replayed; `timeout` is in seconds."""

    title: str
    params: dict[str, int | str]
    rounds: int
    timeout: float


class Supplies(Protocol):
    """Where things come from. What cannot be had is a Failure that says why."""

    def library(self, name: str, *, musl: bool) -> Path:
        """One of Allod's libraries, for programs of this system's libc or of musl."""

    def live_library(self) -> Path:
        """The library that serves the live page."""

    def trace_programs(self) -> Path:
        """The folder of the programs that read and replay traces."""

    def program(self, name: str, *, package: str) -> None:
        """Sees to it that a program of a Debian package is there."""

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


class Installed:
    """Takes what is installed, this package's Python packages with it."""

    def library(self, name: str, *, musl: bool) -> Path:
        """From the folder of libraries that this package was installed beside."""
        if musl:
            raise Failure(f"{name} for musl is not installed")
        multiarch = sysconfig.get_config_var("MULTIARCH") or ""
        for folder in Path(__file__).resolve().parents:
            for path in (folder / "lib" / name, folder / "lib" / multiarch / name):
                if path.is_file():
                    return path
        raise Failure(f"{name} is not installed beside {Path(__file__).parent}")

    def live_library(self) -> Path:
        """As the others."""
        return self.library(LIVE, musl=False)

    def trace_programs(self) -> Path:
        """From PATH."""
        return Path(self._found("trace-tool")).parent

    def program(self, name: str, *, package: str) -> None:
        """From PATH."""
        self._found(name, f"; install the Debian package {package}")

    def python_packages(self, purpose: Purpose) -> None:
        """They came with this package."""

    def allocator(self, given: str) -> Allocator:
        """The C library's, ours, or a file."""
        name, _, file = given.partition("=")
        if given == "glibc":
            return Library(name, None)
        library = Path(file) if file else self.library(f"lib{name}.so", musl=False)
        if not library.is_file():
            raise Failure(f"{library} is not a file")
        return Library(name, library.resolve())

    def replay(
        self,
        plan: Plan,
        allocators: Sequence[Allocator],
        progress: Callable[[int, int], None],
    ) -> Replays:
        """What measures is a part of the clone."""
        raise Failure("replays are measured in a clone of Allod only")

    def _found(self, name: str, remedy: str = "") -> str:
        path = shutil.which(name)
        if path is None:
            raise Failure(f"{name} is not installed{remedy}")
        return path


_current: Supplies = Installed()


def current() -> Supplies:
    """Those that the commands take from."""
    return _current


def use(supplies: Supplies) -> None:
    """Has the commands take from these from now on."""
    global _current
    _current = supplies
