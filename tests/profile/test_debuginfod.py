"""Lines come from a server of debug information, if the user has named one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from allod.profile import debuginfod, symbols

SOURCE = """
int called(void) { return 1; }
int main(void) { return called(); }
"""


@pytest.fixture
def stripped(tmp_path: Path) -> Path:
    """A program without its debug information, which is beside it."""
    program = tmp_path / "program"
    source = tmp_path / "program.c"
    source.write_text(SOURCE)
    subprocess.run(
        ["cc", "-g", "-O0", "-Wl,--build-id", "-no-pie", "-o", program, source],
        check=True,
    )
    words = ["objcopy", "--only-keep-debug", str(program), f"{program}.debug"]
    subprocess.run(words, check=True)
    subprocess.run(["strip", "--strip-debug", program], check=True)
    return program


class Server(ThreadingHTTPServer):
    """Has the debug information of one build."""

    def __init__(self, file: Path, build_id: str) -> None:
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                is_there = self.path == f"/buildid/{build_id}/debuginfo"
                self.send_response(200 if is_there else 404)
                self.end_headers()
                if is_there:
                    self.wfile.write(file.read_bytes())

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server(
    stripped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    monkeypatch.setenv(debuginfod.CACHE, str(tmp_path / "cache"))
    debuginfod.fetch.cache_clear()
    symbols._with_lines.cache_clear()
    with Server(Path(f"{stripped}.debug"), symbols.build_id(str(stripped))) as made:
        thread = Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def called_at(program: Path) -> tuple[str, str, int]:
    address = next(iter(_address_of(program, "called")))
    frame = symbols.functions_at(str(program), [address])[0][0]
    return frame.function, Path(frame.file).name, frame.line


def _address_of(program: Path, name: str) -> Iterator[int]:
    told = subprocess.run(
        ["nm", program], check=True, capture_output=True, text=True
    ).stdout
    for line in told.splitlines():
        if line.endswith(f" {name}"):
            yield int(line.split()[0], 16)


def test_nobody_is_asked_unless_the_user_says_so(
    server: Server, stripped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(debuginfod.URLS, raising=False)
    assert called_at(stripped) == ("called", "", 0)
    assert server.asked == []


def test_lines_are_fetched_once(
    server: Server, stripped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(debuginfod.URLS, f"http://127.0.0.1:1 {server.url}/")
    assert called_at(stripped) == ("called", "program.c", 2)
    debuginfod.fetch.cache_clear()
    symbols._with_lines.cache_clear()
    assert called_at(stripped) == ("called", "program.c", 2)
    assert len(server.asked) == 1
    kept = list((tmp_path / "cache").glob("*/debuginfo"))
    assert len(kept) == 1


def test_a_build_that_no_server_has(
    server: Server, stripped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(debuginfod.URLS, server.url)
    other = tmp_path / "other"
    shutil.copy(stripped, other)
    subprocess.run(
        ["objcopy", "--remove-section=.note.gnu.build-id", other], check=True
    )
    assert called_at(other) == ("called", "", 0)
    assert server.asked == []
