"""What every script of a real program shares: needs, inputs, one run, one report.

A script is run as `python -m bench.programs.NAME`. BENCH_PRELOAD names the library whose
malloc the real program gets; empty or absent means libc's own. The report is one JSON
object on stdout. Exit status: 1 with a message when the measurement failed, 2 for bad
arguments, 77 with a reason when the real program is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import invalidate_caches, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from allod.console import Failure as Unavailable
from workshop.environment import ensure_programs

from bench.compare import packages
from bench.programs.process import (
    RUN_SECONDS,
    SYSTEM_PATH,
    Allocator,
    Argument,
    Failure,
    Program,
    Usage,
    digest,
    started,
    system_environment,
)

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ROOT / "build" / "bench" / "inputs"
WORK = Path(__file__).with_name("work")
MISSING = 77
MOST_PERCENT = 10_000
FULL_PERCENT = 100
PREPARE_SECONDS = 240.0


class Missing(Exception):
    """A program is not there; the text says which package brings it."""


@dataclass(frozen=True)
class Outcome:
    """What a run found out, beside what the process used."""

    usage: Usage
    ops: int
    checksum: str
    points: Mapping[str, float] = field(default_factory=dict)
    """Nanoseconds of one operation, by kind."""
    figures: Sequence[tuple[str, float, str, str]] = ()
    """Name, value, unit, and whether less or more is better."""


@dataclass
class Bench:
    """One invocation: how much work, whose malloc, and where files may be put."""

    percent: int
    options: argparse.Namespace
    allocator: Allocator
    directory: Path
    malloc_from: str = ""
    runs: int = 0

    def count(self, full: int) -> int:
        """The part of a full run's amount, at least one."""
        return max(1, full * self.percent // FULL_PERCENT)

    @contextmanager
    def start(
        self,
        *command: Argument,
        environment: Mapping[str, str] | None = None,
        stdin: Path | None = None,
    ) -> Iterator[Program]:
        """Starts the real program with its malloc; it is ended in any case."""
        program = which(str(command[0]))
        preload, self.malloc_from = self.allocator.place(program)
        self.runs += 1
        directory = self.directory / f"run{self.runs}"
        directory.mkdir()
        with started(
            (program, *command[1:]),
            preload,
            self.allocator.library,
            directory,
            environment or {},
            stdin,
        ) as process:
            yield process

    def run(
        self,
        *command: Argument,
        environment: Mapping[str, str] | None = None,
        stdin: Path | None = None,
    ) -> tuple[Usage, Path]:
        """Runs the real program to its end; returns what it used and its output."""
        with self.start(*command, environment=environment, stdin=stdin) as program:
            return program.wait(RUN_SECONDS), program.output

    def client(self, *command: Argument) -> str:
        """Runs a program that is not measured, and returns what it printed."""
        return tool(*command, directory=self.directory)


@dataclass(frozen=True)
class Script:
    """A real program with its work."""

    name: str
    about: str
    needs: Mapping[str, str]
    """Commands, or files by their path, and the Debian package of each; first of all the
    program that is measured."""
    run: Callable[[Bench], Outcome]
    inputs: Callable[[Bench], object] | None = None
    """Makes what the run reads, where it is not there yet."""
    quick: int = 25
    """How much of the full work a quick run does, in percent."""
    options: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds parameters of its own."""
    module: str = ""
    """The program is this Python package, of tools/requirements-programs.txt."""

    def missing(self) -> list[str]:
        """The Debian packages of whatever is not there."""
        return sorted({p for name, p in self.needs.items() if find(name) is None})

    def missing_module(self) -> bool:
        """Whether the Python package is not there."""
        return bool(self.module) and find_spec(self.module) is None

    def version(self) -> str:
        """Where the measured program is from, its package, and its version."""
        if self.module:
            return f"Python index, {self.module} {metadata.version(self.module)}"
        package = next(iter(self.needs.values()))
        return f"Debian, {package} {packages.version(package) or '(not of a package)'}"


def find(command: str) -> str | None:
    """The path of a command of the system, or of a file, if it is there."""
    if command.startswith("/"):
        return command if Path(command).exists() else None
    return shutil.which(command, path=SYSTEM_PATH)


def which(command: str) -> str:
    """The path of a command of the system, which must be there."""
    found = find(command)
    if found is None:
        raise Missing(f"{command} is missing")
    return found


def tool(
    *command: Argument,
    directory: Path,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a helper program without any preloaded library."""
    try:
        done = subprocess.run(
            [which(str(command[0])), *(str(part) for part in command[1:])],
            env={**system_environment(directory), **(environment or {})},
            cwd=directory,
            input=stdin,
            capture_output=True,
            timeout=PREPARE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{command[0]}: not finished after {error.timeout:g} s") from None
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace")[-1000:].strip()
        raise Failure(f"{command[0]}: exit status {done.returncode} {text}")
    return done.stdout.decode(errors="replace")


def cached(
    name: str, make: Callable[[Path], None], *depends_on: bytes | Path | int
) -> Path:
    """A file or folder that is made once, and again when something it depends on changes.

    `make` gets the path that it has to create. The rest is what its contents depend on,
    the module that makes it among them.
    """
    parts = (
        str(part).encode() if isinstance(part, int) else part for part in depends_on
    )
    stem, dot, suffix = name.partition(".")
    path = INPUTS / f"{stem}-{digest(*parts)}{dot}{suffix}"
    if not path.exists():
        INPUTS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=INPUTS, prefix=".new-") as folder:
            fresh = Path(folder) / path.name
            make(fresh)
            try:
                fresh.rename(path)
            except OSError:
                # Another process was faster with the same contents.
                if not path.exists():
                    raise
    return path


def install(script: Script) -> None:
    """Installs the packages of whatever is missing; no service is started by that."""
    try:
        packages.install(script.missing())
        if script.missing_module():
            ensure_programs()
            invalidate_caches()
    except Unavailable as reason:
        raise Missing(str(reason)) from None


def report(script: Script, bench: Bench, outcome: Outcome) -> str:
    """The JSON object of the workloads."""
    usage = outcome.usage
    chosen = {
        name: value
        for name, value in vars(bench.options).items()
        if name not in {"quick", "scale", "prepare", "no_install"}
    }
    document: dict[str, object] = {
        "workload": script.name,
        "params": {**chosen, "scale": bench.percent},
        "seconds": round(usage.seconds, 9),
        "ops": outcome.ops,
        "checksum": outcome.checksum,
        "user_seconds": round(usage.user_seconds, 6),
        "system_seconds": round(usage.system_seconds, 6),
        "minor_faults": usage.minor_faults,
        "major_faults": usage.major_faults,
        "voluntary_switches": usage.voluntary_switches,
        "involuntary_switches": usage.involuntary_switches,
        "peak_rss_kib": usage.peak_rss_kib,
        "final_rss_kib": usage.final_rss_kib,
        "malloc_from": bench.malloc_from,
        "expected_library": None if bench.allocator.library is None else True,
        "compiler": script.version(),
    }
    if outcome.points:
        document["points"] = [
            {"name": name, "nanoseconds": value}
            for name, value in outcome.points.items()
        ]
    if outcome.figures:
        document["figures"] = [
            {"name": name, "value": value, "unit": unit, "better": better}
            for name, value, unit, better in outcome.figures
        ]
    if usage.resident:
        document["series"] = [
            {"name": "resident", "x": "seconds", "y": "KiB", "points": usage.resident}
        ]
    return json.dumps(document)


def _parse(script: Script, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.programs.{script.name}", description=script.about
    )
    parser.add_argument("--quick", action="store_true", help="less work")
    parser.add_argument(
        "--scale", type=int, metavar="PERCENT", help="how much of the full work"
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="install the program, make its input, and measure nothing",
    )
    parser.add_argument(
        "--no-install", action="store_true", help="with --prepare: install nothing"
    )
    if script.options is not None:
        script.options(parser)
    options = parser.parse_args(arguments)
    if options.scale is not None and not 1 <= options.scale <= MOST_PERCENT:
        parser.error(f"--scale must be from 1 to {MOST_PERCENT}")
    return options


def _carry_out(script: Script, options: argparse.Namespace) -> None:
    may_install = options.prepare and not options.no_install
    if may_install and (script.missing() or script.missing_module()):
        install(script)
    if missing := script.missing():
        raise Missing(f"{script.name} needs the Debian packages {' '.join(missing)}")
    if script.missing_module():
        raise Missing(f"{script.name} needs the Python package {script.module}")
    chosen = options.scale or (script.quick if options.quick else None)
    with tempfile.TemporaryDirectory(prefix="allod-bench-") as folder:
        if options.prepare:
            # Without a choice, for both kinds of run.
            for percent in (chosen,) if chosen else (script.quick, FULL_PERCENT):
                bench = Bench(percent, options, Allocator(None), Path(folder))
                if script.inputs is not None:
                    script.inputs(bench)
            return
        allocator = Allocator.from_name(os.environ.get("BENCH_PRELOAD", ""))
        bench = Bench(chosen or FULL_PERCENT, options, allocator, Path(folder))
        print(report(script, bench, script.run(bench)))


def main(script: Script, arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one script and ends the process."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        _carry_out(script, _parse(script, arguments))
    except Missing as reason:
        print(f"missing: {reason}", file=sys.stderr)
        sys.exit(MISSING)
    except (Failure, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
