"""memcached with several threads and several clients."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from .launcher import DebianPackages, Launcher, Sides, listens

CLIENTS = 6
STEPS = 15000


class Client:
    """A connection that speaks the text protocol."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(path))
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, request: str, data: bytes | None = None) -> str:
        """Sends one request and returns the first line of the answer."""
        body = b"" if data is None else data + b"\r\n"
        self._socket.sendall(request.encode() + b"\r\n" + body)
        return self._answers.readline().decode().strip()

    def get(self, key: str) -> bytes | None:
        """The value of a key, if there is one."""
        answer = self.ask(f"get {key}")
        if answer == "END":
            return None
        length = int(answer.split()[3])
        value = self._answers.read(length + 2)[:-2]
        assert self._answers.readline() == b"END\r\n"
        return value

    def statistics(self) -> dict[str, str]:
        """The server's counters."""
        line = self.ask("stats")
        found = {}
        while line != "END":
            _, name, value = line.split(maxsplit=2)
            found[name] = value
            line = self._answers.readline().decode().strip()
        return found


def use(path: Path, number: int) -> int:
    """Stores, changes, reads and deletes the keys of one client.

    Whatever the server answers must be what was stored last. Every few hundred
    steps the client takes a new connection.
    """
    chance = Random(number)
    stored: dict[str, bytes] = {}
    for _ in range(STEPS // 300):
        with Client(path) as client:
            for _ in range(300):
                key = f"client{number}:{chance.randrange(800)}"
                value = chance.randbytes(1) * int(2 ** chance.uniform(0, 15))
                match chance.randrange(4):
                    case 0:
                        answer = client.ask(f"set {key} 0 0 {len(value)}", value)
                        assert answer == "STORED"
                        stored[key] = value
                    case 1:
                        answer = client.ask(f"append {key} 0 0 {len(value)}", value)
                        assert (answer == "STORED") == (key in stored)
                        if key in stored and len(stored[key]) < 300_000:
                            stored[key] += value
                        elif key in stored:
                            client.ask(f"delete {key}")
                            del stored[key]
                    case 2:
                        answer = client.ask(f"delete {key}")
                        expected = "DELETED" if key in stored else "NOT_FOUND"
                        assert answer == expected
                        stored.pop(key, None)
                    case _:
                        assert client.get(key) == stored.get(key)
    with Client(path) as client:
        for key, value in stored.items():
            assert client.get(key) == value
    return len(stored)


@pytest.mark.slow
def test_memcached_gives_every_client_back_what_it_stored(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("memcached")

    def work(launcher: Launcher) -> tuple[int, str, str]:
        path = launcher.directory / "memcached.sock"
        account = ("-u", "root") if os.geteuid() == 0 else ()
        command = ("memcached", "-s", path, "-t", "4", "-m", "900", "-M", *account)
        with launcher.serve(*command) as server:
            server.wait_until(lambda: listens(path), "memcached accepts clients")
            launcher.check_mapped_in(server.pid)
            with ThreadPoolExecutor(CLIENTS) as pool:
                kept = sum(pool.map(lambda number: use(path, number), range(CLIENTS)))
            with Client(path) as client:
                counters = client.statistics()
            assert server.stop() == 0
        launcher.check_allocator_of("memcached")
        assert counters["evictions"] == "0"
        return kept, counters["curr_items"], counters["cmd_set"]

    kept, items, _ = sides.agree_on(work)
    assert int(items) == kept > 0
