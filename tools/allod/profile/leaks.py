"""Runs a program and reports the blocks that nothing leads to when it ends."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allod import supplies
from allod.child import run_to_end
from allod.console import Failure, say
from allod.files import deliver
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


def find_leaks(
    program: Sequence[str],
    suppressions: Sequence[Path],
    *,
    as_json: bool = False,
    output: Path | None = None,
) -> int:
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
        reports = []
        lost = [text for text in found if text.stat().st_size == 0]
        for text in found:
            if text in lost:
                continue
            reports.append(_read(text, known, text == own))
    leaking = sum(report.blocks for report in reports)
    _tell(reports, as_json, output)
    for line in known.used():
        say(line)
    if lost:
        say(f"error: cannot write the leaks to {folder}; they are above")
    if status == 0:
        return LEAKING if leaking else FAILED if lost else 0
    return status


@dataclass(frozen=True)
class Report:
    """What leaks in one process, most bytes first."""

    process: int
    is_own: bool
    stacks: Sequence[Stack]

    @property
    def blocks(self) -> int:
        return sum(stack.total.blocks for stack in self.stacks)

    @property
    def size(self) -> int:
        return sum(stack.total.requested for stack in self.stacks)

    def lines(self) -> Iterator[str]:
        """As people read it."""
        if not self.stacks:
            return
        title = "" if self.is_own else f"process {self.process}: "
        blocks, size = counted(self.blocks, "block"), counted(self.size, "byte")
        yield f"{title}{blocks} of {size} leak"
        for stack in self.stacks:
            yield f"  {' and '.join(_parts(stack))}, allocated at"
            for number, frame in enumerate(stack.names()):
                place = (
                    f" {frame.file}:{frame.line}"
                    if frame.file
                    else f" ({frame.module})"
                )
                yield f"    #{number} {frame.function}{place}"

    def told(self) -> dict[str, Any]:
        """As programs read it."""
        return {
            "process": self.process,
            "blocks": self.blocks,
            "bytes": self.size,
            "stacks": [
                {
                    "blocks": stack.total.blocks,
                    "bytes": stack.total.requested,
                    # The others are reachable from other leaks.
                    "direct_blocks": stack.live.blocks,
                    "direct_bytes": stack.live.requested,
                    "frames": [
                        {
                            "function": frame.function,
                            "file": frame.file,
                            "line": frame.line,
                            "module": frame.module,
                        }
                        for frame in stack.names()
                    ],
                }
                for stack in self.stacks
            ],
        }


def _parts(stack: Stack) -> Iterator[str]:
    direct = stack.live
    rest = stack.total - direct
    if direct.blocks:
        size, blocks = (
            counted(direct.requested, "byte"),
            counted(direct.blocks, "block"),
        )
        yield f"{size} in {blocks}"
    if rest.blocks:
        size, blocks = counted(rest.requested, "byte"), counted(rest.blocks, "block")
        yield f"{size} in {blocks} reachable only from other leaks"


def _read(path: Path, known: Suppressions, is_own: bool) -> Report:
    from allod.profile import model, symbols

    profile = model.read_text(path)
    symbols.add_names(profile)
    stacks = [stack for stack in profile.stacks if not known.cover(stack)]
    stacks.sort(key=lambda stack: (-stack.live.requested, -stack.total.requested))
    return Report(int(path.suffix.lstrip(".")), is_own, stacks)


def _tell(reports: Sequence[Report], as_json: bool, output: Path | None) -> None:
    """On standard error as people read it, unless a file or JSON is wanted."""
    if as_json:
        told = [report.told() for report in reports]
        return deliver(json.dumps(told, indent=1) + "\n", output)
    lines = [line for report in reports for line in report.lines()]
    if output is not None:
        return deliver("".join(f"{line}\n" for line in lines), output)
    for line in lines:
        say(line)
    return None
