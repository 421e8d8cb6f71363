"""The way home of blocks that other threads free, checked in every interleaving by spin.

Small worlds are searched to the end. That the model can fail is shown by breaking the protocol in
each of the ways that remote.pml knows.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("remote.pml")
MOST_SECONDS = 300
MOST_MEGABYTES = 4096
RESULT = re.compile(r"errors: (\d+)")
STATES = re.compile(r"^\s*([\d.e+]+) states, stored", re.MULTILINE)

WORLDS = {
    "one_descriptor_used_again_and_again": {"STEPS": 3},
    "tidying_up_meanwhile": {"STEPS": 2, "TIDY": 1},
    "two_slabs_of_one_owner": {"SLABS": 2, "THREADS": 1, "STEPS": 3},
    "two_slabs_of_two_owners": {"SLABS": 2, "STEPS": 2, "FREERS": 1},
    "three_owners": {"THREADS": 3, "STEPS": 1, "FREERS": 1},
}
BREACHES = (
    "BROKEN_ORDER",
    "NO_RECHECK",
    "CLOSE_FIRST",
    "COLLECT_FIRST",
    "DROP_AT_CLOSE",
    "NO_FORWARD",
    "RESET_ON_REUSE",
)


@dataclass(frozen=True)
class Verdict:
    """What the search found."""

    errors: int
    states: float
    output: str


Search = Callable[[Mapping[str, int]], Verdict]


@pytest.fixture
def search(tmp_path: Path, debian_packages: Callable[..., None]) -> Search:
    """Searches all states of the model with the given names defined."""
    debian_packages("spin", "gcc", "libc6-dev")

    def run(names: Mapping[str, int]) -> Verdict:
        defined = [f"-D{name}={value}" for name, value in names.items()]
        _run(["spin", "-a", *defined, str(MODEL)], tmp_path)
        limits = ["-DSAFETY", "-DNOFAIR", "-DCOLLAPSE", f"-DMEMLIM={MOST_MEGABYTES}"]
        # With -O2 it is compiled for longer than the search then saves.
        _run(["gcc", "-O1", "-w", *limits, "-o", "pan", "pan.c"], tmp_path)
        output = _run(["./pan", "-m100000"], tmp_path)
        result, states = RESULT.search(output), STATES.search(output)
        assert result and states, output
        return Verdict(int(result[1]), float(states[1]), output)

    return run


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"$ {' '.join(command)}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("world", WORLDS)
def test_every_freed_block_comes_home_in_every_interleaving(
    world: str, search: Search
) -> None:
    found = search(WORLDS[world])
    assert found.errors == 0, found.output
    assert "Search not completed" not in found.output, found.output
    assert "max search depth too small" not in found.output, found.output
    assert found.states > 1000, "the world must be worth a search"


@pytest.mark.parametrize("breach", BREACHES)
def test_a_broken_protocol_is_noticed(breach: str, search: Search) -> None:
    found = search({"STEPS": 3, breach: 1})
    assert found.errors > 0, found.output
    assert "assertion violated" in found.output, found.output
