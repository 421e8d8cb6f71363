"""nginx under load, with its configuration reloaded meanwhile."""

from __future__ import annotations

import os
import signal

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
from .web import FILES, fetch, free_port, load, write_files

REQUESTS = 6000


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
            load(launcher, f"{site}/file20.bin", REQUESTS, "-k")
            load(
                launcher,
                f"{site}/proxied/file28.bin",
                REQUESTS,
                "-H",
                "Accept-Encoding: gzip",
            )
            fetch_all()
            server.process.send_signal(signal.SIGHUP)
            load(launcher, f"{site}/file24.bin", REQUESTS)
            server.wait_until(
                lambda: (
                    not first & workers(server.pid) and len(workers(server.pid)) == 2
                ),
                "the workers have been replaced",
            )
            load(
                launcher,
                f"{site}/moved/file30.bin",
                REQUESTS,
                "-H",
                "Accept-Encoding: gzip",
            )
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
