"""Runs a program and reports the blocks that nothing leads to when it ends."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allod import supplies
from allod.child import run_to_end
from allod.console import Failure, say
from allod.preload import preloaded
from allod.run import ends_for, find_program, library_for
from allod.units import counted

if TYPE_CHECKING:
    from allod.profile.model import Stack

# As LeakSanitizer ends a program.
LEAKING = 23
FAILED = 1


class Suppressions:
    """Patterns in LeakSanitizer's format: `leak:` and a part of the name of a function, a source
    file or a module; `*` stands for anything, `^` and `$` for the ends."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._patterns: list[tuple[str, re.Pattern[str]]] = []
        self._used: dict[str, int] = {}
        for path in files:
            try:
                lines = path.read_text().splitlines()
            except OSError as error:
                raise Failure(f"{path} cannot be read: {error.strerror}") from None
            for number, line in enumerate(lines, 1):
                self._add(line.strip(), f"{path}:{number}")

    def _add(self, line: str, place: str) -> None:
        if not line or line.startswith("#"):
            return
        kind, colon, pattern = line.partition(":")
        if kind != "leak" or not colon or not pattern:
            raise Failure(f"{place}: '{line}' is not leak:PATTERN")
        body = pattern.removeprefix("^").removesuffix("$")
        text = ".*".join(re.escape(part) for part in body.split("*"))
        text = ("^" if pattern.startswith("^") else "") + text
        text += "$" if pattern.endswith("$") else ""
        self._patterns.append((line, re.compile(text)))

    def cover(self, stack: Stack) -> bool:
        """Whether a pattern is found in one of the frames."""
        for line, pattern in self._patterns:
            for frame in stack.names():
                if any(map(pattern.search, (frame.function, frame.file, frame.module))):
                    self._used[line] = self._used.get(line, 0) + stack.total.blocks
                    return True
        return False

    def used(self) -> Iterator[str]:
        """What has been suppressed, a line for each pattern."""
        for line, blocks in self._used.items():
            yield f"{counted(blocks, 'block')} suppressed by {line}"


def find_leaks(program: Sequence[str], suppressions: Sequence[Path]) -> int:
    """Runs the program to its end; returns its status or, if that is 0, 23 where something leaks
    and 1 where the library could not write what leaks."""
    supplies.current().python_packages("profiles")
    known = Suppressions(suppressions)
    path = find_program(program[0])
    library = library_for(path, "liballod.so")
    with tempfile.TemporaryDirectory(prefix="allod-leaks-") as folder:
        environment = {
            **os.environ,
            "ALLOD_LEAKS": "1",
            "ALLOD_LEAKS_FILE": str(Path(folder) / "leaks.%p"),
            "LD_PRELOAD": preloaded(ends_for(path), library),
        }
        process, status = run_to_end(path, program, environment)
        own = Path(folder) / f"leaks.{process}"
        found = sorted(
            Path(folder).iterdir(), key=lambda each: (each != own, each.name)
        )
        if own not in found:
            say(
                "no search for leaks: the program ended without running its exit handlers"
            )
        leaking = 0
        lost = [text for text in found if text.stat().st_size == 0]
        for text in found:
            if text in lost:
                continue
            title = "" if text == own else f"process {text.suffix.lstrip('.')}: "
            leaking += _report(text, known, title)
    for line in known.used():
        say(line)
    if lost:
        say(f"error: cannot write the leaks to {folder}; they are above")
    if status == 0:
        return LEAKING if leaking else FAILED if lost else 0
    return status


def _report(path: Path, known: Suppressions, title: str) -> int:
    """Prints what leaks; returns how many blocks."""
    from allod.profile import model, symbols

    profile = model.read_text(path)
    symbols.add_names(profile)
    stacks = [stack for stack in profile.stacks if not known.cover(stack)]
    stacks.sort(key=lambda stack: (-stack.live.requested, -stack.total.requested))
    blocks = sum(stack.total.blocks for stack in stacks)
    size = sum(stack.total.requested for stack in stacks)
    if not stacks:
        return 0
    say(f"{title}{counted(blocks, 'block')} of {counted(size, 'byte')} leak")
    for stack in stacks:
        direct = stack.live
        rest = stack.total - direct
        parts = []
        if direct.blocks:
            parts.append(
                f"{counted(direct.requested, 'byte')} in {counted(direct.blocks, 'block')}"
            )
        if rest.blocks:
            parts.append(
                f"{counted(rest.requested, 'byte')} in {counted(rest.blocks, 'block')}"
                " reachable only from other leaks"
            )
        say(f"  {' and '.join(parts)}, allocated at")
        for number, frame in enumerate(stack.names()):
            place = (
                f" {frame.file}:{frame.line}" if frame.file else f" ({frame.module})"
            )
            say(f"    #{number} {frame.function}{place}")
    return blocks
