"""Counts the system calls of each size of the sweep, with strace."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.compare import packages
from bench.compare.peers import Peer
from bench.compare.processes import RunError
from bench.compare.runner import environment

_MARKER = re.compile(r'write\(-1, "sweep (begin|end) size=(\d+) pairs=(\d+)"')
_PARAMETERS = ("--markers", "1", "--pairs", "100", "--batches", "3")


@dataclass(frozen=True)
class SystemCalls:
    """System calls for each pair of malloc and free, by size."""

    peer: str
    per_pair: dict[int, float]

    @property
    def worst(self) -> tuple[int, float]:
        """The size with most calls for a pair, and how many."""
        size = max(self.per_pair, key=self.per_pair.__getitem__)
        return size, self.per_pair[size]


def prepare(say: Callable[[str], None], may_install: bool) -> bool:
    """Whether strace is there, or could be installed."""
    if shutil.which("strace") is None and may_install:
        packages.try_to_install(["strace"], say)
    return shutil.which("strace") is not None


def count(programs: Path, peer: Peer) -> SystemCalls:
    """Traces one sweep; the library is preloaded into the workload, not into strace."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        variables = [
            part
            for name, value in environment(peer).items()
            for part in ("-E", f"{name}={value}")
        ]
        command = [
            "strace",
            "-f",
            "-qq",
            "-s",
            "96",
            "-e",
            "signal=none",
            "-o",
            str(log),
        ]
        program = [str(programs / "sweep"), *_PARAMETERS]
        done = subprocess.run(
            [*command, *variables, *program],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RunError(f"strace: {done.stderr.strip() or done.returncode}")
        return SystemCalls(peer.name, parse(log.read_text()))


def parse(log: str) -> dict[int, float]:
    """The calls between the marks of each size, for each pair."""
    per_pair: dict[int, float] = {}
    calls = 0
    for line in log.splitlines():
        marker = _MARKER.search(line)
        if marker is None:
            # A call that another thread interrupted stands on two lines.
            calls += "resumed>" not in line
        elif marker[1] == "end":
            per_pair[int(marker[2])] = calls / int(marker[3])
        calls = 0 if marker is not None else calls
    if not per_pair:
        raise RunError("strace recorded no marks of the sweep")
    return per_pair
