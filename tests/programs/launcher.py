"""Starts programs on one of two sides, plain or preloaded, and compares the sides."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

WORKLOADS = Path(__file__).parent / "workloads"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN_SECONDS = 240.0
"""How long a program may run before it counts as hung."""
READY_SECONDS = 60.0
"""How long a server may take to answer, or to end when told."""

Result = TypeVar("Result")
Argument = str | Path
DebianPackages = Callable[..., None]
"""The fixture that installs Debian packages, or skips the test."""


def digest(data: bytes) -> str:
    """The SHA-256 of some bytes, for results too long to compare in full."""
    return hashlib.sha256(data).hexdigest()


def digests(directory: Path, pattern: str) -> dict[str, str]:
    """The SHA-256 of each file below a directory that matches, by relative name."""
    return {
        str(path.relative_to(directory)): digest(path.read_bytes())
        for path in sorted(directory.rglob(pattern))
        if path.is_file()
    }


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Polls until the condition holds, and fails when that takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


def listens(address: Path | int) -> bool:
    """Whether somebody accepts connections on a socket file or a loopback port."""
    local = isinstance(address, Path)
    with socket.socket(socket.AF_UNIX if local else socket.AF_INET) as probe:
        return probe.connect_ex(str(address) if local else ("127.0.0.1", address)) == 0


def mapped_files(pid: int) -> set[str]:
    """The files that a living process has in its address space."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if "/" in line}


def children(pid: int) -> list[int]:
    """The direct children of a living process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


@dataclass(frozen=True)
class Finished:
    """What a program left when it had ended."""

    status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.output.decode(errors="replace")


@dataclass(frozen=True)
class Image:
    """One program image that was started, as it testified itself."""

    pid: int
    executable: Path
    allocator: str
    library_mapped: bool


@dataclass
class Server:
    """A program that runs until it is stopped."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The process id of the program itself."""
        return self.process.pid

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Polls until the condition holds, and fails at once if the server ended."""

        def holds() -> bool:
            assert self.process.poll() is None, (
                f"the server ended with {self.process.returncode}: {self.errors()}"
            )
            return condition()

        wait_until(holds, what)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Asks the program to end, waits for that and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        """Waits for a program that has been told to end by other means."""
        return self.process.wait(READY_SECONDS)

    def kill(self) -> None:
        """Ends whatever is left of the program and its children."""
        kill_group(self.process)

    def errors(self) -> str:
        """The end of what the server printed."""
        return self.log.read_text(errors="replace")[-4000:]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the session that a process leads, and waits for its leader."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Preload:
    """A library that is tried, and with which options."""

    library: Path
    options: Mapping[str, str]
    is_hardened: bool


@dataclass
class Launcher:
    """Starts programs on one side: all with the library preloaded, or none."""

    directory: Path
    preload: Preload
    witness: Path
    preloads: bool
    servers: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir()
        self.directory.chmod(0o777)
        self.journal.touch()
        self.journal.chmod(0o666)

    @property
    def library(self) -> Path:
        """The library, on the plain side as well."""
        return self.preload.library

    @property
    def journal(self) -> Path:
        """Where the witness writes down which programs were started."""
        return self.directory.with_suffix(".journal")

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of every program: nothing is inherited."""
        preloaded = [str(self.library)] if self.preloads else []
        options = self.preload.options if self.preloads else {}
        return {
            "PATH": SYSTEM_PATH,
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "LD_PRELOAD": " ".join([str(self.witness), *preloaded]),
            "WITNESS_JOURNAL": str(self.journal),
            "WITNESS_LIBRARY": str(self.library),
            **options,
            **(extra or {}),
        }

    def run(
        self,
        *command: Argument,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        user: str | None = None,
        succeeds: bool = True,
        seconds: float = RUN_SECONDS,
    ) -> Finished:
        """Runs a program to its end, and expects it to succeed unless told not to."""
        process = self._popen(
            command,
            environment,
            directory,
            user,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            output, errors = process.communicate(stdin, timeout=seconds)
        finally:
            kill_group(process)
        finished = Finished(process.returncode, output, errors.decode(errors="replace"))
        assert finished.status == 0 or not succeeds, (
            f"{command[0]} ended with {finished.status}:"
            f" {finished.text[-2000:]}\n{finished.errors[-4000:]}"
        )
        assert "allod: " not in finished.errors, finished.errors[-4000:]
        return finished

    @contextmanager
    def serve(
        self,
        *command: Argument,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Iterator[Server]:
        """Starts a server, and ends it and its children in any case."""
        log = self.directory / f"server-{len(self.servers)}.log"
        with log.open("wb") as output:
            process = self._popen(
                command,
                environment,
                None,
                user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        server = Server(process, log)
        self.servers.append(server)
        try:
            yield server
        finally:
            server.kill()
        assert "allod: " not in log.read_text(errors="replace"), server.errors()

    def close(self) -> None:
        """Ends whatever a failed test may have left running."""
        for server in self.servers:
            server.kill()

    def images(self) -> list[Image]:
        """Every program image that was started on this side, in order."""
        lines = self.journal.read_text().splitlines()
        return [
            Image(int(pid), Path(executable), allocator, mapped == "1")
            for pid, executable, allocator, mapped in (
                line.split("\t") for line in lines
            )
        ]

    def images_of(self, program: Argument) -> list[Image]:
        """The images of one program, which must have been started at least once."""
        found = shutil.which(program, path=SYSTEM_PATH)
        name = Path(found).resolve().name if found else Path(program).name
        images = self.images()
        matching = [image for image in images if image.executable.name == name]
        started = {image.executable.name for image in images}
        assert matching, f"{name} was not started, but {started}"
        return matching

    def check_allocator_of(self, *programs: Argument) -> None:
        """Checks that every image of each program got the malloc of this side."""
        for program in programs:
            for image in self.images_of(program):
                assert image.library_mapped == self.preloads, image
                assert (image.allocator == str(self.library)) == self.preloads, image

    def check_mapped_in(self, *pids: int) -> None:
        """Checks that living processes have the library mapped, or not, by side."""
        assert pids
        for pid in pids:
            assert (str(self.library) in mapped_files(pid)) == self.preloads, pid

    def _popen(
        self,
        command: Sequence[Argument],
        environment: Mapping[str, str] | None,
        directory: Path | None,
        user: str | None,
        *,
        stdin: int,
        stdout: int | IO[bytes],
        stderr: int,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(argument) for argument in command],
            env=self.environment(environment),
            cwd=directory or self.directory,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            start_new_session=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )


@dataclass(frozen=True)
class Sides:
    """The two sides of one comparison."""

    plain: Launcher
    preloaded: Launcher

    def agree_on(self, work: Callable[[Launcher], Result]) -> Result:
        """Does the work on both sides and returns the result they agree on."""
        expected = work(self.plain)
        assert work(self.preloaded) == expected
        return expected
