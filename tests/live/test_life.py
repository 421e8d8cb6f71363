"""The server lives beside the program: whatever that does, neither is in the other's way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from commands import allod
from workshop.paths import ROOT

from .conftest import Serve
from .watched import Watched, wait_for_link


def test_programs_without_the_wish_have_no_server(
    liballod: Path, liballod_live: Path, clean: dict[str, str]
) -> None:
    script = "import os; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        ["/usr/bin/python3", "-c", script],
        env={**clean, "LD_PRELOAD": f"{liballod}:{liballod_live}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_without_the_allocator_it_says_so(
    liballod_live: Path, clean: dict[str, str]
) -> None:
    done = subprocess.run(
        ["/bin/echo", "fine"],
        env={**clean, "LD_PRELOAD": str(liballod_live), "ALLOD_LIVE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "fine\n"
    assert (
        done.stderr
        == "allod: warning: no live page: liballod.so is not in this process\n"
    )


def test_a_taken_port_is_a_warning(
    serve: Serve, liballod: Path, liballod_live: Path, clean: dict[str, str]
) -> None:
    with serve() as program:
        done = subprocess.run(
            ["/bin/echo", "fine"],
            env={
                **clean,
                "LD_PRELOAD": f"{liballod}:{liballod_live}",
                "ALLOD_LIVE": program.authority,
            },
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout == "fine\n"
    assert done.stderr == "allod: warning: no live page: the port is taken\n"


def test_descriptors_are_apart(serve: Serve) -> None:
    """The program sees none of the server's, may close all there are, and keeps its own."""
    with serve() as program:
        folder = Path(f"/proc/{program.process.pid}/fd")
        assert sorted(os.listdir(folder)) == ["0", "1", "2"]
        program.do("close")
        assert program.ask("/metrics").status == 200
        program.do("hold 100 100")
        # The server holds no copy of the program's input, whose end is the program's end.
        assert program.process.stdin is not None
        program.process.stdin.close()
        assert program.process.wait(timeout=30) == 0


def test_children_serve_nothing_and_the_parent_goes_on(serve: Serve) -> None:
    with serve(profile="4096") as program:
        for _ in range(30):
            program.do("fork")
            assert program.ask("/debug/pprof/heap").status == 200
        assert program.state()["process"]["id"] == program.process.pid


def test_children_may_serve(serve: Serve, tmp_path: Path) -> None:
    script = "import os, sys\npid = os.fork()\nos.write(1, b'%d\\n' % pid)\nsys.stdin.read()\n"
    with serve("/usr/bin/python3", "-c", script, live_children="1") as parent:
        assert parent.process.stdout is not None
        lines = {parent.process.stdout.readline() for _ in range(2)}
        [child] = {int(line) for line in lines} - {0}
        link = wait_for_link(tmp_path / f"link-{child}", parent.process)
        other = Watched(parent.process, link)
        assert other.state()["process"]["id"] == child
        assert parent.state()["process"]["id"] == parent.process.pid
        assert other.port != parent.port
        assert other.token != parent.token
        os.kill(child, signal.SIGKILL)


def test_a_program_that_ends_is_not_held_up(serve: Serve) -> None:
    with serve() as program:
        assert program.process.stdin is not None
        # Somebody is being answered at that moment.
        program.process.stdin.close()
        assert program.process.wait(timeout=30) == 0
    with serve() as program:
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(timeout=30) == -signal.SIGTERM


