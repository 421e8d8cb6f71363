"""Counts instructions of the same program with a profiler and without it."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.compare import counters, runner
from bench.compare.cases import CASES_BY_NAME
from bench.compare.peers import Peer
from bench.compare.processes import LeftOut, RunError, end_all, output_of
from bench.profilers.profilers import Profiler
from bench.programs.common import WORK

# So many that those who keep every allocation end in minutes, and samplers have a thousand samples.
LOOPS = {
    name: replace(CASES_BY_NAME[name], quick={"ops": ops})
    for name, ops in {"immediate": 1_000_000, "replace": 1_000_000}.items()
}
PYTHON = "python"
PROGRAMS = {
    **{name: case.about for name, case in LOOPS.items()},
    PYTHON: "Python writes and reads JSON, every object from malloc",
}
_SECONDS = 900.0


@dataclass
class Costs:
    """Instructions with the profiler over those without, by profiler and program."""

    ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def _count_python(peer: Peer, starter: Sequence[str]) -> float:
    """Of the whole process: start, imports and all are the same on both sides but for the profiler."""
    script = [*(starter or (sys.executable,)), str(WORK / "rounds.py"), "json", "1"]
    with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
        out = Path(folder) / "out"
        command = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
        variables = runner.environment(peer) | {
            "PYTHONMALLOC": "malloc",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        output_of([*command, *script], variables, _SECONDS)
        return float(counters.parse_callgrind(out.read_text()))


def count(programs: Path, program: str, peer: Peer, starter: Sequence[str]) -> float:
    """Instructions, in any unit that is the same for both sides."""
    if program == PYTHON:
        return _count_python(peer, starter)
    loop = LOOPS[program]
    found = counters.callgrind_count(programs, loop, peer, _SECONDS)
    return found.events["instructions"]


def _jobs(found: Sequence[Profiler]) -> Iterator[tuple[str, Profiler]]:
    for program in PROGRAMS:
        for profiler in found:
            if program == PYTHON or not profiler.starter:
                yield program, profiler


def measure(
    programs: Path, found: Sequence[Profiler], say: Callable[[str], None]
) -> Costs:
    """All ratios. Counts do not depend on what else runs, so as many run as there are processors."""
    costs = Costs()

    def one(job: tuple[str, Profiler]) -> tuple[float, float] | str:
        program, profiler = job
        try:
            on = count(programs, program, profiler.on, profiler.starter)
            return on, count(programs, program, profiler.off, ())
        except (RunError, LeftOut) as error:
            return str(error)

    jobs = list(_jobs(found))
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        for (program, profiler), outcome in zip(jobs, pool.map(one, jobs), strict=True):
            if isinstance(outcome, str):
                costs.failures.append(f"{profiler.name}, {program}: {outcome}")
                say(costs.failures[-1])
                continue
            on, off = outcome
            costs.ratios.setdefault(profiler.name, {})[program] = on / off
            say(f"{profiler.name}, {program}: {on / off:.4f}")
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()
        raise
    finally:
        pool.shutdown()
    return costs
