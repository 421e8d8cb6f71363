"""Programs that serve a live page, and questions to it."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
START_SECONDS = 30.0


@dataclass
class Answer:
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


# Longer than the program under stress waits before it says who is stuck.
ANSWER_SECONDS = 150


@dataclass
class Watched:
    """A process, and its page."""

    process: subprocess.Popen[str]
    link: str
    host: str = field(init=False)
    port: int = field(init=False)
    token: str = field(init=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.link)
        assert parts.hostname is not None and parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.token = parse_qs(parts.query)["token"][0]

    @property
    def authority(self) -> str:
        """The host and port as a browser names them."""
        return f"{self.host}:{self.port}"

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        token: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own, with the token as a bearer."""
        sent = {"Authorization": f"Bearer {self.token}"} if token else {}
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=ANSWER_SECONDS
        )
        try:
            connection.request(method, path, headers={**sent, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def state(self) -> Json:
        """Everything that the page shows."""
        answer = self.ask("/api/state")
        assert answer.status == 200, answer.body
        state: Json = answer.json()
        return state

    def fresh_state(self) -> Json:
        """The same, gathered after this call began."""
        # An answer is used again for a moment; its clock tells.
        started = time.time() * 1000
        while True:
            state = self.state()
            if state["gathered_ms"] >= started:
                return state

    def do(self, command: str) -> None:
        """Has the service of service.cpp do something, and waits until it is done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "done", command


@contextmanager
def open_or_none(path: Path | None) -> Iterator[IO[bytes] | None]:
    """A file to write to."""
    if path is None:
        yield None
    else:
        with path.open("wb") as file:
            yield file


@contextmanager
def watched(
    command: Sequence[str | Path],
    libraries: Sequence[Path],
    folder: Path,
    environment: Mapping[str, str],
    errors: Path | None = None,
    **more: str,
) -> Iterator[Watched]:
    """Runs a program with a live page until the block ends; its standard error may go to a file."""
    variables = {
        **environment,
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "ALLOD_LIVE": "127.0.0.1:0",
        "ALLOD_LIVE_LINK": str(folder / "link-%p"),
        **{f"ALLOD_{name.upper()}": value for name, value in more.items()},
    }
    with (
        open_or_none(errors) as told,
        subprocess.Popen(
            [str(word) for word in command],
            env=variables,
            stderr=told,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        ) as process,
    ):
        try:
            link = wait_for_link(folder / f"link-{process.pid}", process)
            yield Watched(process, link)
        finally:
            process.kill()


def wait_for_link(file: Path, process: subprocess.Popen[str]) -> str:
    """The link that the server writes when it listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if file.exists() and (text := file.read_text()).endswith("\n"):
            return text.strip()
        assert process.poll() is None, "the program has ended"
        time.sleep(0.005)
    raise AssertionError("no live page appears")
