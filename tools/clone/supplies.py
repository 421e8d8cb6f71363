"""What the commands need, built or installed in this clone where it is missing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from allod.console import say
from allod.elf import is_musl_here
from allod.replays import Allocator, Plan, Replays
from allod.supplies import SYMBOLIZERS, Purpose, not_for_here
from workshop import replay
from workshop.build import LIVE, PRESETS, ensure_built, ensure_live_built, product
from workshop.environment import ensure_bench, ensure_profile
from workshop.packages import Requirement, ensure_requirements
from workshop.paths import ROOT

from clone.allocators import find_allocator


class Clone:
    """The supplies of a clone."""

    def library(self, name: str, *, musl: bool) -> Path:
        """From the build, brought up to date."""
        preset = _preset(name, musl=musl)
        ensure_built(PRESETS[preset])
        return product(name, preset)

    def live_library(self, *, musl: bool) -> Path:
        """From the build, brought up to date."""
        return ensure_live_built(_preset(LIVE, musl=musl))

    def trace_programs(self) -> Path:
        """Those of bench/replay, brought up to date."""
        return replay.ensure_tools()

    def symbolizer(self) -> str:
        """LLVM's, installed where it is missing."""
        for name in SYMBOLIZERS:
            if (found := shutil.which(name)) is not None:
                return found
        ensure_requirements([Requirement(SYMBOLIZERS[0], "llvm")])
        return SYMBOLIZERS[0]

    def python_packages(self, purpose: Purpose) -> None:
        """Installs them into the clone's environment."""
        if purpose in ("profiles", "flames"):
            ensure_profile()
        else:
            ensure_bench()

    def allocator(self, given: str) -> Allocator:
        """One that the benchmark knows, or a file."""
        return find_allocator(given)

    def replay(
        self,
        plan: Plan,
        allocators: Sequence[Allocator],
        progress: Callable[[int, int], None],
    ) -> Replays:
        """As the benchmark measures."""
        sys.path.insert(0, str(ROOT))
        from bench.compare import rounds, stats
        from bench.compare.cases import Case
        from bench.compare.peers import Peer

        # The threads are the trace's: how far they were kept from a processor says nothing.
        case = Case("replay", "replay", plan.title, plan.params, threads=0)
        result = rounds.CaseResult(case)
        way = rounds.Plan(
            quick=False, repeats=plan.rounds, precision=0.01, timeout=plan.timeout
        )
        peers = [Peer(a.name, a.library, "", a.variables) for a in allocators]
        programs, budget = self.trace_programs(), rounds.Budget(way, 1)
        try:
            rounds.measure(programs, result, peers, way, budget, progress)
        except KeyboardInterrupt:
            say("interrupted; these are the results of the finished rounds")
        return Replays(
            {peer: [asdict(run) for run in runs] for peer, runs in result.runs.items()},
            {
                peer: stats.summarise([run.seconds for run in runs]).interval
                for peer, runs in result.runs.items()
            },
            result.failures,
        )


def _preset(name: str, *, musl: bool) -> str:
    """That of the libraries for programs of a libc."""
    if musl == is_musl_here():
        return "release"
    if not musl:
        raise not_for_here(name)
    return "musl"
