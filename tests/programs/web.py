"""Files for web servers to serve, and how they are fetched."""

from __future__ import annotations

import gzip
import re
import socket
from pathlib import Path
from random import Random
from urllib.request import ProxyHandler, Request, build_opener

from .launcher import Launcher

FILES = 40


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def write_files(directory: Path) -> list[str]:
    """Files from a few bytes to a megabyte, some of which compress well."""
    chance = Random(4)
    directory.mkdir()
    names = []
    for number in range(FILES):
        name = f"file{number}.bin"
        size = int(2 ** (number / 2))
        content = chance.randbytes(max(1, size // 7))
        (directory / name).write_bytes((content * 8)[:size])
        names.append(name)
    return names


def fetch(address: str, accept_gzip: bool) -> bytes:
    """The content behind an address."""
    encoding = "gzip" if accept_gzip else "identity"
    request = Request(address, headers={"Accept-Encoding": encoding})
    with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
        content = answer.read()
        assert isinstance(content, bytes)
        if answer.headers.get("Content-Encoding") == "gzip":
            return gzip.decompress(content)
        return content


def load(launcher: Launcher, address: str, requests: int, *options: str) -> None:
    """Asks for the same again and again, 40 times at once; every answer must be right."""
    command = ("ab", "-q", "-n", str(requests), "-c", "40", *options, address)
    report = launcher.run(*command).text
    assert re.search(rf"Complete requests: +{requests}\n", report), report
    assert re.search(r"Failed requests: +0\n", report), report
    assert "Non-2xx" not in report, report
