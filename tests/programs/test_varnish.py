"""Varnish: a cache with hundreds of threads that share one stack for signals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from .launcher import DebianPackages, Launcher, Sides, children, digest, listens
from .web import FILES, fetch, free_port, load, write_files

REQUESTS = 3000
CONFIGURATION = """vcl 4.1;
backend files { .host = "127.0.0.1"; .port = "PORT"; }
sub vcl_backend_response { set beresp.ttl = 1s; set beresp.do_gzip = true; }
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, *_: object) -> None:
        """Each request would be told on standard error."""


@contextmanager
def files_served(directory: Path) -> Iterator[int]:
    """The port at which the files are served that the cache asks for."""
    handler = partial(Quiet, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@pytest.mark.slow
def test_varnish_serves_every_file_whole_from_its_cache_and_anew(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("varnish", "apache2-utils", "gcc", "libc6-dev")

    def work(launcher: Launcher) -> dict[str, str]:
        files = launcher.directory / "files"
        names = write_files(files)
        port = free_port()
        contents: dict[str, str] = {}
        with files_served(files) as behind:
            configuration = launcher.directory / "files.vcl"
            configuration.write_text(CONFIGURATION.replace("PORT", str(behind)))
            command = ("varnishd", "-F", "-j", "none", "-s", "malloc,20m")
            where = ("-a", f"127.0.0.1:{port}", "-n", launcher.directory / "cache")
            with launcher.serve(*command, *where, "-f", configuration) as server:
                server.wait_until(lambda: listens(port), "varnish answers")
                workers = children(server.pid)
                launcher.check_mapped_in(server.pid, *workers)
                for number in (20, 28, 33):
                    load(
                        launcher, f"http://127.0.0.1:{port}/file{number}.bin", REQUESTS
                    )
                for name in names:
                    original = (files / name).read_bytes()
                    for accept_gzip in (False, True):
                        address = f"http://127.0.0.1:{port}/{name}"
                        assert fetch(address, accept_gzip) == original, address
                    contents[name] = digest(original)
                assert children(server.pid) == workers, server.errors()
                assert server.stop() == 0
        launcher.check_allocator_of("varnishd")
        return contents

    assert len(sides.agree_on(work)) == FILES
