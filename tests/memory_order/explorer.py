"""Runs the explorer, and knows by which names the code under test has its atomic accesses."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

MOST_SECONDS = 120
HEADERS = "/include/allod/"
ADDRESS = re.compile(r"0x[0-9a-f]+$")
ARGUMENTS = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, order=True)
class Ordering:
    """An atomic access of the library's headers: where, what, and with which order."""

    file: str
    function: str
    operation: str
    order: str
    number: int = 1  # among those that are alike, from the top

    def __str__(self) -> str:
        number = f"-{self.number}" if self.number > 1 else ""
        return f"{self.function}-{self.operation}{number}-{self.order}"


@dataclass
class Result:
    """What a search came to."""

    status: int
    output: str
    complete: bool = False
    executions: int = 0
    failure: str = ""
    seed: str = ""
    outcomes: set[str] = field(default_factory=set)
    sites: dict[str, tuple[str, str]] = field(default_factory=dict)


class Explorer:
    """The program of all scenarios."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def scenarios(self) -> list[str]:
        """Their names."""
        lines = self._call("list").stdout.splitlines()
        return [line.split(":", 1)[0] for line in lines]

    def run(self, scenario: str, *options: str) -> Result:
        """Searches a scenario."""
        done = self._call("run", scenario, *options)
        result = Result(done.returncode, done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            word, _, value = line.partition(" ")
            if word == "complete":
                result.complete = value == "1"
            elif word == "executions":
                result.executions = int(value)
            elif word == "failure":
                result.failure = value
            elif word == "seed":
                result.seed = value
            elif word == "outcome":
                result.outcomes.add(value)
            elif word == "site":
                site, operation, order = value.split()
                result.sites[site] = (operation, order)
        return result

    def name_sites(
        self, sites: dict[str, tuple[str, str]]
    ) -> dict[Ordering, list[str]]:
        """The orderings that the headers ask for, and the instructions of each."""
        places: dict[tuple[str, str, str, str], dict[int, list[str]]] = defaultdict(
            dict
        )
        for site, (file, line, function) in self._find(list(sites)).items():
            operation, order = sites[site]
            lines = places[file, function, operation, order]
            lines.setdefault(line, []).append(site)
        return {
            Ordering(*place, number): lines[line]
            for place, lines in places.items()
            for number, line in enumerate(sorted(lines), 1)
        }

    def _find(self, sites: list[str]) -> dict[str, tuple[str, int, str]]:
        """For sites in the headers of the library: file, line and function."""
        command = ["addr2line", "-e", str(self.program), "-i", "-f", "-C", "-a", *sites]
        lines = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=MOST_SECONDS
        ).stdout.splitlines()
        starts = [i for i, line in enumerate(lines) if ADDRESS.match(line)]
        found = {}
        for site, start, end in zip(
            sites, starts, [*starts[1:], len(lines)], strict=True
        ):
            # From the innermost function outwards; above are those of the C++ library.
            for function, place in zip(
                lines[start + 1 : end : 2], lines[start + 2 : end : 2], strict=True
            ):
                if HEADERS not in place:
                    if "/c++/" in place:
                        continue
                    break
                file, _, line = place.split(" ")[0].rpartition(":")
                file = file.rpartition(HEADERS)[2]
                found[site] = (file, int(line), _bare_name(function))
                break
        return found

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
        )


def _bare_name(function: str) -> str:
    """Without namespaces, classes and arguments."""
    shorter = ARGUMENTS.sub("", function)
    while shorter != function:
        function, shorter = shorter, ARGUMENTS.sub("", shorter)
    return function.split("(", 1)[0].rpartition("::")[2]
