"""Finds programs that serve a live page, and asks them for their figures."""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from allod.console import Failure

Json = dict[str, Any]
# The thread that serves the page, and the file in its table of descriptors that holds the link.
SERVER_THREAD = "allod-live"
LINK_FILE = "/memfd:allod-live-link"
LINK_BYTES = 4096
MAPPED = re.compile(r"(/.*/liballod(-debug|-hardened)?\.so[0-9.]*)$")
# Everything but the timeline.
STATE = "/api/state?since=999999999999"
ANSWER_SECONDS = 10.0
MOST_BYTES = 64 << 20


class Gone(Exception):
    """The program does not answer any more."""


@dataclass(frozen=True)
class Link:
    """Where a page is, and the secret that opens it."""

    host: str
    port: int
    token: str

    @property
    def authority(self) -> str:
        """The host and port as the server knows itself."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """What a browser opens."""
        return f"http://{self.authority}/?token={self.token}"

    def ask(self, path: str) -> Json:
        """The answer to one question; Gone if there is none."""
        try:
            answer = json.loads(self.fetch(path))
        except ValueError:
            raise Gone(f"{self.authority} is not a live page") from None
        if not isinstance(answer, dict):
            raise Gone(f"{self.authority} is not a live page")
        return answer

    def act(self, path: str) -> None:
        """Has the server do something; Gone if it does not."""
        self.fetch(path, method="POST")

    def fetch(self, path: str, *, method: str = "GET") -> bytes:
        """The body of an answer; Gone if there is none."""
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=ANSWER_SECONDS
        )
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Host": self.authority}
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            body = response.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"{self.authority} does not answer: {error}") from None
        finally:
            connection.close()
        if response.status != http.client.OK:
            said = body.decode(errors="replace").strip() or response.reason
            raise Gone(f"{self.authority} refuses: {said}")
        return body


def find(targets: Sequence[str]) -> list[Link]:
    """The pages of the programs that a person named; of all that can be seen, if none."""
    if targets:
        return [_find_one(target) for target in targets]
    found: list[Link] = []
    for process in _processes():
        with suppress(PermissionError):
            found += links_of(process)
    if not found:
        raise Failure(
            "no program of yours serves a live page; start one with allod run --live"
        )
    return found


def print_links(targets: Sequence[str]) -> None:
    """A line for each program: process id, link, name."""
    show_links(find(targets))


def show_links(links: Sequence[Link]) -> None:
    """The same of known pages."""
    for link in links:
        try:
            process = link.ask(STATE)["process"]
        except Gone:
            continue  # It has just ended.
        name = "".join(c if c.isprintable() else "?" for c in str(process["name"]))
        print(f"{int(process['id']):>7}  {link.url}  {name}")


def parse_link(text: str, token: str = "") -> Link:
    """A link, or an address whose token is given otherwise."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "http" or not host or not port:
        raise Failure(f"{text} is neither a process id nor an address with a port", 2)
    token = parse_qs(parts.query).get("token", [token])[0]
    if not token:
        raise Failure(
            f"{text} wants a token: give the whole link, or set ALLOD_LIVE_TOKEN", 2
        )
    return Link(host, port, token)


def _find_one(target: str) -> Link:
    if not target.isdecimal():
        return parse_link(target, os.environ.get("ALLOD_LIVE_TOKEN", ""))
    try:
        links = list(links_of(process_folder(int(target))))
    except PermissionError:
        raise Failure(f"process {target} belongs to another user") from None
    if not links:
        library_of(process_folder(int(target)))
        raise Failure(
            f"process {target} serves no live page; allod live {target} opens one"
        )
    return links[0]


def process_folder(process: int) -> Path:
    """What the system tells about a process."""
    folder = Path("/proc") / str(process)
    if not folder.exists():
        raise Failure(f"no such process: {process}")
    return folder


def library_of(folder: Path) -> Path:
    """The library of Allod that a process has loaded."""
    try:
        lines = (folder / "maps").read_text(errors="surrogateescape").splitlines()
    except PermissionError:
        raise Failure(
            f"process {folder.name} belongs to another user, or has changed its rights"
        ) from None
    except (FileNotFoundError, ProcessLookupError):
        raise Failure(f"no such process: {folder.name}") from None
    found = next(filter(None, (MAPPED.search(line) for line in lines)), None)
    if found is None:
        raise Failure(
            f"process {folder.name} does not run on Allod; start it with allod run -- PROGRAM"
        )
    return Path(found[1])


def _processes() -> list[Path]:
    found = (each for each in Path("/proc").iterdir() if each.name.isdecimal())
    mine = []
    for process in found:
        try:
            if os.getuid() in (0, process.stat().st_uid):
                mine.append(process)
        except OSError:
            continue  # It has just ended.
    return sorted(mine, key=lambda each: int(each.name))


def links_of(process: Path) -> Iterator[Link]:
    """The link that the server of this process holds, if there is one. PermissionError: the
    process is not this user's."""
    for thread in _server_threads(process):
        # Only the thread's own folder shows its table of descriptors.
        for number in _listed(thread / "fd"):
            file = thread / "fd" / number
            try:
                if not os.readlink(file).startswith(LINK_FILE):
                    continue
                with file.open() as text:
                    yield parse_link(text.read(LINK_BYTES))
            except FileNotFoundError:
                continue
            return


def _server_threads(process: Path) -> Iterator[Path]:
    for number in _listed(process / "task"):
        thread = process / "task" / number
        try:
            name = (thread / "comm").read_text().strip()
        except OSError:
            continue
        if name == SERVER_THREAD:
            yield thread


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError):
        return []
