"""Runs one workload under one allocator, and the interleaved rounds of a case."""

import json
import os
import signal
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compare import stats
from bench.compare.cases import Case
from bench.compare.peers import Peer

# A run whose single thread was kept from the processor this much longer than it ran.
DISTURBED = 1.05
# The fewest measured rounds for which a median has a 95 % interval, and one to spare.
FEWEST_ROUNDS = 7


class RunError(Exception):
    """A workload did not finish as it should under an allocator."""


@dataclass(frozen=True)
class Run:
    """What one process measured."""

    peer: str
    round: int
    seconds: float
    user_seconds: float
    system_seconds: float
    nanoseconds: float
    ops: int
    checksum: str
    peak_rss_kib: int
    final_rss_kib: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    disturbed: bool
    compiler: str
    params: dict[str, int]
    points: dict[str, float]


@dataclass
class CaseResult:
    """All measured runs of a case, by peer in the order of rounds; failures by peer."""

    case: Case
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def times(self, peer: str) -> list[float]:
        return [run.nanoseconds for run in self.runs[peer]]

    def peaks(self, peer: str) -> list[float]:
        return [float(run.peak_rss_kib) for run in self.runs[peer]]

    def points(self, peer: str) -> dict[str, float]:
        """The median over the runs for each point."""
        runs = self.runs[peer]
        return {
            name: statistics.median(run.points[name] for run in runs)
            for name in runs[0].points
        }

    def is_noisy(self, peer: str, precision: float) -> bool:
        """The median is not known as exactly as asked, or many runs were disturbed."""
        runs = self.runs[peer]
        disturbed = sum(run.disturbed for run in runs)
        width = stats.summarise(self.times(peer)).half_width()
        return width > precision or disturbed * 3 > len(runs)


def environment(peer: Peer) -> dict[str, str]:
    """All the variables that a workload sees: no option of an allocator among them."""
    variables = {"PATH": os.defpath}
    if peer.library is not None:
        variables["LD_PRELOAD"] = str(peer.library)
        variables["BENCH_EXPECT"] = str(peer.library)
    return variables


def run_once(
    programs: Path, case: Case, peer: Peer, *, quick: bool, number: int, timeout: float
) -> Run:
    """Runs a workload once; RunError says what went wrong."""
    command = [str(programs / case.program), *case.arguments(quick)]
    try:
        done = subprocess.run(
            command,
            env=environment(peer),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"not finished after {timeout:g} s") from error
    if done.returncode < 0:
        raise RunError(
            f"killed by {signal.Signals(-done.returncode).name} {done.stderr.strip()}"
        )
    if done.returncode > 0:
        raise RunError(done.stderr.strip() or f"exit status {done.returncode}")
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise RunError(f"unreadable output: {done.stdout[:200]!r}") from error
    _verify_allocator(report, peer)
    return _to_run(report, case, peer, number)


def _verify_allocator(report: dict[str, Any], peer: Peer) -> None:
    source = Path(report["malloc_from"] or "unknown")
    if peer.library is None:
        if not source.name.startswith("libc.so"):
            raise RunError(f"malloc comes from {source}, not from the C library")
    elif not report["expected_library"]:
        raise RunError(f"{peer.library} was not loaded")
    elif source.resolve() != peer.library:
        raise RunError(f"malloc comes from {source}, not from {peer.library}")


def _to_run(report: dict[str, Any], case: Case, peer: Peer, number: int) -> Run:
    points = {point["name"]: point["nanoseconds"] for point in report.get("points", [])}
    seconds = report["seconds"]
    processor = report["user_seconds"] + report["system_seconds"]
    # In a sweep every size counts alike, however long its memory takes to touch.
    nanoseconds = (
        statistics.geometric_mean(points.values())
        if case.program == "sweep"
        else seconds / report["ops"] * 1e9
    )
    return Run(
        peer=peer.name,
        round=number,
        seconds=seconds,
        user_seconds=report["user_seconds"],
        system_seconds=report["system_seconds"],
        nanoseconds=nanoseconds,
        ops=report["ops"],
        checksum=report["checksum"],
        peak_rss_kib=report["peak_rss_kib"],
        final_rss_kib=report["final_rss_kib"],
        minor_faults=report["minor_faults"],
        major_faults=report["major_faults"],
        voluntary_switches=report["voluntary_switches"],
        involuntary_switches=report["involuntary_switches"],
        disturbed=case.threads == 1 and seconds > DISTURBED * processor,
        compiler=report["compiler"],
        params=report["params"],
        points=points,
    )


@dataclass(frozen=True)
class Plan:
    """How often and how exactly each case is measured."""

    quick: bool
    repeats: int
    precision: float
    timeout: float = 300.0

    @property
    def rounds(self) -> int:
        """All rounds at most, with the first, which is discarded."""
        return self.repeats + 1


def measure(
    programs: Path,
    result: CaseResult,
    peers: Sequence[Peer],
    plan: Plan,
    progress: Callable[[int], None],
) -> None:
    """Fills ``result`` with interleaved rounds; it stays valid when interrupted.

    Each round runs every peer once and starts with another one. The first round
    warms the machine and is discarded. ``progress`` is told how many runs are done,
    or need not be made any more.
    """
    alive = list(peers)
    checksum: str | None = None
    for number in range(plan.rounds):
        for peer in _rotated(alive, number):
            try:
                run = run_once(
                    programs,
                    result.case,
                    peer,
                    quick=plan.quick,
                    number=number,
                    timeout=plan.timeout,
                )
                checksum = checksum or run.checksum
                if run.checksum != checksum:
                    raise RunError(
                        f"checksum {run.checksum}, but the others have {checksum}"
                    )
            except RunError as error:
                result.failures[peer.name] = str(error)
                result.runs.pop(peer.name, None)
                alive.remove(peer)
                progress(plan.rounds - number)
                continue
            if number > 0:
                result.runs.setdefault(peer.name, []).append(run)
            progress(1)
        if number >= FEWEST_ROUNDS and _is_exact(result, plan.precision):
            progress(len(alive) * (plan.rounds - number - 1))
            break


def _rotated(peers: Sequence[Peer], by: int) -> list[Peer]:
    start = by % len(peers) if peers else 0
    return [*peers[start:], *peers[:start]]


def _is_exact(result: CaseResult, precision: float) -> bool:
    return all(
        stats.summarise(result.times(peer)).half_width() <= precision
        for peer in result.runs
    )
