"""Profiles in OpenTelemetry's format: pushed to a collector, and exported to a file."""

from __future__ import annotations

import gzip
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from allod.console import Failure
from commands import allod
from workshop.environment import ensure_collector

from .conftest import Serve, sample_all
from .watched import Watched

MIB = 1 << 20
USUAL_PATH = "/v1development/profiles"


@pytest.fixture(scope="module")
def request_type() -> Any:
    """The message that collectors take, by the package of its authors."""
    try:
        ensure_collector()
    except Failure as reason:
        pytest.skip(str(reason))
    from opentelemetry.proto.collector.profiles.v1development import (
        profiles_service_pb2,
    )

    return profiles_service_pb2.ExportProfilesServiceRequest


class Collector:
    """Takes what is sent to it, and answers with a status of the test's."""

    def __init__(self, request_type: Any) -> None:
        self.status = 200
        self.taken: queue.Queue[tuple[str, Any]] = queue.Queue()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                assert self.headers["Content-Encoding"] == "gzip"
                message = request_type.FromString(gzip.decompress(body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                collector.taken.put((self.path, message))

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def next(self) -> Any:
        """The message that comes next."""
        path, message = self.taken.get(timeout=60)
        assert path == USUAL_PATH
        return message


@pytest.fixture
def collector(request_type: Any) -> Iterator[Collector]:
    """One that listens."""
    made = Collector(request_type)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def text(message: Any, index: int) -> str:
    result: str = message.dictionary.string_table[index]
    return result


def check_tables(message: Any) -> None:
    """Entry 0 of each stands for nothing, and no index leads beyond one."""
    tables = message.dictionary
    for name in ("mapping", "location", "function", "link", "attribute", "stack"):
        table = getattr(tables, f"{name}_table")
        assert table[0] == type(table[0])(), name
    assert tables.string_table[0] == ""
    for stack in tables.stack_table:
        assert all(
            0 < each < len(tables.location_table) for each in stack.location_indices
        )
    for location in tables.location_table:
        assert location.mapping_index < len(tables.mapping_table)
        for line in location.lines:
            assert 0 < line.function_index < len(tables.function_table)
    for function in tables.function_table:
        assert function.name_strindex < len(tables.string_table)


def profiles_of(message: Any) -> dict[str, Any]:
    """Those of a message by the name of their values."""
    check_tables(message)
    [resource] = message.resource_profiles
    [scope] = resource.scope_profiles
    assert scope.scope.name == "allod"
    assert all(len(profile.profile_id) == 16 for profile in scope.profiles)
    return {
        text(message, profile.sample_type.type_strindex): profile
        for profile in scope.profiles
    }


def names_of(message: Any, sample: Any) -> list[str]:
    """The functions of a sample, innermost first."""
    tables = message.dictionary
    return [
        text(message, tables.function_table[line.function_index].name_strindex)
        for place in tables.stack_table[sample.stack_index].location_indices
        for line in tables.location_table[place].lines
    ]


def attributes_of(message: Any, sample: Any) -> dict[str, Any]:
    """By key."""
    found = {}
    for index in sample.attribute_indices:
        each = message.dictionary.attribute_table[index]
        value = each.value
        found[text(message, each.key_strindex)] = value.string_value or value.int_value
    return found


def sum_of(message: Any, kind: str, function: str) -> int:
    """The values of the samples that a function is in."""
    total = 0
    for sample in profiles_of(message)[kind].samples:
        if any(function in name for name in names_of(message, sample)):
            total += sum(sample.values)
    return total


def asked_until(program: Watched, line: str) -> None:
    """Until the metrics have this line."""
    end = time.monotonic() + 60
    while line not in program.ask("/metrics").body.decode().splitlines():
        assert time.monotonic() < end, line
        time.sleep(0.1)


def test_profiles_are_pushed(serve: Serve, collector: Collector) -> None:
    options = {"live_push": f"http://{collector.address}", "live_push_seconds": "1"}
    with serve(profile="0", **options) as program:
        sample_all(program)
        program.do("work 2 1536 2000")
        program.do("leak 20480 512")
        collector.next()
        # This one may have begun before. What it says was allocated is no more told.
        collector.next()
        program.do("temporary 10240 100")
        temporary = 0
        # Two may tell of it: it was under way as the first was written.
        while temporary < 98 * 10240:
            message = collector.next()
            temporary += sum_of(message, "alloc_space", "Parser::parse")
        assert temporary == pytest.approx(100 * 10240, rel=0.02)
        assert sum_of(message, "inuse_space", "Sessions::open") == 512 * 20480
        assert sum_of(message, "inuse_objects", "Sessions::open") == 512
        assert sum_of(message, "alloc_space", "Sessions::open") == 0
        told = profiles_of(message)
        assert set(told) == {
            f"{what}_{of}" for what in ("inuse", "alloc") for of in ("space", "objects")
        }
        threads = {
            attributes_of(message, sample).get("thread.name")
            for sample in told["inuse_space"].samples
        }
        assert {"worker-0", "worker-1", "live_service"} <= threads
        resource = {
            each.key: each.value.string_value or each.value.int_value
            for each in message.resource_profiles[0].resource.attributes
        }
        assert resource["service.name"] == "live_service"
        assert resource["process.pid"] == program.process.pid
        units = text(message, told["inuse_space"].sample_type.unit_strindex)
        assert (units, told["inuse_space"].period) == ("bytes", 1)
        assert told["alloc_space"].duration_nano > 0


def test_a_collector_that_fails_is_told_once(
    serve: Serve, collector: Collector, tmp_path: Path
) -> None:
    collector.status = 503
    errors = tmp_path / "errors"
    options = {"live_push": collector.address, "live_push_seconds": "1"}
    with serve(profile="1", errors=errors, **options) as program:
        for _ in range(3):
            collector.next()
        asked_until(program, 'allod_pushes_total{result="taken"} 0')
        collector.status = 200
        asked_until(program, 'allod_pushes_total{result="taken"} 1')
    [line] = errors.read_text().splitlines()
    assert line == (
        f"allod: warning: profiles do not reach {collector.address}: status 503;"
        " they are pushed on, and this is told once"
    )


@pytest.mark.parametrize(
    "where", ["collector.example:4318", "127.0.0.1", "127.0.0.1:4318/a b"]
)
def test_an_address_that_is_none_is_told(
    where: str, serve: Serve, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    with serve(profile="1", errors=errors, live_push=where) as program:
        assert b"allod_pushes_total" not in program.ask("/metrics").body
    assert "allod: warning: ALLOD_LIVE_PUSH is not of the form" in errors.read_text()


def test_nobody_listens(serve: Serve, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    # Port 9 is that of `discard`, which nothing here serves.
    options = {"live_push": "localhost:9", "live_push_seconds": "1"}
    with serve(profile="1", errors=errors, **options) as program:
        asked_until(program, 'allod_pushes_total{result="failed"} 2')
    assert errors.read_text().count("no connection") == 1


def test_a_profile_is_exported(
    service: Watched, request_type: Any, tmp_path: Path
) -> None:
    """Of a process that runs."""
    service.do("leak 20480 512")
    words = ["export", "--format", "otlp", "--output", "heap.otlp"]
    done = allod(*words, str(service.process.pid), directory=tmp_path)
    assert done.returncode == 0, done.stderr
    message = request_type.FromString((tmp_path / "heap.otlp").read_bytes())
    assert sum_of(message, "inuse_space", "Sessions::open") == 512 * 20480
    assert sum_of(message, "alloc_objects", "Sessions::open") == 512


def test_pprof_has_labels_of_threads_and_heaps(
    service: Watched, tmp_path: Path
) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    service.do("work 2 1536 2000")
    service.do("heap 4096 300")
    file = tmp_path / "heap.pb.gz"
    file.write_bytes(service.ask("/debug/pprof/heap").body)

    def top(focus: str) -> str:
        words = ["tool", "pprof", "-top", "-unit=kB", f"-tagfocus={focus}", str(file)]
        return subprocess.run(
            [go, *words], capture_output=True, text=True, check=True
        ).stdout

    assert "1200kB" in top("heap=tiles") and "heap tiles" in top("heap=tiles")
    worker = top("thread=worker-1")
    assert "3000kB" in worker and "heap tiles" not in worker


def test_two_processes_are_compared(serve: Serve, service: Watched) -> None:
    """Both at the same time, by process id and by link."""
    service.do("leak 20480 512")
    with serve(profile="0") as other:
        sample_all(other)
        other.do("leak 20480 100")
        done = allod("diff", other.link, str(service.process.pid))
    assert done.returncode == 0, done.stderr
    assert f"to process {service.process.pid}" in done.stdout.replace("\n", " ")
    assert other.token not in done.stdout
    [line] = [line for line in done.stdout.splitlines() if "Sessions::open" in line]
    assert "+8.0 MiB" in line


def test_a_process_without_a_page_is_not_compared(service: Watched) -> None:
    service.do("leak 20480 512")
    done = allod("diff", str(service.process.pid), str(os.getpid()))
    assert done.returncode == 1
    assert "does not run on Allod" in done.stderr
