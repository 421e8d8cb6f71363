"""Runs every case under every allocator, and keeps what came out."""

import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from allod.files import write_whole

from bench.compare.machine import Machine
from bench.compare.peers import Peer
from bench.compare.progress import duration
from bench.security import trial
from bench.security.cases import Case
from bench.security.judge import Outcome, Verdict, worst

FORMAT = 1
SAY_SECONDS = 2.0


class FindingsError(Exception):
    """A file holds no findings; the text says why."""


@dataclass
class Findings:
    """``verdicts`` by allocator and case holds one for each run of it."""

    machine: Machine
    started: str
    repeats: int
    peers: list[Peer]
    cases: list[Case]
    notes: list[str] = field(default_factory=list)
    verdicts: dict[str, dict[str, list[Verdict]]] = field(default_factory=dict)

    def of(self, peer: Peer | str, case: Case) -> Verdict:
        """The worst of the runs."""
        name = peer if isinstance(peer, str) else peer.name
        return worst(self.verdicts[name][case.key])

    @property
    def families(self) -> dict[str, list[Case]]:
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            found.setdefault(case.family, []).append(case)
        return found

    @property
    def failed(self) -> bool:
        """Whether a program did not even come to its defect."""
        return any(
            self.of(peer, case).outcome is Outcome.FAILED
            for peer in self.peers
            for case in self.cases
        )


@contextmanager
def _no_cores() -> Iterator[None]:
    """Programs die by the hundred: none leaves an image of its memory."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def run(program: Path, found: Findings, say: Callable[[str], None]) -> None:
    """Runs all cases of ``found`` under all its allocators into it."""
    keys = [(peer, case) for peer in found.peers for case in found.cases]
    jobs = [each for each in keys for _ in range(found.repeats)]
    progress = _Progress(len(jobs), say)
    workers = min(2, len(os.sched_getaffinity(0)))
    with _no_cores(), ThreadPoolExecutor(workers) as pool:
        running = pool.map(lambda job: trial.run(program, job[1], job[0]), jobs)
        try:
            for (peer, case), verdict in zip(jobs, running, strict=True):
                of_peer = found.verdicts.setdefault(peer.name, {})
                of_peer.setdefault(case.key, []).append(verdict)
                progress.advance(peer.name)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Progress:
    """A line now and then."""

    def __init__(self, runs: int, say: Callable[[str], None]) -> None:
        self._runs = runs
        self._say = say
        self._done = 0
        self._began = self._said = time.monotonic()

    def advance(self, name: str) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._said < SAY_SECONDS or self._done == self._runs:
            return
        self._said = now
        left = (now - self._began) / self._done * (self._runs - self._done)
        self._say(
            f"{name}: {self._done} of {self._runs} runs, about {duration(left)} remaining"
        )


def to_json(found: Findings) -> str:
    """The findings as one JSON text; ``format`` changes when a reader has to."""
    document = {
        "format": FORMAT,
        "started": found.started,
        "repeats": found.repeats,
        "machine": asdict(found.machine),
        "peers": [_peer_to_json(peer) for peer in found.peers],
        "notes": found.notes,
        "cases": [asdict(case) for case in found.cases],
        "verdicts": {
            name: {
                key: [asdict(verdict) for verdict in each] for key, each in of.items()
            }
            for name, of in found.verdicts.items()
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _peer_to_json(peer: Peer) -> dict[str, Any]:
    library = str(peer.library) if peer.library else ""
    return {"name": peer.name, "library": library, "version": peer.version}


def load(path: Path) -> Findings:
    """What to_json() wrote."""
    try:
        stored = json.loads(path.read_text())
        if stored["format"] != FORMAT:
            raise FindingsError(f"{path} has format {stored['format']}, not {FORMAT}")
        return Findings(
            machine=Machine(**stored["machine"]),
            started=stored["started"],
            repeats=stored["repeats"],
            peers=[_peer_from_json(each) for each in stored["peers"]],
            cases=[_case(each) for each in stored["cases"]],
            notes=stored["notes"],
            verdicts={
                name: {key: list(map(_verdict, each)) for key, each in of.items()}
                for name, of in stored["verdicts"].items()
            },
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FindingsError(f"{path} holds no findings: {error}") from error


def _peer_from_json(stored: dict[str, str]) -> Peer:
    library = Path(stored["library"]) if stored["library"] else None
    return Peer(stored["name"], library, stored["version"])


def _case(stored: dict[str, Any]) -> Case:
    return Case(
        **{key: stored[key] for key in ("family", "name", "size", "kind", "about")}
    )


def _verdict(stored: dict[str, Any]) -> Verdict:
    return Verdict(**{**stored, "outcome": Outcome(stored["outcome"])})


def save(found: Findings, path: Path) -> None:
    write_whole(path, to_json(found))
