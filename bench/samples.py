"""Made-up results, for tests that must not measure."""

import dataclasses
import math
import random
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bench.compare import machine, results
from bench.compare.cases import CASES_BY_NAME, Case
from bench.compare.counters import Count
from bench.compare.lines import Lines, Place
from bench.compare.peers import Peer
from bench.compare.purging import Purging
from bench.compare.rounds import CaseResult
from bench.compare.run import Figure, Run, Series
from bench.compare.syscalls import SystemCalls

PEERS = {"allod": 1.0, "glibc": 1.7, "mimalloc3": 1.1, "jemalloc": 1.3}
PERCENTILES = ("50", "90", "99", "99.9", "99.99", "99.999", "100")
# Cases of kinds that the workloads may lack.
EXTRA = (
    Case(
        "made-up-latency", "none", "single calls", group="latency", source="A <paper>"
    ),
    Case("made-up-idle", "none", "an idle hour", group="memory over time"),
    Case("made-up-program", "none", "a program", group="real programs", script=True),
)


def a_run(peer: str, nanoseconds: float, peak: int = 1000, **changes: Any) -> Run:
    """A run of which little matters."""
    run = Run(
        peer=peer,
        round=1,
        seconds=1.0,
        user_seconds=1.0,
        system_seconds=0.0,
        nanoseconds=nanoseconds,
        ops=1,
        checksum="same",
        peak_rss_kib=peak,
        final_rss_kib=peak,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
        disturbed=False,
        compiler="none",
        params={},
        points={},
        percentiles={},
        figures=(),
        series=(),
    )
    return dataclasses.replace(run, **changes)


def a_case(
    name: str, times: dict[str, Sequence[float]], peaks: dict[str, int] | None = None
) -> CaseResult:
    """A case with these times of an operation, round by round."""
    sizes = peaks or {}
    runs = {
        peer: [
            a_run(peer, time, sizes.get(peer, 1000), round=number)
            for number, time in enumerate(each, 1)
        ]
        for peer, each in times.items()
    }
    return CaseResult(CASES_BY_NAME[name], runs)


def some_results(*cases: CaseResult, kind: str = "moderate") -> results.Results:
    """Results of all the allocators that occur in the cases."""
    names = dict.fromkeys(name for case in cases for name in case.runs)
    return results.Results(
        machine.describe(),
        "today",
        kind,
        precision=0.01,
        peers=[Peer(name, None, "any") for name in names],
        cases=list(cases),
    )


def rich_results(cases: Sequence[Case], seed: int = 1) -> results.Results:
    """Everything that a report can show, for these cases."""
    chance = random.Random(seed)
    found = some_results(*(_rich_case(case, chance) for case in cases), kind="full")
    found.peers = [
        Peer(name, Path(f"/somewhere/{name}.so"), f"version of {name}")
        for name in PEERS
    ]
    found.system_calls = [SystemCalls(name, {64: 0.0, 4096: 0.5}) for name in PEERS]
    found.purging = [
        Purging(name, case.name, 7, 81.5, 0.004) for case in cases for name in PEERS
    ]
    found.lines = [
        Lines("cores-own", name, threads, 0.001 * threads, 0.0005)
        for name in PEERS
        for threads in (1, 8)
    ]
    worst = Place("liballod.so", "push", "include/<allod>.hpp:1", 0.4)
    found.lines.append(Lines("cores-pass", "allod", 8, 4.5, None, (worst,)))
    found.smallest = dict.fromkeys(PEERS, 1500.0)
    found.notes = ["hoard is left out: <not built>"]
    return found


def _rich_case(case: Case, chance: random.Random) -> CaseResult:
    result = CaseResult(case)
    for name, factor in PEERS.items():
        factor *= chance.uniform(0.7, 1.5)
        memory = chance.uniform(0.8, 1.3)
        result.runs[name] = [
            _rich_run(case, name, number, factor * chance.gauss(1, 0.01), memory)
            for number in range(1, 9)
        ]
        if not case.script:
            result.counts[name] = Count("callgrind", {"instructions": 40 * factor})
    if case.name == "tree":
        result.failures["hoard"] = "killed by SIGSEGV </script>"
    return result


def _rich_run(case: Case, peer: str, number: int, factor: float, memory: float) -> Run:
    sizes = [2 ** (step / 2) for step in range(45)] if case.group == "sizes" else []
    points = {str(int(size)): factor * (10 + size / 4096) for size in sizes}
    percentiles = {}
    if case.group == "latency":
        percentiles = {
            what: {
                key: factor * 10.0 ** (1 + place / 1.5)
                for place, key in enumerate(PERCENTILES)
            }
            for what in ("malloc", "free")
        }
    over_time = []
    if case.group == "memory over time":
        over_time = [
            (
                at / 10,
                memory * 3e5 * (math.exp(-at / 100) + 0.1 * math.sin(at / 9) + 0.1),
            )
            for at in range(300)
        ]
    return a_run(
        peer,
        (2e8 if case.script else 20) * factor,
        int(90_000 * memory),
        round=number,
        params=dict(case.params),
        points=points,
        percentiles=percentiles,
        figures=(Figure("resident over live", 1 + memory, "", "less"),)
        if over_time
        else (),
        series=(Series("resident", "seconds", "KiB", tuple(over_time)),)
        if over_time
        else (),
    )


def times(seed: int, factor: float = 1.0, count: int = 15) -> list[float]:
    """Skewed, as run times are."""
    chance = random.Random(seed)
    return [factor * (10 + chance.expovariate(5)) for _ in range(count)]


class Page(HTMLParser):
    """What a page refers to and holds; its elements must end in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.references += [
            value for name, value in given.items() if name in {"src", "href", "data"}
        ]
        if "id" in given:
            self.ids.append(given["id"])
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        self.labels.add(given.get("aria-label", ""))
        if tag not in ("meta", "link", "img", "br", "input", "hr"):
            self.open.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]].append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @property
    def outside(self) -> list[str]:
        """What the page would load."""
        return [at for at in self.references if not at.startswith(("#", "data:"))]
