"""Replays a trace under several allocators and compares them."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from allod import supplies
from allod.console import Failure, display_for, say
from allod.replays import Allocator, Plan, Replays
from allod.trace.files import is_trace
from allod.trace.tool import run_tool
from allod.units import counted, human

TOUCHES = ("nothing", "ends", "pages")
DEFAULT_ALLOCATORS = ("allod", "glibc")
KIB = 1024
OWN_AT_PEAK = "own memory at the peak"
OWN_AT_END = "own memory at the end"


def replay(
    trace: Path,
    names: Sequence[str],
    *,
    rounds: int,
    touch: str,
    verify: bool,
    timeout: float,
    scratch: Path | None,
    as_json: bool,
) -> int:
    """Prints how the allocators fare; returns 1 if one of them failed."""
    if not trace.is_file():
        what = "is not a file" if trace.exists() else "does not exist"
        raise Failure(f"{trace} {what}")
    allocators = _allocators(names)
    if not is_trace(trace):
        raise Failure(f"{trace} is not a trace")
    supplies.current().python_packages("statistics")
    supplies.current().trace_programs()
    try:
        folder = tempfile.TemporaryDirectory(prefix="allod-replay-", dir=scratch)
    except OSError as error:
        raise Failure(f"cannot write to {scratch}: {error.strerror}") from None
    with folder as name:
        prepared = Path(name) / "prepared"
        run_tool(f"preparing {trace.name}", "prepare", trace, prepared)
        params: dict[str, int | str] = {
            "file": str(prepared),
            "touch": TOUCHES.index(touch),
            "verify": int(verify),
        }
        result = _measured(Plan(trace.name, params, rounds, timeout), allocators)
    for peer, reason in result.failures.items():
        say(f"{peer} failed: {reason}")
    if result.runs:
        click.echo(_as_json(trace, result) if as_json else table(trace, result))
    return 1 if result.failures or not result.runs else 0


def _allocators(names: Sequence[str]) -> list[Allocator]:
    given = list(dict.fromkeys(names or DEFAULT_ALLOCATORS))
    allocators = [supplies.current().allocator(name) for name in given]
    if len({peer.name for peer in allocators}) < len(allocators):
        raise Failure("two allocators have the same name", 2)
    return allocators


def _measured(plan: Plan, allocators: Sequence[Allocator]) -> Replays:
    display = display_for(f"replaying {plan.title}")

    def progress(done: int, total: int) -> None:
        display.advance(done, total)
        display.beat()

    try:
        return supplies.current().replay(plan, allocators, progress)
    finally:
        display.close()


def table(trace: Path, result: Replays) -> str:
    """A line for each allocator, the fastest first."""
    medians = {
        peer: _median(run["nanoseconds"] for run in runs)
        for peer, runs in result.runs.items()
    }
    best = min(medians.values())
    first = next(iter(result.runs.values()))[0]
    figures = _figures(first)
    lines = [
        f"{trace.name}: {counted(first['ops'], 'call')},"
        f" {counted(int(figures['threads']), 'thread')},"
        f" {human(figures['peak live'] * KIB)} live at most",
        f"{'':16}{'seconds':>9}  {'95 % interval':17}{'ratio':>6}{'ns a call':>11}"
        f"{'peak':>12}{'final':>12}{'faults':>10}",
    ]
    for peer in sorted(medians, key=medians.__getitem__):
        runs = result.runs[peer]
        low, high = result.intervals[peer]
        interval = f"{low:.4f} to {high:.4f}"
        peak, final = resident(runs)
        lines.append(
            f"{peer:16}{_median(run['seconds'] for run in runs):9.4f}  {interval:17}"
            f"{medians[peer] / best:6.2f}{medians[peer]:11.1f}"
            f"{human(peak):>12}{human(final):>12}"
            f"{_median(run['minor_faults'] for run in runs):10,.0f}"
        )
    rounds = max(len(runs) for runs in result.runs.values())
    lines.append(f"medians of {counted(rounds, 'round')}")
    return "\n".join(lines)


def resident(runs: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Peak and final resident bytes, without the tables of the replay itself."""
    peak = _median(run["peak_rss_kib"] - _figures(run)[OWN_AT_PEAK] for run in runs)
    final = _median(run["final_rss_kib"] - _figures(run)[OWN_AT_END] for run in runs)
    # The tables may have been larger before the peak than at it.
    return KIB * max(peak, final), KIB * final


def _figures(run: Mapping[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in run["figures"]}


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _as_json(trace: Path, result: Replays) -> str:
    allocators = {
        peer: {
            "seconds": _median(run["seconds"] for run in runs),
            "resident_peak": resident(runs)[0],
            "resident_final": resident(runs)[1],
            "runs": runs,
        }
        for peer, runs in result.runs.items()
    }
    return json.dumps(
        {
            "trace": str(trace),
            "allocators": allocators,
            "failures": result.failures,
        }
    )
