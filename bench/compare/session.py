"""Measures all that was chosen, and keeps what is done whatever happens."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure
from rich.console import Console

from bench.compare import (
    counters,
    lines,
    purging,
    rounds,
    runner,
    smallest,
    storage,
    syscalls,
    warmth,
)
from bench.compare.cases import CASES_BY_NAME, PURGING_CASES, TRACED_CASE, Case
from bench.compare.processes import LeftOut, RunError
from bench.compare.progress import Display
from bench.compare.results import Results
from bench.compare.rounds import Budget, Plan
from bench.compare.selection import by_turns

_MANY_CASES = 8


@dataclass(frozen=True)
class Session:
    """Where the programs are, what is done, and where results are kept meanwhile."""

    programs: Path
    plan: Plan
    instructions: bool
    may_install: bool
    file: Path
    console: Console

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def run(self, cases: Sequence[Case], found: Results) -> None:
        """Measures into ``found``; Ctrl-C ends it and keeps what is there."""
        try:
            timed = [case for case in cases if not case.lines]
            self._count_lines([case for case in cases if case.lines], found)
            ready = self._run_rounds(timed, found)
            if any(case.name == TRACED_CASE for case in ready):
                self._trace(found)
            self._look_at_purging(found)
            self._run_smallest(found)
            if self.instructions:
                self._count(found)
        except KeyboardInterrupt:
            found.interrupted = True
            self.say("interrupted; keeping what is done")

    def add_rounds(self, cases: Sequence[Case], found: Results) -> None:
        """Measures more rounds into ``found``, and nothing else; Ctrl-C does as above."""
        try:
            self._run_rounds([case for case in cases if not case.lines], found)
        except KeyboardInterrupt:
            found.interrupted = True
            self.say("interrupted; keeping what is done")

    def _run_rounds(self, cases: Sequence[Case], found: Results) -> list[Case]:
        ready = [case for case in cases if self._is_ready(case, found)]
        try:
            with self.most_memory_held(len(ready)):
                self._measure(ready, found)
        finally:
            order = list(CASES_BY_NAME)
            found.cases.sort(key=lambda result: order.index(result.case.name))
        return ready

    @contextlib.contextmanager
    def most_memory_held(self, cases: int) -> Iterator[None]:
        """Where there are many runs; to begin takes some seconds for each GiB."""
        is_worth_it = self.plan.seconds is None and cases >= _MANY_CASES
        if not is_worth_it or not warmth.reported():
            yield
            return
        self.say("taking free memory, so that the host does not")
        with warmth.held() as kib:
            self.say(f"{kib / (1 << 20):.1f} GiB taken")
            yield

    def _is_ready(self, case: Case, found: Results) -> bool:
        """Scripts prepare their programs before anything is measured."""
        if not case.script:
            return True
        self.say(f"preparing {case.name}")
        try:
            runner.prepare(case, may_install=self.may_install)
        except (LeftOut, RunError) as error:
            self._note(found, f"{case.name} is left out: {error}")
            return False
        return True

    def _measure(self, cases: Sequence[Case], found: Results) -> None:
        budget = Budget(self.plan, len(cases))
        order = by_turns(cases) if self.plan.seconds is not None else cases
        with Display(self.console, len(cases), budget) as display:
            for case in order:
                display.begin_case(case.name)
                if budget.left == 0:
                    self._note(found, f"{case.name} is left out: the time is over")
                    display.end_case(f"{case.name}: left out")
                    continue
                result = found.of(case)
                try:
                    rounds.measure(
                        *(self.programs, result, found.peers),
                        *(self.plan, budget, display.advance),
                    )
                except LeftOut as error:
                    if not result.runs:
                        found.cases.remove(result)
                    self._note(found, f"{case.name} is left out: {error}")
                budget.end_case()
                made = sum(map(len, result.runs.values()))
                display.end_case(f"{case.name}: {made} runs")
                for name, reason in result.failures.items():
                    self.say(f"{case.name}: {name} FAILED: {reason}")
                self._keep(found)

    def _keep(self, found: Results) -> None:
        """What cannot be written now is written at the end."""
        try:
            storage.save(found, self.file)
        except Failure as failure:
            self.say(f"warning: {failure}")

    def _trace(self, found: Results) -> None:
        if not syscalls.prepare(self.say, may_install=self.may_install):
            self._note(found, "system calls are not counted: strace is missing")
            return
        for peer in found.peers:
            try:
                found.system_calls.append(syscalls.count(self.programs, peer))
            except RunError as error:
                self._note(found, f"system calls of {peer.name} not counted: {error}")

    def _look_at_purging(self, found: Results) -> None:
        cases = [
            result for result in found.measured if result.case.name in PURGING_CASES
        ]
        if not cases:
            return
        if not syscalls.prepare(self.say, may_install=self.may_install):
            self._note(found, "purging is not measured: strace is missing")
            return
        for result in cases:
            self.say(f"{result.case.name}: what purging costs")
            for peer in found.peers:
                if peer.name not in result.runs:
                    continue
                try:
                    cost = purging.measure(
                        self.programs, result.case, peer, quick=self.plan.quick
                    )
                except (RunError, subprocess.TimeoutExpired) as error:
                    text = f"purging of {peer.name} in {result.case.name}: {error}"
                    self._note(found, text)
                else:
                    found.purging.append(cost)

    def _run_smallest(self, found: Results) -> None:
        """Says nothing of anyone if one of them fails: they run in turns."""
        if self.plan.quick:
            return
        variables = [runner.environment(peer) for peer in found.peers]
        try:
            sizes = smallest.means_kib(variables)
        except smallest.SmallestError as error:
            self._note(found, f"the smallest program is not measured: {error}")
        else:
            names = (peer.name for peer in found.peers)
            found.smallest = dict(zip(names, sizes, strict=True))

    def _count_lines(self, cases: Sequence[Case], found: Results) -> None:
        if not cases:
            return
        plugin = lines.prepare(self.say, may_install=self.may_install)
        if plugin is None:
            text = (
                f"cache lines are not counted: {lines.EMULATOR} is missing (qemu-user)"
            )
            self._note(found, text)
            return
        work = lines.jobs(cases, found.peers, quick=self.plan.quick)
        self.say(f"counting the cache lines of {len(work)} runs")
        counted = lines.count_all(self.programs, plugin, work, quick=self.plan.quick)
        for number, ((case, peer, threads), count) in enumerate(counted, 1):
            if isinstance(count, str):
                reason = f"with {threads} threads: {count}"
                found.of(case).failures.setdefault(peer.name, reason)
                self.say(f"{case.name}: {peer.name} FAILED: {reason}")
            else:
                found.lines.append(count)
            if number == len(work) or work[number][1] is not peer:
                self.say(f"{case.name}: {peer.name} counted, {number} of {len(work)}")
                self._keep(found)

    def _count(self, found: Results) -> None:
        tool = counters.tool(self.say, may_install=self.may_install)
        if tool is None:
            self._note(found, "instructions are not counted: valgrind is missing")
            return
        jobs = [
            (result.case, peer)
            for result in found.measured
            if not result.case.script
            for peer in found.peers
            if peer.name in result.runs
        ]
        self.say(f"counting the instructions of {len(jobs)} runs with {tool}")
        by_case = {result.case.name: result for result in found.cases}
        failed: dict[tuple[str, str], list[str]] = {}
        try:
            counted = counters.count_all(
                self.programs, jobs, tool, quick=self.plan.quick
            )
            for number, (case, peer, count) in enumerate(counted, 1):
                if isinstance(count, str):
                    failed.setdefault((peer.name, count), []).append(case.name)
                else:
                    by_case[case.name].counts[peer.name] = count
                if number == len(jobs) or jobs[number][0] is not case:
                    self.say(f"{case.name}: counted, {number} of {len(jobs)}")
        finally:
            for (name, reason), cases in failed.items():
                where = ", ".join(cases)
                text = f"instructions of {name} not counted ({reason}) in: {where}"
                self._note(found, text)

    def _note(self, found: Results, text: str) -> None:
        found.notes.append(text)
        self.say(text)
