"""One real program under one malloc: starts it, watches it, and says what it used."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where packages put programs. Others of the same name may lie in /usr/local."""
RUN_SECONDS = 240.0
"""How long a program may run before it counts as hung; less than the runner waits."""
READY_SECONDS = 30.0
"""How long a server may take to answer, or to end when told."""
HEED_SECONDS = 0.5
"""How long a signal may go unheeded that came just before a wait, or to another thread."""
LOOK_SECONDS = 0.02
"""The time between two looks at the resident size."""
MOST_POINTS = 100
"""How many of these looks are reported."""
KIB_OF = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB$", re.MULTILINE)
SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)$", re.MULTILINE)
MALLOC_BINDING = re.compile(
    r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `malloc'"
)
LIBC = "libc.so.6"
PR_SET_PDEATHSIG = 1

_prctl = ctypes.CDLL(None).prctl

Argument = str | Path


class Failure(Exception):
    """The measurement cannot be made; the text says why."""


def system_environment(directory: Path) -> dict[str, str]:
    """The environment of whatever is started here: nothing is inherited."""
    return {
        "PATH": SYSTEM_PATH,
        "HOME": str(directory),
        "TMPDIR": str(directory),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }


def digest(*parts: bytes | Path) -> str:
    """A checksum of bytes and of files' contents."""
    sum_ = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    sum_.update(block)
        else:
            sum_.update(part)
    return sum_.hexdigest()[:16]


@dataclass(frozen=True)
class Usage:
    """What a process, or its measured part, took."""

    seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    voluntary_switches: int = 0
    involuntary_switches: int = 0
    peak_rss_kib: int = 0
    final_rss_kib: int = 0
    resident: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True)
class Allocator:
    """Whose malloc a program gets: that of a library, or libc's own."""

    library: Path | None

    @classmethod
    def from_name(cls, name: str) -> Allocator:
        """The library of that path; an empty name means libc's own malloc."""
        if not name:
            return cls(None)
        library = Path(name).resolve()
        if not library.is_file():
            raise Failure(f"the library to preload is not there: {name}")
        if any(character in str(library) for character in ": "):
            raise Failure(f"a path with a colon or a space cannot be preloaded: {name}")
        return cls(library)

    def place(self, program: str) -> tuple[str | None, str]:
        """What to preload into a program, and the file whose malloc it then calls.

        Some programs are linked with an allocator of their own, as Debian's redis with
        jemalloc. Preloading libc itself takes them back to libc's malloc.
        """
        if self.library is not None:
            return str(self.library), malloc_of(program, str(self.library))
        own = malloc_of(program, None)
        if Path(own).name.startswith("libc.so"):
            return None, own
        return LIBC, malloc_of(program, LIBC)


def malloc_of(program: str, preload: str | None) -> str:
    """Asks the dynamic loader which file's malloc a program would call.

    The loader resolves every symbol and stops there; nothing of the program runs. It must
    be linked dynamically: the kernel starts a static one without a loader.
    """
    environment = {
        "LD_TRACE_LOADED_OBJECTS": "1",
        "LD_WARN": "yes",
        "LD_BIND_NOW": "yes",
        "LD_DEBUG": "bindings",
        **({"LD_PRELOAD": preload} if preload else {}),
    }
    trace = subprocess.run(
        [program],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=READY_SECONDS,
        check=False,
    )
    bound = dict(MALLOC_BINDING.findall(trace.stderr))
    target = next(iter(bound.values()), None)
    if target is None:
        raise Failure(f"{program} calls no malloc that could be replaced")
    # An executable at a fixed address stands in for malloc and calls what it is bound to.
    return str(bound.get(program, target) if target == program else target)


def mapped_files(pid: int) -> set[str]:
    """The files that a living process has in its address space."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if "/" in line}


def memory_of(pid: int) -> tuple[int, int]:
    """Peak and present resident size in KiB; zeros when the process has ended."""
    sizes = dict(KIB_OF.findall(Path(f"/proc/{pid}/status").read_text()))
    return int(sizes.get("VmHWM", 0)), int(sizes.get("VmRSS", 0))


def usage_so_far(pid: int) -> Usage:
    """The counters of a living process, with all its threads."""
    status = Path(f"/proc/{pid}/stat").read_text()
    values = status.rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    switches = [0, 0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found = SWITCHES.findall((task / "status").read_text())
            switches = [
                sum_ + int(more) for sum_, more in zip(switches, found, strict=True)
            ]
    return Usage(
        seconds=time.monotonic(),
        user_seconds=int(values[11]) / tick,
        system_seconds=int(values[12]) / tick,
        minor_faults=int(values[7]),
        major_faults=int(values[9]),
        voluntary_switches=switches[0],
        involuntary_switches=switches[1],
    )


class Watch(threading.Thread):
    """Looks at a process until told to stop: its resident size, and the library."""

    def __init__(self, pid: int, library: Path | None) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.library = library
        self.library_seen = False
        self.peak_rss_kib = 0
        self.looks: list[tuple[float, int]] = []
        self._stop_now = threading.Event()
        self._started_at = time.monotonic()

    def run(self) -> None:
        """Until the loader has mapped the library, looks follow closely."""
        pause = 0.0
        while not self._stop_now.wait(pause):
            with suppress(OSError):
                self.look()
            waiting = self.library is not None and not self.library_seen
            early = time.monotonic() - self._started_at < 0.5
            pause = LOOK_SECONDS / 20 if waiting and early else LOOK_SECONDS

    def look(self) -> None:
        """One look; raises OSError when the process has ended."""
        if self.library is not None and not self.library_seen:
            self.library_seen = str(self.library) in mapped_files(self.pid)
        peak, resident = memory_of(self.pid)
        if resident > 0:
            self.peak_rss_kib = max(self.peak_rss_kib, peak)
            self.looks.append((time.monotonic() - self._started_at, resident))

    def stop(self) -> None:
        """Ends the watch."""
        self._stop_now.set()
        self.join()

    def resident(self) -> tuple[tuple[float, int], ...]:
        """The resident size over time."""
        step = len(self.looks) // MOST_POINTS + 1
        return tuple((round(at, 3), kib) for at, kib in self.looks[::step])


@dataclass
class Program:
    """A real program that runs under the allocator, in a session of its own."""

    name: str
    process: subprocess.Popen[bytes]
    watch: Watch
    output: Path
    errors: Path
    started_at: float
    own_rss_kib: int
    measured: Usage = field(default_factory=Usage)

    @property
    def pid(self) -> int:
        """The process id of the program itself."""
        return self.process.pid

    def wait(self, seconds: float) -> Usage:
        """Waits for the end, reaps the process, and fails unless all went well."""
        descriptor = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            until = time.monotonic() + seconds
            left = seconds
            # Python calls a handler between two waits: none may be long.
            while not (ended := poll.poll(min(left, HEED_SECONDS) * 1000)) and left > 0:
                left = max(0.0, until - time.monotonic())
        finally:
            os.close(descriptor)
        elapsed = time.monotonic() - self.started_at
        if not ended:
            raise Failure(f"{self.name}: not finished after {seconds:g} s")
        _, status, used = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.watch.stop()
        self.verify()
        final = self.watch.looks[-1][1] if self.watch.looks else 0
        # The kernel counts in ru_maxrss what this process had when it forked.
        peak = used.ru_maxrss if used.ru_maxrss > self.own_rss_kib else 0
        return Usage(
            seconds=elapsed,
            user_seconds=used.ru_utime,
            system_seconds=used.ru_stime,
            minor_faults=used.ru_minflt,
            major_faults=used.ru_majflt,
            voluntary_switches=used.ru_nvcsw,
            involuntary_switches=used.ru_nivcsw,
            peak_rss_kib=max(peak, final, self.watch.peak_rss_kib),
            final_rss_kib=final,
            resident=self.watch.resident(),
        )

    def verify(self) -> None:
        """Fails unless the program ended well and had the library."""
        status = self.process.returncode
        if status is not None and status < 0:
            how = signal.Signals(-status).name
            raise Failure(f"{self.name}: killed by {how} {self.tail()}".strip())
        if status:
            raise Failure(f"{self.name}: exit status {status} {self.tail()}".strip())
        if self.watch.library is not None and not self.watch.library_seen:
            raise Failure(f"{self.watch.library} was not loaded {self.tail()}".strip())

    def tail(self) -> str:
        """The end of what the program complained about."""
        return self.errors.read_text(errors="replace")[-1000:].strip()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """The measured part of a server's life."""
        self.check_alive()
        before = usage_so_far(self.pid)
        yield
        self.check_alive()
        after = usage_so_far(self.pid)
        peak, final = memory_of(self.pid)
        self.measured = Usage(
            seconds=after.seconds - before.seconds,
            user_seconds=after.user_seconds - before.user_seconds,
            system_seconds=after.system_seconds - before.system_seconds,
            minor_faults=after.minor_faults - before.minor_faults,
            major_faults=after.major_faults - before.major_faults,
            voluntary_switches=after.voluntary_switches - before.voluntary_switches,
            involuntary_switches=after.involuntary_switches
            - before.involuntary_switches,
            peak_rss_kib=peak,
            final_rss_kib=final,
        )

    def check_alive(self) -> None:
        """Fails when a server has ended by itself."""
        if self.process.poll() is not None:
            self.watch.stop()
            self.verify()
            raise Failure(f"{self.name}: the server has ended {self.tail()}".strip())

    def stop(self) -> Usage:
        """Tells a server to end, and returns the measured part of its life."""
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        self.wait(READY_SECONDS)
        return replace(self.measured, resident=self.watch.resident())

    def kill(self) -> None:
        """Ends whatever is left of the program and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self.watch.stop()


def _end_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def started(
    command: Sequence[Argument],
    preload: str | None,
    library: Path | None,
    directory: Path,
    environment: Mapping[str, str],
    stdin: Path | None,
) -> Iterator[Program]:
    """Starts a program with LD_PRELOAD for it alone, and ends it in any case."""
    variables = {**system_environment(directory), **environment}
    if preload is not None:
        # What the allocator is told besides: see Peer.variables.
        given = json.loads(os.environ.get("BENCH_VARIABLES", "{}"))
        behind = given.get("LD_PRELOAD", "")
        variables |= given | {"LD_PRELOAD": ":".join(filter(None, (preload, behind)))}
    output, errors = directory / "output", directory / "errors"
    own_rss_kib = memory_of(os.getpid())[0]
    with (
        Path(stdin or os.devnull).open("rb") as source,
        output.open("wb") as to_output,
        errors.open("wb") as to_errors,
    ):
        started_at = time.monotonic()
        process = subprocess.Popen(
            [str(argument) for argument in command],
            env=variables,
            cwd=directory,
            stdin=source,
            stdout=to_output,
            stderr=to_errors,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    watch = Watch(process.pid, library)
    watch.start()
    name = Path(command[0]).name
    program = Program(name, process, watch, output, errors, started_at, own_rss_kib)
    try:
        yield program
    finally:
        program.kill()
