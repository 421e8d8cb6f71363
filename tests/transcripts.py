"""Console blocks of documents: run their commands, and compare what they print.

Words must be the same; numbers and addresses may differ, `...` stands for anything, and a line of
`...` for any lines."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# What may differ between two runs, and how it may look.
VARYING = [
    (re.compile(looks), allowed)
    for looks, allowed in (
        (r"\.\.\.", r".*"),
        (r"\s+", r"\s+"),
        (r"0x[0-9a-f]+", r"0x[0-9a-f]+"),
        (r"\d+(\.\d+)? ([KMGT]i)?B\b", r"\d+(\.\d+)? ([KMGT]i)?B"),
        (r"\d+(\.\d+)*", r"\d+(\.\d+)*"),
    )
]
# What must not: a word with the numbers in it, or one character.
WORD = re.compile(r"[A-Za-z_]\w*|.")
END_OF_OUTPUT = "== end of output =="
# What an interactive shell says of a program that was ended by a signal, and what a script says.
SIGNALLED = re.compile(r"^.*: line \d+: +\d+ (Aborted|Killed)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of an example, and what it should print."""

    command: str
    output: list[str]


def steps_of(body: str) -> list[Step]:
    """The commands of a console block."""
    steps: list[Step] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], []))
        else:
            steps[-1].output.append(line)
    return steps


def pattern_of(lines: list[str]) -> re.Pattern[str]:
    """What output like these lines looks like, whatever its numbers are."""
    return re.compile("".join(map(_pattern_of_line, lines)))


def _pattern_of_line(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    pieces = []
    rest = line.strip()
    while rest:
        for varying, pattern in VARYING:
            if found := varying.match(rest):
                pieces.append(pattern)
                rest = rest[found.end() :]
                break
        else:
            word = WORD.match(rest)
            assert word is not None
            pieces.append(re.escape(word[0]))
            rest = rest[word.end() :]
    return rf"\s*{''.join(pieces)}\s*?\n"


def run_steps(
    folder: Path, steps: Sequence[Step], environment: Mapping[str, str]
) -> list[str]:
    """Runs commands in one shell and returns what each of them prints."""
    script = [
        f"{step.command}\nstatus=$?\necho '{END_OF_OUTPUT}'\n(exit $status)"
        for step in steps
    ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outputs = SIGNALLED.sub(r"\1", done.stdout).split(f"{END_OF_OUTPUT}\n")
    assert len(outputs) == len(steps) + 1, done.stdout
    return outputs[:-1]


def assert_prints(step: Step, output: str) -> None:
    """The command has printed what the document says."""
    wanted = "\n".join(step.output)
    assert pattern_of(step.output).fullmatch(output), (
        f"$ {step.command}\nprinted\n{output}\nbut the document says\n{wanted}"
    )
