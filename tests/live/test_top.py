"""The heaps of running programs in the terminal: ./allod top."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest
from commands import ALLOD, allod

from .conftest import Serve
from .watched import Watched


def top(
    *arguments: str, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    return allod("top", *arguments, environment=variables)


def rows_of(text: str) -> list[dict[str, str]]:
    """The table that --once prints, by its first line."""
    head, *lines = text.splitlines()
    names = head.split()
    return [
        dict(zip(names, line.split(None, len(names) - 1), strict=True))
        for line in lines
    ]


def test_one_table_has_the_figures_of_the_program(service: Watched) -> None:
    """Found by its process id: the link is known to nobody but the process."""
    before = service.fresh_state()["now"]
    service.do("hold 20480 2000")
    now = service.fresh_state()["now"]
    done = top("--once", str(service.process.pid))
    [row] = rows_of(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(row["LIVE"]) == now["live"] >= before["live"] + 2000 * 20480
    assert int(row["BLOCKS"]) == now["live_blocks"]
    assert (row["PID"], row["PROGRAM"]) == (str(service.process.pid), "live_service")


@pytest.mark.parametrize("way", ["nothing", "link", "address"])
def test_programs_are_found_in_other_ways(service: Watched, way: str) -> None:
    if way == "nothing":
        done = top("--once")
    elif way == "link":
        done = top("--once", service.link)
    else:
        done = top(
            "--once", service.authority, variables={"ALLOD_LIVE_TOKEN": service.token}
        )
    assert str(service.process.pid) in [row["PID"] for row in rows_of(done.stdout)]


def test_strangers_cannot_read_the_link(service: Watched) -> None:
    """It is a sealed file of the server's own table, which only its owner may open."""
    [thread] = [
        each
        for each in Path(f"/proc/{service.process.pid}/task").iterdir()
        if (each / "comm").read_text() == "allod-live\n"
    ]
    [file] = [
        each
        for each in (thread / "fd").iterdir()
        if os.readlink(each).startswith("/memfd:allod-live-link")
    ]
    assert file.stat().st_mode & 0o777 == 0o400
    assert file.read_text() == service.link
    with pytest.raises(PermissionError):
        file.write_text("x")


def test_mistakes_are_one_clear_line() -> None:
    for arguments, said in {
        ("999999999",): "no such process: 999999999",
        (str(os.getpid()),): f"process {os.getpid()} does not run on Allod;",
        ("nonsense",): "nonsense is neither a process id nor an address with a port",
        ("127.0.0.1:1",): "127.0.0.1:1 wants a token",
        ("http://127.0.0.1:1/?token=x",): "127.0.0.1:1 does not answer",
    }.items():
        done = top("--once", *arguments)
        assert done.returncode != 0
        assert done.stderr.startswith(f"allod: error: {said}")
        assert (done.stderr.count("\n"), done.stdout) == (1, "")


def test_a_wrong_token_is_refused(service: Watched) -> None:
    done = top("--once", f"http://{service.authority}/?token=wrong")
    assert done.returncode == 1
    assert f"{service.authority} refuses" in done.stderr


def test_without_a_terminal_it_says_what_to_do(service: Watched) -> None:
    done = top(str(service.process.pid))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--once" in done.stderr


def test_the_terminal_shows_what_is_inside_until_q(serve: Serve) -> None:
    with serve(profile="4096") as program:
        program.do("leak 20480 500")
        program.do("heap 4096 300")
        program.do("work 2 1536 2000")
        ours, theirs = pty.openpty()
        command = [str(ALLOD), "top", "--every", "0.2", str(program.process.pid)]
        with subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
        ) as process:
            os.close(theirs)
            shown = read_until(ours, ["Sessions::open", "worker-1", "tiles"])
            os.write(ours, b"q")
            read_until(ours, [])
            assert process.wait(timeout=30) == 0
        os.close(ours)
    assert "live_service" in shown


def read_until(terminal: int, words: list[str]) -> str:
    """What a terminal has shown when all words have appeared; with none, until the end."""
    shown = ""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if words and all(word in shown for word in words):
            return shown
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # The other side is closed.
            break
    assert all(word in shown for word in words), shown
    return shown


def test_figures_can_be_told_to_programs(service: Watched, tmp_path: Path) -> None:
    service.do("hold 20480 2000")
    now = service.fresh_state()["now"]
    number = str(service.process.pid)
    [row] = json.loads(top("--json", number).stdout)
    assert (row["pid"], row["live"]) == (service.process.pid, now["live"])
    assert set(row["trends"]) == {"live", "resident", "held"}
    assert isinstance(row["findings"], list)
    file = tmp_path / "figures"
    assert top("--output", str(file), number).stdout == ""
    [line] = rows_of(file.read_text())
    assert line["PID"] == number
