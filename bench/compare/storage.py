"""Results as JSON, which can be read again, and as CSV."""

import csv
import io
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from allod.files import write_whole

from bench.compare import stats
from bench.compare.cases import Case
from bench.compare.counters import Count
from bench.compare.lines import Lines, Place
from bench.compare.machine import Machine
from bench.compare.peers import Peer
from bench.compare.purging import Purging
from bench.compare.results import Results, memory_ratios, overviews, time_ratios
from bench.compare.rounds import CaseResult
from bench.compare.run import Run
from bench.compare.syscalls import SystemCalls

FORMAT = 2
_NOT_IN_CSV = {"params", "points", "percentiles", "figures", "series"}


class StorageError(Exception):
    """A file does not hold results; the text says why."""


def _case_to_json(result: CaseResult, precision: float) -> dict[str, Any]:
    times, memory = time_ratios(result), memory_ratios(result)
    typical = {name: result.typical(name) for name in result.runs}
    return {
        "case": asdict(result.case),
        "failures": result.failures,
        "summary": {
            name: {
                "nanoseconds": asdict(stats.summarise(result.times(name))),
                "peak_rss_kib": asdict(stats.summarise(result.peaks(name))),
                "noisy": result.is_noisy(name, precision),
                "points": result.points(name),
                "percentiles": result.percentiles(name),
                "figures": {
                    figure: asdict(stats.summarise(values))
                    for figure, values in result.figures(name).items()
                },
            }
            for name in result.runs
        },
        "time_ratios": asdict(times) if times else None,
        "memory_ratios": asdict(memory) if memory else None,
        "counts": {name: asdict(count) for name, count in result.counts.items()},
        "runs": [
            run.store(with_series=run is typical[name])
            for name, runs in result.runs.items()
            for run in runs
        ],
    }


def to_json(results: Results) -> str:
    """The results as one JSON text; ``format`` changes when a reader has to."""
    document = {
        "format": FORMAT,
        "started": results.started,
        "kind": results.kind,
        "interrupted": results.interrupted,
        "precision": results.precision,
        "machine": asdict(results.machine),
        "compiler": results.compiler,
        "peers": [
            {**asdict(peer), "library": str(peer.library or "")}
            for peer in results.peers
        ],
        "overview": [asdict(overview) for overview in overviews(results)],
        "cases": [_case_to_json(result, results.precision) for result in results.cases],
        "system_calls": [asdict(calls) for calls in results.system_calls],
        "purging": [asdict(cost) for cost in results.purging],
        "lines": [asdict(counted) for counted in results.lines],
        "smallest": results.smallest,
        "notes": results.notes,
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def save(results: Results, path: Path) -> None:
    """Replaces the file in one step, as a long run does after every case."""
    write_whole(path, to_json(results))


def load(path: Path) -> Results:
    """What :func:`to_json` wrote; what can be computed again is not read."""
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise StorageError(
            f"{path} is not a results.json of format {FORMAT}"
            + (f", but of format {found}" if found is not None else "")
        )
    try:
        return _load(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged: {error!r}") from error


def _load(document: dict[str, Any]) -> Results:
    return Results(
        machine=Machine(**document["machine"]),
        started=document["started"],
        kind=document["kind"],
        precision=document["precision"],
        peers=[
            Peer(
                each["name"],
                Path(each["library"]) if each["library"] else None,
                each["version"],
                tuple((name, value) for name, value in each["variables"]),
            )
            for each in document["peers"]
        ],
        cases=[_load_case(each) for each in document["cases"]],
        system_calls=[
            SystemCalls(
                each["peer"],
                {int(size): value for size, value in each["per_pair"].items()},
            )
            for each in document["system_calls"]
        ],
        # What was stored before these were measured has none.
        purging=[Purging(**each) for each in document.get("purging", ())],
        lines=[
            Lines(**{**each, "places": tuple(Place(**at) for at in each["places"])})
            for each in document.get("lines", ())
        ],
        smallest=document.get("smallest", {}),
        notes=document["notes"],
        interrupted=document["interrupted"],
    )


def _load_case(stored: dict[str, Any]) -> CaseResult:
    result = CaseResult(Case(**stored["case"]), failures=stored["failures"])
    for each in stored["runs"]:
        run = Run.load(each)
        result.runs.setdefault(run.peer, []).append(run)
    result.counts = {name: Count(**count) for name, count in stored["counts"].items()}
    return result


def write_csv(results: Results, path: Path) -> None:
    """One line for each measured run, with what it was measured on."""
    columns = [entry.name for entry in fields(Run) if entry.name not in _NOT_IN_CSV]
    versions = {peer.name: peer.version for peer in results.peers}
    machine = results.machine
    setting = {
        "started": results.started,
        "processor": machine.cpu,
        "kernel": machine.kernel,
        "libc": machine.libc,
    }
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["workload", "version", *columns, *setting])
    for result in results.cases:
        for name, runs in result.runs.items():
            for run in runs:
                values = [getattr(run, column) for column in columns]
                writer.writerow(
                    [
                        *(result.case.name, versions.get(name, "")),
                        *(*values, *setting.values()),
                    ]
                )
    write_whole(path, text.getvalue())
