"""`./allod fuzz`: the fuzzers, for longer than in the tests, with a record of what they did."""

from __future__ import annotations

import csv
import io
import itertools
import re
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

from allod.console import Failure, say, shown
from allod.preload import preloaded
from allod.signals import handled_by

from workshop.build import PRESETS, ensure_built, product
from workshop.paths import ROOT, build_dir
from workshop.programs import Ended, run_to_end

LAYERS = ("fuzz_space", "fuzz_slab", "fuzz_heap")
CORRUPTION = "corruption"
TARGETS = (*LAYERS, CORRUPTION)
RECORD_NAME = "tests/fuzz/record.csv"
RECORD = ROOT / RECORD_NAME
# Calls of one run of random calls with defects among them: each run begins with a fresh process.
CALLS = 200_000
HARDENED, DEFAULT = "liballod-hardened.so", "liballod.so"
MANY_BLOCKS = "20000"


@dataclass(frozen=True)
class Way:
    """What random calls are made with: the library, its measures and other options.

    ``words`` are for the program, which is told the measures, too: what the model says is not
    found without those that are left out.
    """

    library: str
    measures: str = ""
    words: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        return [*self.words, *filter(None, self.measures.split(","))]

    @property
    def variables(self) -> dict[str, str]:
        chosen = {"ALLOD_HARDENED": self.measures} if self.measures else {}
        names = [
            *(["liballod-copies.so"] if "copies" in self.words else []),
            self.library,
        ]
        libraries = preloaded(*(product(name) for name in names))
        return {"LD_PRELOAD": libraries, **chosen, **self.options}


# In turns, from a random one on.
CORRUPTED = (
    Way(HARDENED, "all"),
    Way(DEFAULT, words=("heaps",)),
    Way(HARDENED, "all,sweep"),
    Way(HARDENED, "-guards,-empty", options={"ALLOD_PURGE_DELAY": "0"}),
    Way(HARDENED, "-canary", options={"ALLOD_CACHES": "processor"}),
    Way(DEFAULT, words=("heaps",), options={"ALLOD_PURGE_DELAY": "0"}),
    Way(HARDENED, "-shuffle,-positions,-addresses,-neighbours"),
    Way(HARDENED, "all,history"),
    Way(HARDENED, "all", words=("copies",)),
    Way(HARDENED, "-origin,-zero", options={"ALLOD_HUGE_PAGES": "never"}),
    Way(HARDENED, "all", words=(MANY_BLOCKS,)),
    Way(HARDENED, "-written", options={"ALLOD_CACHES": "thread"}),
    Way(DEFAULT, words=("heaps", MANY_BLOCKS)),
    Way(HARDENED, "-canary", words=("copies",), options={"ALLOD_PURGE_DELAY": "0"}),
    Way(HARDENED, "-quarantine", options={"ALLOD_HUGE_PAGES": "1M"}),
    Way(HARDENED, "all,sweep", options={"ALLOD_PURGE_DELAY": "0"}),
)
# One that hangs is a finding.
PATIENCE_SECONDS = 600


NUMBERS = ("seconds", "executions", "defects", "findings")


@dataclass(frozen=True)
class Piece:
    """What one target did at one time. Executions: inputs, or calls with defects among them."""

    date: str
    commit: str
    target: str
    seconds: int
    executions: int
    defects: int
    findings: int


COLUMNS = [column.name for column in fields(Piece)]


def fuzzer_command(
    executable: Path, corpora: Iterable[Path], *, seconds: int
) -> list[str]:
    """Replays the corpora that are there, and looks for new inputs; into the first go those."""
    folders = [str(folder) for folder in corpora if folder.is_dir()]
    return [
        str(executable),
        f"-max_total_time={seconds}",
        f"-artifact_prefix={folders[0]}-",
        "-timeout=20",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        *folders,
    ]


def _keep(target: str, command: list[str], ended: Ended) -> None:
    text = f"$ {' '.join(command)}\n{ended.explained()}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"{target}-", suffix=".log", dir=build_dir("fuzz"), delete=False
        ) as file:
            file.write(text)
    except OSError as error:
        say(f"{target} found a failure, which cannot be saved ({error.strerror}):")
        say(text)
    else:
        say(f"{target} found something: {shown(Path(file.name))}")


def _fuzz_layer(
    target: str, seconds: int, stop: threading.Event
) -> tuple[int, int, int]:
    """Executions, defects and findings. What it learns is kept in the build folder."""
    folder = build_dir("fuzz") / "tests"
    learned = folder / "corpus" / target
    learned.mkdir(parents=True, exist_ok=True)
    known = ROOT / "tests" / "fuzz" / "corpus" / target
    command = fuzzer_command(folder / target, (learned, known), seconds=seconds)
    ended = run_to_end(command, seconds=seconds + PATIENCE_SECONDS, stop=stop)
    if ended.was_stopped:
        # As far as it had come when it last said so.
        counted = re.findall(r"^#(\d+)\s", ended.output, re.MULTILINE)
        return int(counted[-1]) if counted else 0, 0, 0
    counted = re.findall(r"stat::number_of_executed_units:\s+(\d+)", ended.output)
    if ended.status != 0:
        _keep(target, command, ended)
    return int(counted[0]) if counted else 0, 0, 0 if ended.status == 0 else 1


