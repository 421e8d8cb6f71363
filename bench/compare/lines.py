"""Counts the cache lines that travel between cores, in an emulator.

A plug-in of qemu's user-mode emulation, bench/lines, takes each thread for a core of its own and
lets threads take turns of some memory accesses. So a machine with few processors shows what many
would do. What is counted depends little on how busy the machine is.
"""

import itertools
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compare import build, packages, runner
from bench.compare.cases import Case
from bench.compare.peers import LIBC, ROOT, SUBJECT, Peer, is_ours
from bench.compare.processes import LeftOut, RunError, output_of, side_by_side

EMULATOR = f"qemu-{platform.machine()}"
THREADS = (1, 2, 4, 8, 16, 32, 64, 128)
QUICK_THREADS = (2, 8, 32)
# Mean lengths of turns, in memory accesses; the figures are means over them.
TURNS = (20, 60)
QUICK_TURNS = (20,)
# What an allocator is told, as the emulator shows it the processors of the machine. Those that
# are not named have no such option, or do not ask.
PROCESSORS = 64
TOLD_OURS = {"ALLOD_PROCESSORS": "{processors}"}
TOLD = {
    "jemalloc": {"MALLOC_CONF": "narenas:{arenas}"},
    "glibc": {"MALLOC_ARENA_MAX": "{most_arenas}"},
}
CROWD = "cores-crowd"
CROWDED_PROCESSORS = 2
# Where lines are looked for by source line: with so many threads at most.
PLACES_THREADS = 32
MOST_PLACES = 20
_SECONDS = 600.0


@dataclass(frozen=True)
class Place:
    """A source line for which lines travelled, for each operation."""

    object: str  # the file of the process that holds the code
    function: str
    line: str
    per_op: float


@dataclass(frozen=True)
class Lines:
    """Lines that travel for each operation; ``apart``: for code of the allocator.

    For the C library's malloc, that is unknown. An operation is a free and a malloc.
    """

    case: str
    peer: str
    threads: int
    per_op: float
    apart: float | None
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Total:
    """What the plug-in wrote: lines that came, and for which instructions of which file."""

    lines: int
    apart: int
    places: dict[tuple[str, int], int]


Job = tuple[Case, Peer, int]


def prepare(say: Callable[[str], None], *, may_install: bool) -> Path | None:
    """The plug-in, where the emulator is there or could be installed."""
    if shutil.which(EMULATOR) is None and may_install:
        packages.try_to_install(["qemu-user"], say)
    if shutil.which(EMULATOR) is None:
        return None
    try:
        return build.build_lines(may_install=may_install)
    except build.BuildError as error:
        say(str(error))
        return None


def jobs(cases: Sequence[Case], peers: Sequence[Peer], *, quick: bool) -> list[Job]:
    """Everything that is counted, the curves of a case one after the other."""
    threads = QUICK_THREADS if quick else THREADS
    return list(itertools.product(cases, peers, threads))


def count_all(
    programs: Path, plugin: Path, work: Sequence[Job], *, quick: bool
) -> Iterator[tuple[Job, Lines | str]]:
    """The count, or why there is none, for each job, as they end."""

    def one(job: Job) -> tuple[Job, Lines | str]:
        try:
            return job, count(programs, plugin, job, quick=quick)
        except (RunError, LeftOut) as error:
            return job, str(error)

    yield from side_by_side(one, work)


def count(programs: Path, plugin: Path, job: Job, *, quick: bool) -> Lines:
    """Runs a workload once for each length of turns."""
    case, peer, threads = job
    totals: list[tuple[Total, int]] = []
    for turn in QUICK_TURNS if quick else TURNS:
        with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
            out = Path(folder) / "out"
            command = _command(programs, plugin, job, out, turn, quick=quick)
            text = output_of(command, {"PATH": os.defpath}, _SECONDS)
            run = runner.read(text, case, peer, number=0)
            totals.append((parse(out.read_text()), run.ops))
    per_op = sum(total.lines / ops for total, ops in totals) / len(totals)
    apart = sum(total.apart / ops for total, ops in totals) / len(totals)
    places: tuple[Place, ...] = ()
    if peer.name == SUBJECT and threads == _threads_for_places(quick):
        places = tuple(find_places(totals))
    return Lines(
        *(case.name, peer.name, threads, per_op),
        *(None if peer.name == LIBC else apart, places),
    )


