"""Replays a trace under several allocators and compares them."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allod.allocators import find_allocator
from allod.console import Failure, display_for, say
from allod.environment import ensure_bench
from allod.paths import ROOT
from allod.trace import counted, ensure_tools, human, is_trace, run_tool

if TYPE_CHECKING:
    from bench.compare.rounds import CaseResult

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
        raise Failure(f"{trace} is {'not a file' if trace.exists() else 'not there'}")
    given = list(dict.fromkeys(names or DEFAULT_ALLOCATORS))
    allocators = [find_allocator(name) for name in given]
    doubles = {peer.name for peer in allocators}
    if len(doubles) < len(allocators):
        raise Failure("two allocators have the same name", 2)
    if not is_trace(trace):
        raise Failure(f"{trace} is not a trace")
    ensure_bench()

    sys.path.insert(0, str(ROOT))
    from bench.compare.cases import Case
    from bench.compare.rounds import Budget, CaseResult, Plan, measure

    programs = ensure_tools()
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
        # The threads are the trace's: how far they were kept from a processor says nothing.
        case = Case("replay", "replay", trace.name, params, threads=0)
        result = CaseResult(case)
        plan = Plan(quick=False, repeats=rounds, precision=0.01, timeout=timeout)
        title = f"replaying {trace.name}"
        display = display_for(title)

        def progress(done: int, total: int) -> None:
            display.advance(done, total)
            display.beat()

        try:
            measure(programs, result, allocators, plan, Budget(plan, 1), progress)
        except KeyboardInterrupt:
            say("interrupted; what follows is of the rounds that were made")
        finally:
            display.close()
    for peer, reason in result.failures.items():
        say(f"{peer} failed: {reason}")
    if result.runs:
        click.echo(_as_json(trace, result) if as_json else table(trace, result))
    return 1 if result.failures or not result.runs else 0


def table(trace: Path, result: CaseResult) -> str:
    """A line for each allocator, the fastest first."""
    from bench.compare.stats import summarise

    medians = {peer: statistics.median(result.times(peer)) for peer in result.runs}
    best = min(medians.values())
    first = next(iter(result.runs.values()))[0]
    figures = {figure.name: figure.value for figure in first.figures}
    lines = [
        f"{trace.name}: {counted(first.ops, 'call')},"
        f" {counted(int(figures['threads']), 'thread')},"
        f" {human(figures['peak live'] * KIB)} live at most",
        f"{'':16}{'seconds':>9}  {'95 % interval':17}{'ratio':>6}{'ns a call':>11}"
        f"{'peak':>12}{'final':>12}{'faults':>10}",
    ]
    for peer in sorted(medians, key=medians.__getitem__):
        runs = result.runs[peer]
        time = summarise([run.seconds for run in runs])
        low, high = time.interval
        interval = f"{low:.4f} to {high:.4f}"
        peak, final = resident(result, peer)
        faults = statistics.median(run.minor_faults for run in runs)
        lines.append(
            f"{peer:16}{time.median:9.4f}  {interval:17}{medians[peer] / best:6.2f}"
            f"{medians[peer]:11.1f}{human(peak):>12}{human(final):>12}{faults:10,.0f}"
        )
    rounds = max(len(runs) for runs in result.runs.values())
    lines.append(f"medians of {counted(rounds, 'round')}")
    return "\n".join(lines)


def resident(result: CaseResult, peer: str) -> tuple[float, float]:
    """Peak and final resident bytes, without the tables of the replay itself."""
    own, runs = result.figures(peer), result.runs[peer]
    peaks = zip((run.peak_rss_kib for run in runs), own[OWN_AT_PEAK], strict=True)
    ends = zip((run.final_rss_kib for run in runs), own[OWN_AT_END], strict=True)
    final = _net(ends)
    # The tables may have been larger before the peak than at it.
    return max(_net(peaks), final), final


def _net(pairs: Iterable[tuple[float, float]]) -> float:
    return KIB * statistics.median(whole - own for whole, own in pairs)


def _as_json(trace: Path, result: CaseResult) -> str:
    allocators = {
        peer: {
            "seconds": statistics.median(run.seconds for run in runs),
            "resident_peak": resident(result, peer)[0],
            "resident_final": resident(result, peer)[1],
            "runs": [asdict(run) for run in runs],
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