def _fuzz_corruption(seconds: int, stop: threading.Event) -> tuple[int, int, int]:
    """The same. A run that is stopped does not count."""
    program = build_dir("release") / "tests" / "death" / CORRUPTION
    end = time.monotonic() + seconds
    calls = defects = findings = 0
    first = secrets.randbelow(len(CORRUPTED))
    ways = itertools.cycle((*CORRUPTED[first:], *CORRUPTED[:first]))
    while time.monotonic() < end and not stop.is_set():
        way = next(ways)
        arguments = [str(secrets.randbits(62)), str(CALLS), *way.arguments]
        command = [str(program), *arguments]
        variables = way.variables
        ended = run_to_end(command, seconds=PATIENCE_SECONDS, stop=stop, **variables)
        if ended.was_stopped:
            break
        counted = re.search(r"(\d+) operations, (\d+) defects, all found", ended.output)
        if ended.status != 0 or counted is None:
            findings += 1
            settings = [f"{name}={value}" for name, value in variables.items()]
            _keep(CORRUPTION, ["env", *settings, *command], ended)
        else:
            calls += int(counted[1])
            defects += int(counted[2])
    return calls, defects, findings


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    command = [*git, "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    command = [*git, "diff", "--quiet", "HEAD", "--", "include", "src", "tests"]
    command.append(f":!{RECORD_NAME}")
    is_changed = subprocess.run(command, capture_output=True, check=False).returncode
    return (done.stdout.strip() or "unknown") + ("-changed" if is_changed else "")


def _fuzz(
    target: str, seconds: int, commit: str, stop: threading.Event
) -> Piece | None:
    """None: it was not begun."""
    if stop.is_set():
        return None
    start = time.monotonic()
    count = (
        _fuzz_corruption(seconds, stop)
        if target == CORRUPTION
        else _fuzz_layer(target, seconds, stop)
    )
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    took = round(time.monotonic() - start)
    piece = Piece(date, commit, target, took, *count)
    say(
        f"{target}: {piece.executions:,} executions, {piece.defects:,} defects, "
        f"{piece.findings} findings in {piece.seconds} s"
    )
    return piece


def fuzz(targets: list[str], minutes: float, jobs: int, *, record: bool) -> int:
    """Divides the time among the targets; returns how many findings there were.

    Whoever interrupts it gets what was done until then, and a Failure with status 130.
    """
    ensure_built(PRESETS["release"], tests=True)
    ensure_built(PRESETS["fuzz"], tests=True)
    seconds = max(1, round(minutes * 60 * min(jobs, len(targets)) / len(targets)))
    commit = _commit()
    say(f"{', '.join(targets)}: {seconds} s each")
    stop = threading.Event()
    was_interrupted = False
    # In the background, shells have SIGINT ignored.
    interrupted = handled_by(signal.default_int_handler, signal.SIGINT, signal.SIGTERM)
    with interrupted, ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(_fuzz, each, seconds, commit, stop) for each in targets]
        try:
            wait(runs)
        except KeyboardInterrupt:
            was_interrupted = True
            say("interrupted: stopping the fuzzers")
        finally:
            stop.set()
    pieces = [piece for run in runs if (piece := run.result()) is not None]
    if record:
        _record(pieces)
    if was_interrupted:
        raise Failure("interrupted", status=130)
    return sum(piece.findings for piece in pieces)


def _record(pieces: Iterable[Piece]) -> None:
    """Says the rows first: where they cannot be written they are not lost."""
    rows = io.StringIO()
    writer = csv.DictWriter(rows, COLUMNS, lineterminator="\n")
    writer.writerows(asdict(piece) for piece in pieces)
    for row in rows.getvalue().splitlines():
        say(row)
    try:
        is_new = not RECORD.exists()
        with RECORD.open("a", newline="") as file:
            header = ",".join(COLUMNS) + "\n" if is_new else ""
            file.write(header + rows.getvalue())
    except OSError as error:
        raise Failure(
            f"cannot add the lines above to {shown(RECORD)}: {error.strerror}"
        ) from error
    say(f"added to {shown(RECORD)}")


def _sums() -> dict[str, list[int]]:
    """Of each target: the numbers of all its rows."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(NUMBERS))
    try:
        rows = RECORD.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise Failure(
            f"{shown(RECORD)} does not exist: nothing has been recorded"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Failure(f"cannot read {shown(RECORD)}: {reason}") from error
    for line, row in enumerate(csv.DictReader(rows), start=2):
        try:
            numbers = [int(row[column]) for column in NUMBERS]
            target = row["target"]
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(f"{shown(RECORD)}:{line} is not a valid row") from error
        sums[target] = [a + b for a, b in zip(sums[target], numbers, strict=True)]
    return sums


def totals() -> str:
    """The record, summed up by target."""
    sums = _sums()
    lines = ["target          hours      executions      defects  findings"]
    for target, (seconds, executions, defects, findings) in sorted(sums.items()):
        lines.append(
            f"{target:<12} {seconds / 3600:8.2f} {executions:15,} {defects:12,} {findings:9,}"
        )
    injected = sums[CORRUPTION][0] if CORRUPTION in sums else 0
    hours = sum(numbers[0] for numbers in sums.values()) / 3600
    lines.append(f"{'all':<12} {hours:8.2f}")
    lines.append(f"with injected corruption {injected / 3600:.2f}")
    return "\n".join(lines)
