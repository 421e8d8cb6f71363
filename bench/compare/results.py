"""The results as a whole: ratios against the best peer, JSON and CSV."""

import csv
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.compare import stats
from bench.compare.machine import Machine
from bench.compare.peers import SUBJECT, Peer
from bench.compare.runner import CaseResult, Run
from bench.compare.stats import Summary
from bench.compare.syscalls import SystemCalls

SCHEMA = 1


@dataclass
class Results:
    """Everything that a comparison found out."""

    machine: Machine
    started: str
    quick: bool
    precision: float
    peers: list[Peer]
    cases: list[CaseResult] = field(default_factory=list)
    system_calls: list[SystemCalls] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        return any(result.failures for result in self.cases)

    @property
    def compiler(self) -> str:
        runs = (runs[0] for result in self.cases for runs in result.runs.values())
        return next((run.compiler for run in runs), "unknown")


@dataclass(frozen=True)
class Ratios:
    """Each allocator against the best of the peers; Allod is never the measure."""

    best: str
    of: dict[str, Summary]


def _ratios(result: CaseResult, values: Callable[[str], list[float]]) -> Ratios | None:
    candidates = [name for name in result.runs if name != SUBJECT] or list(result.runs)
    if not candidates:
        return None
    best = min(candidates, key=lambda name: stats.summarise(values(name)).median)
    return Ratios(
        best,
        {name: stats.paired_ratio(values(name), values(best)) for name in result.runs},
    )


def time_ratios(result: CaseResult) -> Ratios | None:
    return _ratios(result, result.times)


def memory_ratios(result: CaseResult) -> Ratios | None:
    return _ratios(result, result.peaks)


def _case_to_json(result: CaseResult, precision: float) -> dict[str, Any]:
    times, memory = time_ratios(result), memory_ratios(result)
    return {
        "name": result.case.name,
        "program": result.case.program,
        "about": result.case.about,
        "params": next((runs[0].params for runs in result.runs.values()), {}),
        "failures": result.failures,
        "summary": {
            name: {
                "nanoseconds": asdict(stats.summarise(result.times(name))),
                "peak_rss_kib": asdict(stats.summarise(result.peaks(name))),
                "noisy": result.is_noisy(name, precision),
                "points": result.points(name),
            }
            for name in result.runs
        },
        "time_ratios": asdict(times) if times else None,
        "memory_ratios": asdict(memory) if memory else None,
        "runs": [asdict(run) for runs in result.runs.values() for run in runs],
    }


def to_json(results: Results) -> str:
    """The results as one JSON text; ``schema`` changes when a reader has to."""
    document = {
        "schema": SCHEMA,
        "started": results.started,
        "quick": results.quick,
        "interrupted": results.interrupted,
        "precision": results.precision,
        "machine": asdict(results.machine),
        "compiler": results.compiler,
        "peers": [
            {**asdict(peer), "library": str(peer.library or "")}
            for peer in results.peers
        ],
        "cases": [_case_to_json(result, results.precision) for result in results.cases],
        "system_calls": [asdict(calls) for calls in results.system_calls],
        "notes": results.notes,
    }
    return json.dumps(document, indent=1)


def write_csv(results: Results, path: Path) -> None:
    """One line for each measured run, without the points of the sweep."""
    columns = [
        entry.name for entry in fields(Run) if entry.name not in {"params", "points"}
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["workload", *columns])
        for result in results.cases:
            for runs in result.runs.values():
                for run in runs:
                    writer.writerow(
                        [result.case.name, *(getattr(run, name) for name in columns)]
                    )