def test_signals_are_the_programs(serve: Serve) -> None:
    script = (
        "import signal, threading, sys\n"
        "seen = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('seen', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    with serve("/usr/bin/python3", "-c", script) as program:
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == "ready\n"
        for thread in os.listdir(f"/proc/{program.process.pid}/task"):
            status = Path(
                f"/proc/{program.process.pid}/task/{thread}/status"
            ).read_text()
            if "Name:\tallod-live" not in status:
                continue
            blocked = next(
                line for line in status.splitlines() if line.startswith("SigBlk")
            )
            mask = int(blocked.split()[1], 16)
            assert mask >> (signal.SIGUSR1 - 1) & 1
            for stopping in (signal.SIGURG, signal.SIGRTMAX - 1):
                assert not mask >> (stopping - 1) & 1, "a search for leaks waits for it"
        for _ in range(20):
            program.process.send_signal(signal.SIGUSR1)
            assert program.process.stdout.readline() == "seen\n"


def test_the_program_outlives_a_broken_libevent(
    tmp_path: Path, liballod: Path, liballod_live: Path, clean: dict[str, str]
) -> None:
    del liballod_live  # Where that was built, there is libevent.
    folders = [f"-I{ROOT / folder}" for folder in ("live", "src", "include")]
    sources = [Path(__file__).with_name("events.cpp"), ROOT / "live" / "memory.cpp"]
    libraries = ["-Wl,--no-as-needed", str(liballod), "-l:libevent_core.a", "-pthread"]
    program = tmp_path / "events"
    subprocess.run(
        ["c++", "-std=c++20", *folders, *sources, "-o", program, *libraries],
        check=True,
    )
    done = subprocess.run(
        [program],
        env={**clean, "LD_LIBRARY_PATH": str(liballod.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 0\n"


def test_a_program_whose_main_thread_has_left_still_ends(
    serve: Serve, tmp_path: Path
) -> None:
    source = tmp_path / "leaves.c"
    source.write_text("#include <pthread.h>\nint main(void) { pthread_exit(0); }\n")
    program = tmp_path / "leaves"
    subprocess.run(["cc", "-o", program, source, "-pthread"], check=True)
    with serve(program) as watched:
        assert watched.process.wait(timeout=30) == 0


def test_the_front_door_serves_one_page(
    tmp_path: Path, liballod_live: Path, clean: dict[str, str]
) -> None:
    """It is the program's; what that starts serves none."""
    link = tmp_path / "link"
    count = "import os; print(len(os.listdir('/proc/self/task')), flush=True)"
    with subprocess.Popen(
        [str(ROOT / "allod"), "run", "--live", "-o", f"live_link={link}", "--"]
        + ["sh", "-c", f'/usr/bin/python3 -c "{count}"; cat'],
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            program = Watched(process, wait_for_link(link, process))
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            assert program.state()["process"]["id"] == process.pid
            assert program.state()["profile"]["interval"] == 512 << 10
            assert oct(link.stat().st_mode & 0o777) == "0o600"
        finally:
            process.kill()


SHIM = """\
#!/bin/bash
N=${N:-7}; N=$((N - 1)); export N
[ $N -gt 0 ] && exec "$0"
exec /usr/bin/python3 -c "x = [str(i) for i in range(200000)]; print('ready', flush=True); input()"
"""


@pytest.mark.parametrize("also", [["--stats"], ["--profile"]], ids=str)
def test_one_link_however_often_the_process_executes_another_program(
    also: list[str], tmp_path: Path, liballod_live: Path, clean: dict[str, str]
) -> None:
    """As the shims of pyenv do; beside any other option."""
    shim = tmp_path / "shim"
    shim.write_text(SHIM)
    shim.chmod(0o755)
    with subprocess.Popen(
        [ROOT / "allod", "run", "--live", *also, "--", shim],
        env=clean,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        # The link precedes what the program says.
        said = ""
        while "live page of process" not in said:
            said = process.stderr.readline()
            assert said, "no link"
        assert process.stdout.readline() == "ready\n"
        program = Watched(process, said.split()[-1])
        state = program.state()
        assert state["process"]["name"] == "python3"
        number = str(state["process"]["id"])
        listed = allod("live", number).stdout.split()
        assert listed == [number, program.link, "python3"]
        _, rest = process.communicate("\n", timeout=120)
    assert "live page of process" not in rest
    assert "statistics" in rest or "wrote shim.pb.gz" in rest, rest


WORKERS = """\
import os, sys
for i in range(2):
    if os.fork() == 0:
        x = [str(j) for j in range(100000 * (i + 1))]
        sys.stdin.read()
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("children", ["0", "1"])
def test_the_page_lists_workers_and_leads_to_theirs(
    serve: Serve, children: str
) -> None:
    with serve("/usr/bin/python3", "-c", WORKERS, live_children=children) as program:
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == "ready\n"
        rows: list[dict[str, Any]] = []
        end = time.monotonic() + 60
        # A worker's server starts while the worker goes on.
        while time.monotonic() < end:
            rows = program.ask("/api/children").json()["rows"]
            if len(rows) == 2 and (children == "0" or all(row["link"] for row in rows)):
                break
        assert [row["name"] for row in rows] == ["python3", "python3"]
        assert {row["parent"] for row in rows} == {program.process.pid}
        assert all(row["resident"] > 1 << 20 for row in rows)
        if children == "0":
            assert not any(row["link"] for row in rows)
            return
        for row in rows:
            worker = Watched(program.process, row["link"].strip())
            assert worker.state()["process"]["id"] == row["process"]


@pytest.mark.parametrize("how", ["daemon", "setsid"])
def test_a_daemon_keeps_the_page(serve: Serve, tmp_path: Path, how: str) -> None:
    source = tmp_path / "server.c"
    source.write_text(
        "#define _DEFAULT_SOURCE\n#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>\n"
        "#include <unistd.h>\n"
        "int main(int n, char** a) {\n"
        '  if (strcmp(a[1], "daemon") == 0) { if (daemon(1, 1) != 0) return 1; }\n'
        "  else { if (fork() != 0) _exit(0); if (setsid() < 0) return 1; }\n"
        '  FILE* f = fopen(a[2], "w"); fprintf(f, "%d\\n", getpid()); fclose(f);\n'
        "  getchar(); return 0;\n}\n"
    )
    program = tmp_path / "server"
    subprocess.run(["cc", "-o", program, source], check=True)
    number = tmp_path / "number"
    with serve(program, how, number) as parent:
        # The input ends with the test, and the daemon with it.
        assert parent.process.wait(timeout=60) == 0
        end = time.monotonic() + 60
        while time.monotonic() < end and not (number.exists() and number.read_text()):
            time.sleep(0.01)
        state = parent.state()
        assert state["process"]["id"] == int(number.read_text())
        assert parent.link in allod("live", number.read_text().strip()).stdout
