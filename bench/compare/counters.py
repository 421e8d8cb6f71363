"""Counts instructions: with hardware counters by perf, without them by callgrind.

Callgrind counts what the measured part of a workload executes, with the parameters of
a quick run, as it makes programs about fifty times slower. Perf counts the process
from its start to its end, and cycles and misses of caches and of the TLB too.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.compare import packages, runner
from bench.compare.cases import Case
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut, RunError, output_of, side_by_side
from bench.compare.run import Run

EVENTS = ("instructions", "cycles", "cache-misses", "dTLB-load-misses")
_SECONDS = 180.0
# Counts the measured part. Callgrind's own limit is below what some workloads start.
CALLGRIND = (
    *("valgrind", "--quiet", "--tool=callgrind", "--max-threads=2000"),
    # Threads that wait for each other spin for long when they only take turns.
    *("--fair-sched=try", "--zero-before=bench::Workload::start()"),
    "--dump-before=bench::Workload::stop()",
)


@dataclass(frozen=True)
class Count:
    """What one process executed; ``events`` are for each operation."""

    tool: str
    events: dict[str, float]


def tool(say: Callable[[str], None], *, may_install: bool) -> str | None:
    """``perf`` where the machine has counters, or ``callgrind``, or nothing."""
    if _has_counters():
        return "perf"
    if shutil.which("valgrind") is None and may_install:
        packages.try_to_install(["valgrind"], say)
    return "callgrind" if shutil.which("valgrind") is not None else None


def _has_counters() -> bool:
    if shutil.which("perf") is None:
        return False
    command = ["perf", "stat", "-x", ",", "-e", "instructions:u", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and bool(parse_perf(done.stderr))


def count_all(
    programs: Path,
    jobs: Iterable[tuple[Case, Peer]],
    with_tool: str,
    *,
    quick: bool,
) -> Iterator[tuple[Case, Peer, Count | str]]:
    """The count, or why there is none, for each job, as they end.

    Callgrind's counts do not depend on what else runs, so it runs on all processors.
    """
    callgrind = with_tool == "callgrind"

    def one(job: tuple[Case, Peer]) -> tuple[Case, Peer, Count | str]:
        case, peer = job
        try:
            if callgrind:
                return case, peer, callgrind_count(programs, case, peer)
            return case, peer, _perf_count(programs, case, peer, quick=quick)
        except (RunError, LeftOut) as error:
            return case, peer, str(error)

    yield from side_by_side(one, jobs, None if callgrind else 1)


def callgrind_count(programs: Path, case: Case, peer: Peer) -> Count:
    """Instructions for each operation of the measured part."""
    with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
        out = Path(folder) / "out"
        run = _traced(
            [*CALLGRIND, f"--callgrind-out-file={out}"],
            *(programs, case, peer),
            quick=True,
        )
        try:
            # The part that ended with the measured one; the next is what came after.
            text = Path(f"{out}.1").read_text()
        except FileNotFoundError as error:
            raise RunError("callgrind did not see the measured part") from error
    instructions = parse_callgrind(text)
    return Count("callgrind", {"instructions": instructions / run.ops})


def _perf_count(programs: Path, case: Case, peer: Peer, *, quick: bool) -> Count:
    with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
        out = Path(folder) / "out"
        events = ",".join(EVENTS)
        run = _traced(
            ["perf", "stat", "-x", ",", "-o", str(out), "-e", events, "--"],
            *(programs, case, peer),
            quick=quick,
        )
        counted = parse_perf(out.read_text())
    return Count("perf", {name: value / run.ops for name, value in counted.items()})


def _traced(
    tracer: list[str], programs: Path, case: Case, peer: Peer, *, quick: bool
) -> Run:
    command = [*tracer, *runner.command(programs, case, quick=quick)]
    text = output_of(command, runner.environment(peer), _SECONDS)
    return runner.read(text, case, peer, number=0)


def parse_perf(text: str) -> dict[str, float]:
    """The events that perf could count, from its comma-separated lines."""
    found = {}
    for line in text.splitlines():
        value, _, rest = line.partition(",")
        name = rest.partition(",")[2].partition(",")[0].partition(":")[0]
        if name in EVENTS and value.replace(".", "").isdigit():
            found[name] = float(value)
    return found


def parse_callgrind(text: str) -> int:
    """The total of a part."""
    for line in text.splitlines():
        if line.startswith("totals:"):
            return int(line.split()[1])
    raise RunError("callgrind's output has no total")
