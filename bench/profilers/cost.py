"""Counts instructions of the same program with a profiler and without it."""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.compare import counters, runner
from bench.compare.cases import CASES_BY_NAME
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut, RunError, output_of, side_by_side
from bench.profilers.profilers import EVERY, SAMPLES, Profiler
from bench.programs.common import WORK

LOOPS = {
    "small": replace(
        CASES_BY_NAME["immediate"],
        about="one thread, malloc and free at once, 16 B to 215 B",
        quick={"min": 16, "max": 215},
    ),
    "immediate": CASES_BY_NAME["immediate"],
    "replace": CASES_BY_NAME["replace"],
}
# So many that there are some hundred samples; to keep every allocation takes long, and costs the
# same each time.
OPERATIONS = {SAMPLES: 2_000_000, EVERY: 50_000}
PYTHON = "python"
PROGRAMS = {
    **{name: case.about for name, case in LOOPS.items()},
    PYTHON: "Python writes and reads JSON, every object from malloc",
}
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
_SECONDS = 1800.0


@dataclass
class Costs:
    """Instructions with the profiler over those without, by profiler and program."""

    ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def _loaded(command: Sequence[str], variables: dict[str, str]) -> list[str]:
    """The command, with what is preloaded handed to the loader.

    Valgrind itself begins as a shell script, and heaptrack takes itself out of the environment
    of the first program that it sees.
    """
    preloaded = variables.pop("LD_PRELOAD", None)
    if preloaded is None:
        return list(command)
    [loader] = [each for each in map(Path, LOADERS) if each.exists()][:1]
    return [str(loader), "--preload", preloaded, *command]


def _count_python(peer: Peer, starter: Sequence[str]) -> float:
    """Of the whole process: what Python does at its start is the same on both sides."""
    variables = runner.environment(peer) | {
        "PYTHONMALLOC": "malloc",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    script = [*(starter or (sys.executable,)), str(WORK / "rounds.py"), "json", "1"]
    command = _loaded(script, variables)
    with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
        out = Path(folder) / "out"
        tool = ["valgrind", "--quiet", "--tool=callgrind"]
        output_of([*tool, f"--callgrind-out-file={out}", *command], variables, _SECONDS)
        return float(counters.parse_callgrind(out.read_text()))


def _count_loop(programs: Path, program: str, peer: Peer, operations: int) -> float:
    loop = LOOPS[program]
    loop = replace(loop, quick={**loop.quick, "ops": operations})
    variables = runner.environment(peer)
    command = _loaded(runner.command(programs, loop, quick=True), variables)
    with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
        out = Path(folder) / "out"
        tool = [*counters.CALLGRIND, f"--callgrind-out-file={out}"]
        text = output_of([*tool, *command], variables, _SECONDS)
        run = runner.read(text, loop, peer, number=0)
        measured = Path(f"{out}.1").read_text()
    return counters.parse_callgrind(measured) / run.ops


def _jobs(found: Sequence[Profiler]) -> Iterator[tuple[str, Profiler]]:
    for program in PROGRAMS:
        for profiler in found:
            if program == PYTHON or not profiler.starter:
                yield program, profiler


def measure(
    programs: Path, found: Sequence[Profiler], say: Callable[[str], None]
) -> Costs:
    """All ratios. What else runs does not change counts: one for each processor at a time."""
    costs = Costs()

    def one(job: tuple[str, Profiler]) -> float | str:
        program, profiler = job
        try:
            if program == PYTHON:
                on = _count_python(profiler.on, profiler.starter)
                return on / _count_python(profiler.off, ())
            operations = OPERATIONS[profiler.keeps]
            on = _count_loop(programs, program, profiler.on, operations)
            return on / _count_loop(programs, program, profiler.off, operations)
        except (RunError, LeftOut) as error:
            return str(error)

    jobs = list(_jobs(found))
    for (program, profiler), outcome in zip(jobs, side_by_side(one, jobs), strict=True):
        if isinstance(outcome, str):
            costs.failures.append(f"{profiler.name}, {program}: {outcome}")
            say(costs.failures[-1])
            continue
        costs.ratios.setdefault(profiler.name, {})[program] = outcome
        say(f"{profiler.name}, {program}: {outcome:.4f}")
    return costs
