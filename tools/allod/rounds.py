"""Measures replays of a trace: rounds in which each allocator has its turn, by the program of
bench/replay that came with this package."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allod.console import say
from allod.preload import preloaded
from allod.replays import Allocator, Plan, Replays

CONFIDENCE = 0.95


def measure(
    program: Path,
    plan: Plan,
    allocators: Sequence[Allocator],
    progress: Callable[[int, int], None],
) -> Replays:
    """Adds rounds until there are as many as planned. The first one warms the machine, and does
    not count; an allocator that fails is left out from then on."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    failures: dict[str, str] = {}
    turns = [each for _ in range(plan.rounds + 1) for each in allocators]
    try:
        for number, allocator in enumerate(turns):
            if allocator.name in failures:
                continue
            try:
                run = _run_once(program, plan, allocator)
            except _Failed as failure:
                failures[allocator.name] = str(failure)
                runs.pop(allocator.name, None)
            else:
                if number >= len(allocators):
                    runs.setdefault(allocator.name, []).append(run)
            progress(number + 1, len(turns))
    except KeyboardInterrupt:
        say("interrupted; these are the results of the finished rounds")
    seconds = {name: [run["seconds"] for run in found] for name, found in runs.items()}
    intervals = {name: interval_of_median(values) for name, values in seconds.items()}
    return Replays(runs, intervals, failures)


def interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval by order statistics, without an assumption of how the values are
    distributed; of fewer than six values, their range."""
    ordered = sorted(values)
    count = len(ordered)
    outside = (1 - CONFIDENCE) / 2
    place, below = 0, 0.0
    # The chance that fewer than `place` values are below the median.
    while place < count // 2:
        below += math.comb(count, place) / 2**count
        if below > outside:
            break
        place += 1
    first = max(place - 1, 0)
    return ordered[first], ordered[count - 1 - first]


class _Failed(Exception):
    """A replay did not end as it should."""


def _run_once(program: Path, plan: Plan, allocator: Allocator) -> Mapping[str, Any]:
    words = [part for key, value in plan.params.items() for part in (f"--{key}", value)]
    environment = {"PATH": os.defpath, **dict(allocator.variables)}
    if allocator.library is not None:
        environment["LD_PRELOAD"] = preloaded(allocator.library)
        environment["BENCH_EXPECT"] = str(allocator.library)
    try:
        done = subprocess.run(
            [str(program), *map(str, words)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=plan.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Failed(f"not finished after {plan.timeout:g} s") from None
    if done.returncode < 0:
        raise _Failed(f"killed by {signal.Signals(-done.returncode).name}")
    if done.returncode > 0:
        raise _Failed(done.stderr.strip() or f"exit status {done.returncode}")
    run: dict[str, Any] = json.loads(done.stdout)
    if allocator.library is not None and not run["expected_library"]:
        raise _Failed(f"{allocator.library} was not loaded")
    run["nanoseconds"] = run["seconds"] / run["ops"] * 1e9
    return run
