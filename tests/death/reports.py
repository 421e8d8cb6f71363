"""The exact text of each report, as patterns in which only addresses of code are left open."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from surface.black_box import Runner, describe

HEX = r"0x[0-9a-f]+"
LARGEST_CLASS = 4 << 20

FREE = "free"
MALLOC = "malloc"
REALLOC = "realloc"
ALIGNED_ALLOC = "aligned_alloc"

GONE = "allod:   the address is in no block now\n"
NOT_OURS = "allod:   the address is not Allod's\n"


@dataclass(frozen=True)
class Scene:
    """What is known after a run: what was preloaded, what ran, and what the case has told."""

    library: Path
    program: Path
    facts: Mapping[str, int]

    def headline(self, kind: str, address: int) -> str:
        """The first line."""
        return f"allod: error: {kind} {address:#x}\n"

    def place(
        self, size_class: int, *, offset: int = 0, owner: str = ", owned by domain 1"
    ) -> str:
        """The line that names the block around the address."""
        into = f"{offset} bytes into " if offset else ""
        block = self.facts["block"]
        size = f"size class {size_class}{owner}"
        if size_class > LARGEST_CLASS:
            size = f"{size_class} bytes"
        return f"allod:   {into}block {block:#x} of {size}\n"

    def requested(self, state: str, size: int) -> str:
        """The line that names what the program asked for."""
        return f"allod:   {state}, requested with {size} bytes\n"

    def history(self, state: str) -> str:
        """Who allocated the block and, if it is free, who freed it."""
        freed = self.event("freed", FREE, "freeing_function") if state == "free" else ""
        return self.event("allocated", MALLOC, "allocating_function") + freed

    def event(
        self,
        what: str,
        entry: str,
        *callers: str,
        thread: str = "",
        root: str = "main",
    ) -> str:
        """A call stack: the entry point of the library, then functions of the program, in order.

        Whatever called those follows. On the main thread, the root is among it.
        """
        first = self._frame(0, entry, self.library)
        ours = "".join(
            self._frame(number, name, self.program)
            for number, name in enumerate(callers, start=1)
        )
        some = rf"(?:allod:     #\d+ {HEX}(?: \S+\+{HEX})? \([^\n]+\+{HEX}\)\n)*"
        rest = some
        if not thread:
            in_root = rf"allod:     #\d+ {HEX} {root}\+{HEX} \([^\n]+\+{HEX}\)\n"
            rest = f"{some}{in_root}{some}"
        identity = self.facts[thread or "main_thread"]
        return f"allod:   {what} by thread {identity}:\n{first}{ours}{rest}"

    def _frame(self, number: int, name: str, module: Path) -> str:
        where = rf"\({re.escape(str(module))}\+{HEX}\)"
        return rf"allod:     #{number} {HEX} {name}\+{HEX} {where}\n"


@dataclass(frozen=True)
class Misuse:
    """A case with its parameters, and the text that it must cause."""

    program: str
    case: str
    expected: Callable[[Scene], str]
    parameters: dict[str, int] = field(default_factory=dict)
    deadly: bool = True

    def run(self, runner: Runner, options: Mapping[str, str] | None = None) -> Outcome:
        """Runs the case."""
        return run(runner, self.program, self.case, self.parameters, options)

    def check(
        self,
        runner: Runner,
        options: Mapping[str, str] | None = None,
        *,
        death: bool = True,
    ) -> None:
        """Fails unless the text is all that is reported, and the process dies or goes on."""
        outcome = self.run(runner, options)
        outcome.expect(self.expected(outcome.scene), death=death)

    def __str__(self) -> str:
        numbers = (f"{name}={value}" for name, value in self.parameters.items())
        return "-".join([self.program, self.case, *numbers])


FOREIGN_ADDRESSES: tuple[tuple[str, dict[str, int]], ...] = (
    ("free_of_a_stack_address", {}),
    ("free_of_a_static_address", {}),
    ("free_of_a_code_address", {}),
    ("free_of_a_mapped_address", {}),
    ("free_of_a_number", {"ADDRESS": 0x10}),
    ("free_of_a_number", {"ADDRESS": 0x10000}),
    ("free_of_a_number", {"ADDRESS": 0x7FFF_FFFF_F000}),
    ("free_of_a_number", {"ADDRESS": 0x8000_0000_0000}),
    ("free_of_a_number", {"ADDRESS": 0xDEAD_0000_0000_0000}),
    ("free_of_a_number", {"ADDRESS": 0xFFFF_FFFF_FFFF_FFFF}),
)
"""Cases of misuse.c: memory of others, and numbers that are no address of anything."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    scene: Scene
    status: int
    errors: str
    description: str

    @property
    def survived(self) -> bool:
        """The case went on after its misuse, and the heap was in order."""
        return "survived" in self.scene.facts

    def expect(self, text: str, *, death: bool) -> None:
        """Fails unless all of standard error is the text, and the process died or went on."""
        if not re.fullmatch(text, self.errors):
            pytest.fail(f"expected\n{text}\nbut {self.description}", pytrace=False)
        check_numbering(self.errors)
        wanted = (-signal.SIGABRT, False) if death else (0, True)
        if (self.status, self.survived) != wanted:
            end = "SIGABRT" if death else "survival"
            pytest.fail(f"expected {end}, but {self.description}", pytrace=False)

    def expect_end(self, by: signal.Signals, kind: str, *, offset: int = 0) -> None:
        """Fails unless the process was ended by the signal, after a report about the block."""
        headline = self.scene.headline(kind, self.scene.facts["block"] + offset)
        assert self.status == -by, self.description
        assert self.errors.startswith(headline), self.description


def check_numbering(text: str) -> None:
    """The frames of each call stack are numbered from 0 on."""
    expected = 0
    for line in text.splitlines():
        found = re.match(r"allod:     #(\d+) ", line)
        if found is None:
            expected = 0
        else:
            assert int(found[1]) == expected, text
            expected += 1


def run(
    runner: Runner,
    program: str,
    case: str,
    parameters: Mapping[str, int | str] | Mapping[str, int] | None = None,
    options: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs a case with parameters (TEST_*) and options (ALLOD_*)."""
    variables: dict[str, object] = {
        **{f"TEST_{name}": value for name, value in (parameters or {}).items()},
        **{f"ALLOD_{name}": value for name, value in (options or {}).items()},
    }
    result = runner.run(program, case, **variables)
    if result.returncode in (1, 2):
        pytest.fail(describe(result), pytrace=False)
    facts = {
        name: int(value, 16)
        for name, value in map(str.split, result.stdout.splitlines())
    }
    scene = Scene(runner.library, runner.programs / program, facts)
    return Outcome(scene, result.returncode, result.stderr, describe(result))
