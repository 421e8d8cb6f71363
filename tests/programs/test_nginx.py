"""nginx under load, with its configuration reloaded meanwhile."""

from __future__ import annotations

import gzip
import os
import re
import signal
import socket
from pathlib import Path
from random import Random
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from .launcher import (
    WORKLOADS,
    DebianPackages,
    Launcher,
    Sides,
    children,
    digest,
    listens,
)

FILES = 40
REQUESTS = 6000


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


@pytest.mark.slow
def test_nginx_serves_every_file_whole_under_load_and_across_a_reload(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("nginx", "apache2-utils")

    def work(launcher: Launcher) -> dict[str, str]:
        names = write_files(launcher.directory / "files")
        port = free_port()
        configuration = (WORKLOADS / "nginx.conf").read_text()
        inner = str(launcher.directory / "inner.sock")
        account = "user root;\n" if os.geteuid() == 0 else ""
        (launcher.directory / "nginx.conf").write_text(
            account
            + configuration.replace("PORT", str(port)).replace("inner.sock", inner)
        )
        site = f"http://127.0.0.1:{port}"
        contents: dict[str, str] = {}

        def load(path: str, *options: str) -> None:
            report = launcher.run(
                *("ab", "-q", "-n", str(REQUESTS), "-c", "40", *options),
                f"{site}/{path}",
            ).text
            assert re.search(rf"Complete requests: +{REQUESTS}\n", report), report
            assert re.search(r"Failed requests: +0\n", report), report
            assert "Non-2xx" not in report, report

        def fetch_all() -> None:
            for name in names:
                original = (launcher.directory / "files" / name).read_bytes()
                for prefix in ("", "proxied/", "moved/"):
                    for accept_gzip in (False, True):
                        address = f"{site}/{prefix}{name}"
                        assert fetch(address, accept_gzip) == original, address
                contents[name] = digest(original)

        command = ("nginx", "-p", launcher.directory, "-c", "nginx.conf")
        with launcher.serve(*command, "-e", "stderr") as server:
            server.wait_until(lambda: len(workers(server.pid)) == 2, "nginx works")
            server.wait_until(lambda: listens(port), "nginx answers")
            first = workers(server.pid)
            launcher.check_mapped_in(server.pid, *first)
            load("file20.bin", "-k")
            load("proxied/file28.bin", "-H", "Accept-Encoding: gzip")
            fetch_all()
            server.process.send_signal(signal.SIGHUP)
            load("file24.bin")
            server.wait_until(
                lambda: (
                    not first & workers(server.pid) and len(workers(server.pid)) == 2
                ),
                "the workers have been replaced",
            )
            load("moved/file30.bin", "-H", "Accept-Encoding: gzip")
            fetch_all()
            launcher.check_mapped_in(*workers(server.pid))
            assert server.stop(signal.SIGQUIT) == 0
            assert "[alert]" not in server.errors(), server.errors()
        launcher.check_allocator_of("nginx", "ab")
        return contents

    assert len(sides.agree_on(work)) == FILES


def workers(master: int) -> set[int]:
    """The worker processes of a running master."""
    return set(children(master))
