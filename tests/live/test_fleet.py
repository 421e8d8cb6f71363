"""What collectors make of the endpoints: Prometheus, pprof, and the files for a fleet."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest
from workshop.paths import ROOT

from .conftest import Serve, sample_all
from .watched import Json, Watched

FLEET = ROOT / "live" / "fleet"


@pytest.fixture
def prometheus(debian_packages: object) -> None:
    """Prometheus and its tool are there."""
    assert callable(debian_packages)
    debian_packages("prometheus")


def test_promtool_is_content(service: Watched, prometheus: None) -> None:
    service.do("work 3 1000 1000")
    service.do("heap 4096 10")
    text = service.ask("/metrics").body
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_prometheus_scrapes(service: Watched, prometheus: None, tmp_path: Path) -> None:
    """A real one, with the configuration of the documentation."""
    service.do("heap 4096 300")
    token = tmp_path / "token"
    token.write_text(service.token)
    config = (FLEET / "prometheus.yml").read_text()
    for known, here in {
        "/etc/allod/token": str(token),
        "127.0.0.1:9464": service.authority,
        "15s": "1s",
    }.items():
        assert known in config
        config = config.replace(known, here)
    file = tmp_path / "prometheus.yml"
    file.write_text(config)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={file}", f"--web.listen-address={address}"]
    with subprocess.Popen(
        [*command, f"--storage.tsdb.path={tmp_path / 'data'}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            found = asked_until_there(
                f"http://{address}/api/v1/query?query=allod_heap_allocated_bytes"
            )
        finally:
            process.terminate()
    assert found["metric"]["heap"] == "tiles"
    assert found["metric"]["instance"] == service.authority
    assert found["value"][1] == str(300 * 4096)


def asked_until_there(url: str) -> Json:
    """The first result of a query, as soon as there is one."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                results = json.load(answer)["data"]["result"]
        except (URLError, ConnectionError):
            results = []
        if results:
            result: Json = results[0]
            return result
        time.sleep(0.1)
    raise AssertionError("nothing was scraped")


def test_the_dashboard_asks_for_what_there_is(service: Watched) -> None:
    service.do("work 1 1000 1000")
    service.do("heap 100 1")
    there = set(
        re.findall(r"^(allod_\w+)", service.ask("/metrics").body.decode(), re.MULTILINE)
    )
    dashboard = (FLEET / "grafana.json").read_text()
    asked = set(re.findall(r"\b(allod_\w+)", dashboard))
    assert len(json.loads(dashboard)["panels"]) > 5
    assert asked <= there | {"allod"}, asked - there


@pytest.mark.parametrize("file", ["parca.yaml", "alloy.river"])
def test_collectors_are_told_paths_that_exist(service: Watched, file: str) -> None:
    paths = re.findall(r"(/debug/pprof/\w+)", (FLEET / file).read_text())
    assert paths
    for path in paths:
        assert service.ask(path).body[:2] == b"\x1f\x8b"


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go")
def test_pprof_names_the_function(serve: Serve, tmp_path: Path) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("leak 20480 512")
        program.do("temporary 10240 100")

        def top(kind: str) -> str:
            link = (
                f"http://{program.authority}/debug/pprof/{kind}?token={program.token}"
            )
            return subprocess.run(
                ["go", "tool", "pprof", "-top", "-unit=kB", "-nodecount=5", link],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PPROF_TMPDIR": str(tmp_path)},
            ).stdout

        heap, allocations = top("heap"), top("allocs")
        # What happened within a second, asked for while it happens.
        with serve_delta(program) as delta:
            program.do("temporary 4096 1000")
            told = delta()
    assert flat(heap, "Sessions::open") == 10240
    assert "Parser::parse" not in heap
    assert flat(allocations, "Parser::parse") == pytest.approx(1000, rel=0.02)
    assert "Build ID" in heap
    file = tmp_path / "delta.pb.gz"
    file.write_bytes(told)
    shown = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=kB", str(file)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # A thread may have blocks at hand that are not counted as they go out.
    assert flat(shown, "Parser::parse") == pytest.approx(4000, rel=0.02)
    assert "Sessions::open" not in shown


def flat(table: str, function: str) -> float:
    """The kilobytes that pprof tells of a function itself."""
    found = re.search(rf"^\s*([\d.]+)kB .*{function}", table, re.MULTILINE)
    assert found is not None, table
    return float(found[1])


class serve_delta:
    """A profile of two seconds that begins when the block does."""

    def __init__(self, program: Watched) -> None:
        self._program = program

    def __enter__(self) -> serve_delta:
        self._stream = socket.create_connection(
            (self._program.host, self._program.port)
        )
        self._stream.sendall(
            f"GET /debug/pprof/allocs?seconds=2 HTTP/1.1\r\nHost: {self._program.authority}\r\n"
            f"Authorization: Bearer {self._program.token}\r\nConnection: close\r\n\r\n".encode()
        )
        # Answered in order: after this one, the other has begun.
        assert self._program.ask("/metrics").status == 200
        return self

    def __call__(self) -> bytes:
        whole = b""
        while chunk := self._stream.recv(65536):
            whole += chunk
        return whole.split(b"\r\n\r\n", 1)[1]

    def __exit__(self, *_: object) -> None:
        self._stream.close()
