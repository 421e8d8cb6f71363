"""A process that runs already, and serves no page, is asked for one."""

from __future__ import annotations

import ctypes
import gzip
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from allod import attach
from commands import allod

from .watched import Watched

Start = Callable[..., Any]

# What threads do while they are asked: how, and the end of the script that does it.
REST = {
    "sleep": "time.sleep(600)",
    "input": "sys.stdin.read()",
    "select": "select.select([0], [], [])",
    "event": "threading.Event().wait()",
    "join": "t = threading.Thread(target=sys.stdin.read); t.start(); t.join()",
    "child": "os.waitpid(os.posix_spawn('/bin/cat', ['cat'], {}), 0)",
    "compute": "while True: sum(range(1000))",
    "allocate": "while True: x = [bytes(100 + i) for i in range(1000)]",
    "threads": "while True: t = threading.Thread(target=int); t.start(); t.join()",
}


@pytest.fixture
def start(
    liballod: Path, liballod_live: Path, clean: dict[str, str]
) -> Callable[..., Any]:
    """start("python code", option="value") runs it on Allod, and waits until it begins."""
    del liballod_live  # It lies beside the other.

    @contextmanager
    def run(code: str, **options: str) -> Iterator[subprocess.Popen[str]]:
        variables = {f"ALLOD_{name.upper()}": value for name, value in options.items()}
        head = "import os, select, sys, threading, time\nprint('ready', flush=True)\n"
        with subprocess.Popen(
            ["/usr/bin/python3", "-c", head + code],
            env={**clean, "LD_PRELOAD": str(liballod), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()

    return run


def opened(process: subprocess.Popen[str]) -> Watched:
    """The page that the command opens."""
    done = allod("live", str(process.pid))
    assert (done.returncode, done.stderr) == (0, "")
    number, link, name = done.stdout.split()
    assert (int(number), name) == (process.pid, "python3")
    return Watched(process, link)


def threads_of(process: subprocess.Popen[str]) -> int:
    return len(os.listdir(f"/proc/{process.pid}/task"))


def names_of_threads(process: subprocess.Popen[str]) -> set[str]:
    tasks = Path(f"/proc/{process.pid}/task")
    return {(task / "comm").read_text().strip() for task in tasks.iterdir()}


@pytest.mark.parametrize("how", REST)
def test_a_page_is_opened_whatever_the_program_does(start: Start, how: str) -> None:
    with start(REST[how]) as process:
        state = opened(process).fresh_state()
        assert state["process"]["id"] == process.pid
        assert state["profile"]["interval"] == 512 << 10
        assert process.poll() is None


def test_a_page_can_be_closed_and_opened_again(start: Start) -> None:
    with start("time.sleep(600)") as process:
        assert threads_of(process) == 1
        links = set()
        for _ in range(2):
            links.add(opened(process).link)
            assert opened(process).link in links, "it is the same while it is open"
            assert allod("live", "--close", str(process.pid)).returncode == 0
            end = time.monotonic() + 30
            while threads_of(process) > 1 and time.monotonic() < end:
                time.sleep(0.01)
            assert threads_of(process) == 1
        assert len(links) == 2


def send(process: int, number: int) -> None:
    libc = ctypes.CDLL(None)
    libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    assert libc.sigqueue(process, signal.SIGURG, number) == 0


def maps_of(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/maps").read_text()


ECHO = "for line in sys.stdin: print('again', flush=True)"


def said_again(process: subprocess.Popen[str]) -> bool:
    """Whether the program goes on; all signals that were sent before have been taken then."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("x\n")
    process.stdin.flush()
    return process.stdout.readline() == "again\n"


def test_other_signals_open_nothing(start: Start) -> None:
    with start(ECHO) as process:
        process.send_signal(signal.SIGURG)
        send(process.pid, attach.REQUEST + 1)
        assert said_again(process)
        assert "liballod-live" not in maps_of(process)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("", {"attach": "0"}),
        ("import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n", {}),
        pytest.param(
            "os.setresuid(65534, 65534, 65534)\n",
            {},
            marks=pytest.mark.skipif(os.getuid() != 0, reason="for root"),
        ),
        (
            "import signal; signal.signal(signal.SIGURG, lambda *_: None)\n",
            {},
        ),
    ],
    ids=["forbidden", "undumpable", "another user", "its own handler"],
)
def test_who_must_not_takes_no_request(
    start: Start, code: str, options: dict[str, str]
) -> None:
    """Asked as root, which may send a signal to every process."""
    with start(f"{code}print('set', flush=True)\n{ECHO}", **options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        for _ in range(20):
            send(process.pid, attach.REQUEST)
            assert said_again(process)
        assert threads_of(process) == 1
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Threads:\t1\n" in status


def test_a_debugger_opens_it_where_no_requests_are_taken(start: Start) -> None:
    with start("time.sleep(600)", attach="0") as process:
        if not any(
            os.access(Path(folder) / "gdb", os.X_OK)
            for folder in os.environ["PATH"].split(os.pathsep)
        ):
            done = allod("live", str(process.pid))
            said = f"allod: error: process {process.pid} takes no requests; install gdb"
            assert done.returncode == 1
            assert done.stderr.startswith(said)
            return
        assert opened(process).fresh_state()["process"]["id"] == process.pid


def test_a_process_without_allod_is_told_in_one_line(clean: dict[str, str]) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env=clean) as process:
        try:
            for command in (["live"], ["profile"], ["top", "--once"]):
                done = allod(*command, str(process.pid))
                assert (done.returncode, done.stdout) == (1, "")
                assert done.stderr == (
                    f"allod: error: process {process.pid} does not run on Allod;"
                    " start it with allod run -- PROGRAM\n"
                )
        finally:
            process.kill()


def test_top_says_how_to_open_a_page(start: Start) -> None:
    with start("time.sleep(600)") as process:
        done = allod("top", "--once", str(process.pid))
        assert done.returncode == 1
        assert done.stderr == (
            f"allod: error: process {process.pid} serves no live page;"
            f" allod live {process.pid} opens one\n"
        )


GROWING = """
kept = []
def grow():
    kept.append(bytes(300000))
while True:
    grow()
    [bytes(70000) for _ in range(20)]
    time.sleep(0.001)
    if len(kept) > 300: kept.clear()
"""


def test_a_running_process_is_profiled_and_left_as_it_was(
    start: Start, tmp_path: Path
) -> None:
    with start(GROWING) as process:
        name = tmp_path / "taken"
        number = str(process.pid)
        done = allod(
            "profile", number, "--seconds", "1", "--output", name, "--interval", "65536"
        )
        assert done.returncode == 0, done.stderr
        wrote = re.search(r"wrote .*taken.pb.gz and .*taken.html: (.*)$", done.stderr)
        assert wrote is not None
        figures = re.fullmatch(
            r".* in use, ([\d.]+) [MG]iB in all, ([\d,]+) samples", wrote[1]
        )
        assert figures is not None, wrote[1]
        assert float(figures[1]) >= 1
        assert int(figures[2].replace(",", "")) > 10
        assert gzip.decompress(name.with_suffix(".pb.gz").read_bytes())
        assert "ever allocated" in name.with_suffix(".html").read_text()
        # Beside the program's thread, Allod's own may give memory back.
        end = time.monotonic() + 30
        while "allod-live" in names_of_threads(process) and time.monotonic() < end:
            time.sleep(0.01)
        assert "allod-live" not in names_of_threads(process)
        state = opened(process).fresh_state()
        # The command that opens the page has samples taken: none were when it came.
        assert state["profile"]["interval"] == 512 << 10


def test_programs_keep_their_handlers_and_calls(start: Start) -> None:
    """A request comes between calls of the program, and no sleep of Python ends early."""
    code = "a = time.monotonic(); time.sleep(2); print(time.monotonic() - a >= 2, flush=True)"
    with start(f"{code}\ntime.sleep(600)") as process:
        opened(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