def _threads_for_places(quick: bool) -> int:
    return max(n for n in (QUICK_THREADS if quick else THREADS) if n <= PLACES_THREADS)


def _command(
    programs: Path, plugin: Path, job: Job, out: Path, turn: int, *, quick: bool
) -> list[str]:
    case, peer, threads = job
    options = [f"out={out}", f"turn={turn}"]
    if peer.library is not None:
        options.append(f"of={os.path.realpath(peer.library)}")
    variables = {**runner.environment(peer), **_told(case, peer)}
    return [
        *(EMULATOR, "-plugin", ",".join([str(plugin), *options])),
        *(
            part
            for name, value in variables.items()
            for part in ("-E", f"{name}={value}")
        ),
        *(*runner.command(programs, case, quick=quick), "--threads", str(threads)),
    ]


def _told(case: Case, peer: Peer) -> dict[str, str]:
    processors = CROWDED_PROCESSORS if case.name == CROWD else PROCESSORS
    numbers = {
        "processors": processors,
        "arenas": 4 * processors,
        "most_arenas": 8 * processors,
    }
    variables = TOLD_OURS if is_ours(peer.name) else TOLD.get(peer.name, {})
    return {name: value.format(**numbers) for name, value in variables.items()}


def parse(text: str) -> Total:
    """What the plug-in wrote; RunError if that is not all."""
    places: Counter[tuple[str, int]] = Counter()
    for line in text.splitlines():
        kind, *fields = line.split(" ", 3)
        if kind == "place":
            places[fields[2], int(fields[1], 16)] += int(fields[0])
        elif kind == "total":
            _, loads, stores, apart = map(int, " ".join(fields).split())
            return Total(loads + stores, apart, dict(places))
    raise RunError("the count of cache lines has no end")


def find_places(totals: Sequence[tuple[Total, int]]) -> Iterator[Place]:
    """The source lines for which most lines travelled, the worst first."""
    shares: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for total, ops in totals:
        for (path, offset), lines in total.places.items():
            shares[path][offset] += lines / ops / len(totals)
    found: dict[tuple[str, str, str], float] = defaultdict(float)
    for path, offsets in shares.items():
        named = _source_lines(path, list(offsets))
        for share, (function, line) in zip(offsets.values(), named, strict=True):
            found[Path(path).name, function, line] += share
    worst = sorted(found.items(), key=lambda item: -item[1])
    for (name, function, line), per_op in worst[:MOST_PLACES]:
        yield Place(name, function, line, per_op)


def _source_lines(path: str, offsets: Sequence[int]) -> list[tuple[str, str]]:
    """Function and line of each instruction: the innermost that is in this repository."""
    unknown = [("?", "?")] * len(offsets)
    if not Path(path).is_file() or shutil.which("addr2line") is None:
        return unknown
    given = "".join(f"{offset:#x}\n" for offset in offsets)
    done = subprocess.run(
        ["addr2line", "--addresses", "--inlines", "--functions", "--demangle"]
        + ["--exe", path],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    answers = re.split(r"^0x[0-9a-f]+\n", done.stdout, flags=re.MULTILINE)[1:]
    if len(answers) != len(offsets):
        return unknown
    return [_innermost(answer.splitlines()) for answer in answers]


def _innermost(answer: Sequence[str]) -> tuple[str, str]:
    frames = list(zip(answer[::2], answer[1::2], strict=False))
    for function, where in frames:
        file, _, line = where.split(" (discriminator")[0].rpartition(":")
        # Builds name their sources from folders of their own.
        parts = Path(os.path.normpath(file)).parts
        for i in range(len(parts) - 1):
            place = Path(*parts[i:])
            if not place.is_absolute() and (ROOT / place).is_file():
                return _short(function), f"{place}:{line}"
    function, where = frames[0] if frames else ("??", "??:0")
    return (_short(function) if function != "??" else "?"), (
        Path(where).name if not where.startswith("??") else "?"
    )


def _short(function: str) -> str:
    """Without template arguments, parameters and outer names."""
    text, before = function, ""
    while text != before:
        before, text = text, re.sub(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]", "", text)
    last = text.replace("const", "").strip().split("::")[-1].strip(" }{")
    return last.rsplit(" ", 1)[-1] or "?"
