"""`./allod fuzz`: the fuzzers, for longer than in the tests, with a record of what they did."""

from __future__ import annotations

import csv
import itertools
import re
import secrets
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from allod.build import PRESETS, ensure_built, product
from allod.console import Failure, say
from allod.paths import ROOT, build_dir, shown
from allod.programs import Ended, run_to_end

LAYERS = ("fuzz_space", "fuzz_slab", "fuzz_heap")
CORRUPTION = "corruption"
TARGETS = (*LAYERS, CORRUPTION)
RECORD_NAME = "tests/fuzz/record.csv"
RECORD = ROOT / RECORD_NAME
# Calls of one run of random calls with defects among them: each run begins with a fresh process.
CALLS = 200_000
# In turns: the library, what the program is to do besides, and the measures. What the model says is
# found without those that are left out here.
CORRUPTED = (
    ("liballod-hardened.so", (), "all"),
    ("liballod.so", ("heaps",), None),
    ("liballod-hardened.so", (), "all,sweep"),
    ("liballod-hardened.so", (), "-guards,-empty"),
    ("liballod.so", ("heaps",), None),
    ("liballod-hardened.so", (), "-shuffle,-positions,-addresses,-neighbours"),
    ("liballod-hardened.so", (), "all,history"),
)
# One that hangs is a finding.
PATIENCE_SECONDS = 600


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
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"{target}-", suffix=".log", dir=build_dir("fuzz"), delete=False
    ) as file:
        file.write(f"$ {' '.join(command)}\n{ended.explained()}")
    say(f"{target} found something: {shown(Path(file.name))}")


def _fuzz_layer(target: str, seconds: int) -> tuple[int, int, int]:
    """Executions, defects and findings. What it learns is kept in the build folder."""
    folder = build_dir("fuzz") / "tests"
    learned = folder / "corpus" / target
    learned.mkdir(parents=True, exist_ok=True)
    known = ROOT / "tests" / "fuzz" / "corpus" / target
    command = fuzzer_command(folder / target, (learned, known), seconds=seconds)
    ended = run_to_end(command, seconds=seconds + PATIENCE_SECONDS)
    counted = re.search(r"stat::number_of_executed_units:\s+(\d+)", ended.output)
    if ended.status != 0:
        _keep(target, command, ended)
    return int(counted[1]) if counted else 0, 0, 0 if ended.status == 0 else 1


def _fuzz_corruption(seconds: int) -> tuple[int, int, int]:
    program = build_dir("release") / "tests" / "death" / CORRUPTION
    end = time.monotonic() + seconds
    calls = defects = findings = 0
    ways = itertools.cycle(CORRUPTED)
    while time.monotonic() < end:
        library, words, measures = next(ways)
        variables = {"LD_PRELOAD": str(product(library))}
        if measures is not None:
            variables["ALLOD_HARDENED"] = measures
        command = [str(program), str(secrets.randbits(62)), str(CALLS), *words]
        ended = run_to_end(command, seconds=PATIENCE_SECONDS, **variables)
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


def _fuzz(target: str, seconds: int, commit: str) -> Piece:
    start = time.monotonic()
    count = (
        _fuzz_corruption(seconds)
        if target == CORRUPTION
        else _fuzz_layer(target, seconds)
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
    """Divides the time among the targets; returns how many findings there were."""
    ensure_built(PRESETS["release"], tests=True)
    ensure_built(PRESETS["fuzz"], tests=True)
    seconds = max(1, round(minutes * 60 * min(jobs, len(targets)) / len(targets)))
    commit = _commit()
    say(f"{', '.join(targets)}: {seconds} s each")
    with ThreadPoolExecutor(jobs) as pool:
        pieces = list(pool.map(lambda target: _fuzz(target, seconds, commit), targets))
    if record:
        is_new = not RECORD.exists()
        with RECORD.open("a", newline="") as file:
            columns = [field.name for field in fields(Piece)]
            rows = csv.DictWriter(file, columns, lineterminator="\n")
            if is_new:
                rows.writeheader()
            rows.writerows(asdict(piece) for piece in pieces)
        say(f"added to {shown(RECORD)}")
    return sum(piece.findings for piece in pieces)


def totals() -> str:
    """The record, summed up by target."""
    if not RECORD.exists():
        raise Failure(f"{shown(RECORD)} is not there: nothing has been recorded")
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    with RECORD.open(newline="") as file:
        for row in csv.DictReader(file):
            numbers = sums[row["target"]]
            for i, column in enumerate(
                ("seconds", "executions", "defects", "findings")
            ):
                numbers[i] += int(row[column])
    lines = ["target          hours      executions      defects  findings"]
    for target, (seconds, executions, defects, findings) in sorted(sums.items()):
        lines.append(
            f"{target:<12} {seconds / 3600:8.2f} {executions:15,} {defects:12,} {findings:9,}"
        )
    hours = sum(numbers[0] for numbers in sums.values()) / 3600
    lines.append(f"{'all':<12} {hours:8.2f}")
    return "\n".join(lines)
