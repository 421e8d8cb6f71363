"""What it costs a program that its memory goes back to the system, by strace and by the times of
its threads."""

import contextlib
import math
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.compare.cases import Case
from bench.compare.peers import Peer
from bench.compare.processes import RunError
from bench.compare.runner import command, environment

_LONGEST_SECONDS = 300
# Threads of a library come from pthread_create, which is clone3 since glibc 2.34 where the kernel
# has it; a helper that an allocator makes by itself comes from clone.
_THREAD = re.compile(r"^\d+ .*\bclone3\b.* = (\d+)(?: <[\d.]+>)?$")
_NO_CLONE3 = re.compile(r"\bclone3\b.* = -1 ENOSYS ")
_CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(.*)<([\d.]+)>$")
_BEGINS = re.compile(r"^(\d+) .*(?:MADV_DONTNEED|MADV_FREE|munmap\().*<unfinished")
_EVERY_SECONDS = 0.002
_ALL_SIGNALS = 2**31 - 1  # at least; two are never blocked


@dataclass(frozen=True)
class Purging:
    """One workload under one allocator."""

    peer: str
    case: str
    calls: int  # by which threads of the program gave memory back
    held_us: float  # so long 99 % of these took at most, with what strace adds
    helper_share: float  # of the processor time

    @property
    def key(self) -> tuple[str, str]:
        return self.case, self.peer


def measure(programs: Path, case: Case, peer: Peer, *, quick: bool) -> Purging:
    """Runs the workload twice: under strace, and beside somebody who looks at its threads."""
    run = command(programs, case, quick=quick)
    held = calls_of_program(trace(run, environment(peer)))
    share = _helper_share(run, environment(peer))
    return Purging(peer.name, case.name, len(held), percentile_99(held), share)


def percentile_99(values: Iterable[float]) -> float:
    """99 % of them are at most as large; 0 if there are none."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else 0.0


def trace(run: list[str], variables: dict[str, str]) -> str:
    """What strace says of threads that begin, and of memory that goes back."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        passed = [
            p for name, value in variables.items() for p in ("-E", f"{name}={value}")
        ]
        calls = "trace=clone,clone3,madvise,munmap"
        done = subprocess.run(
            ["strace", "-f", "-T", "-qq", "-e", calls, "-e", "signal=none"]
            + ["-o", str(log), *passed, *run],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_SECONDS,
        )
        if done.returncode != 0:
            raise RunError(f"strace: {done.stderr.strip() or done.returncode}")
        text = log.read_text()
    if _NO_CLONE3.search(text):
        raise RunError("strace: without clone3, no helper can be told from a thread")
    return text


def threads_of_program(log: str) -> set[str]:
    """The numbers of those that the program has made, and its first."""
    lines = log.splitlines()
    first = {line.split(maxsplit=1)[0] for line in lines[:1]}
    return first | {found[1] for line in lines if (found := _THREAD.match(line))}


def calls_of_program(log: str) -> list[float]:
    """Microseconds of each call by which a thread of the program gave memory back."""
    ours = threads_of_program(log)
    begun: set[str] = set()
    held: list[float] = []
    for line in log.splitlines():
        if begins := _BEGINS.match(line):
            begun.add(begins[1])
            continue
        call = _CALL.match(line)
        if call is None or call[2] not in ("madvise", "munmap"):
            continue
        gives = call[2] == "munmap" or "MADV_DONTNEED" in line or "MADV_FREE" in line
        if "resumed>" in line:
            gives = call[1] in begun
            begun.discard(call[1])
        if gives and call[1] in ours:
            held.append(float(call[4]) * 1e6)
    return held


def _helper_share(run: list[str], variables: dict[str, str]) -> float:
    """Of the processor time, that of threads which are never open to any signal."""
    before = _seconds_of_children()
    spent: dict[str, int] = {}
    open_to_some: set[str] = set()
    with subprocess.Popen(
        run, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        end = time.monotonic() + _LONGEST_SECONDS
        while process.poll() is None:
            if time.monotonic() > end:
                process.kill()
                raise RunError(f"not finished after {_LONGEST_SECONDS} s")
            _look(Path(f"/proc/{process.pid}/task"), spent, open_to_some)
            time.sleep(_EVERY_SECONDS)
    if process.returncode != 0:
        raise RunError(f"exit status {process.returncode}")
    helpers = sum(
        nanoseconds
        for thread, nanoseconds in spent.items()
        if thread not in open_to_some
    )
    return helpers * 1e-9 / max(_seconds_of_children() - before, 1e-9)


def _look(tasks: Path, spent: dict[str, int], open_to_some: set[str]) -> None:
    """Threads may end meanwhile."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(tasks):
            if thread in open_to_some:
                continue
            with contextlib.suppress(OSError):
                status = (tasks / thread / "status").read_text()
                blocked = next(
                    line.split()[1]
                    for line in status.splitlines()
                    if line.startswith("SigBlk:")
                )
                # pthread_create blocks all while the thread begins: who is ever open is none.
                if bin(int(blocked, 16)).count("1") < bin(_ALL_SIGNALS).count("1"):
                    open_to_some.add(thread)
                    continue
                times = (tasks / thread / "schedstat").read_text().split()
                spent[thread] = int(times[0])


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
