"""Who does not have the link gets nothing, changes nothing and breaks nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from .conftest import Serve
from .watched import Watched

PATHS = [
    "/",
    "/api/state",
    "/api/map",
    "/api/children",
    "/metrics",
    "/debug/pprof/heap",
    "/debug/folded",
]
ACTIONS = ["/api/reset", "/api/purge", "/api/mark?label=x", "/api/sampling?interval=1"]


@pytest.fixture(scope="module")
def program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """A service that all strangers of this file visit; it must live through all of them."""
    from .watched import watched

    libraries = (
        request.getfixturevalue("liballod"),
        request.getfixturevalue("liballod_live"),
    )
    service = request.getfixturevalue("build_dir") / "tests" / "live_service"
    clean = request.getfixturevalue("clean")
    with watched(
        [service], libraries, tmp_path_factory.mktemp("live"), clean, profile="65536"
    ) as it:
        yield it
        it.do("hold 1000 1000")


def raw(program: Watched, request: bytes, *, wait: float = 10.0) -> bytes:
    """Sends bytes, and returns all that comes back until the server closes."""
    with socket.create_connection((program.host, program.port), timeout=wait) as stream:
        stream.sendall(request)
        stream.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while chunk := stream.recv(65536):
                answer += chunk
        except ConnectionError:
            pass
        return answer


@pytest.mark.parametrize("path", PATHS)
def test_no_token_no_answer(program: Watched, path: str) -> None:
    assert program.ask(path).status == 200
    for token in (
        "",
        "?token=",
        "?token=" + "0" * 32,
        f"?token={program.token[:-1]}",
        f"?token={program.token}0",
        f"?tokens={program.token}",
    ):
        answer = program.ask(path + token, token=False)
        assert answer.status == 403, token
        assert len(answer.body) < 100


@pytest.mark.parametrize("path", ACTIONS)
def test_only_a_bearer_acts(program: Watched, path: str) -> None:
    """A form or a picture of another page can name the link, but send no such header."""
    separator = "&" if "?" in path else "?"
    before = program.state()
    linked = f"{path}{separator}token={program.token}"
    assert program.ask(linked, token=False, method="POST").status == 403
    assert program.ask(path, token=False, method="POST").status == 403
    assert program.ask(path, method="GET").status == 404
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert program.ask(path, method=method).status >= 400
    after = program.state()
    assert after["history"]["marks"] == before["history"]["marks"]
    assert after["profile"]["interval"] == before["profile"]["interval"]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "127.0.0.1:{port},evil.example",
        "",
        ",",
        "127.0.0.1:{port}:",
        "127.0.0.1:{port}0",
    ],
)
def test_a_name_that_is_bound_anew_is_refused(program: Watched, host: str) -> None:
    named = host.format(port=program.port)
    for path in PATHS:
        assert program.ask(path, headers={"Host": named}).status in (400, 403), path


def test_own_names_are_good(program: Watched) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert (
            program.ask("/metrics", headers={"Host": f"{name}:{program.port}"}).status
            == 200
        )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_other_pages_are_refused(program: Watched, headers: dict[str, str]) -> None:
    for path in PATHS:
        assert program.ask(path, headers=headers).status == 403
    assert program.ask("/api/purge", method="POST", headers=headers).status == 403


def test_another_process_page_may_lead_here_and_no_further(program: Watched) -> None:
    headers = {
        "Sec-Fetch-Site": "same-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    for path in PATHS:
        status = program.ask(path, headers=headers).status
        assert status == (200 if path == "/" else 403), path
    for name in headers:
        for value in ("cross-site", "cors", "iframe"):
            assert program.ask("/", headers={**headers, name: value}).status == 403
    assert program.ask("/", token=False, headers=headers).status == 403


def test_two_hosts_or_two_tokens_are_none(program: Watched) -> None:
    host = f"Host: {program.authority}\r\n"
    bearer = f"Authorization: Bearer {program.token}\r\n"
    for extra in (
        host,
        bearer,
        "Host: evil.example\r\n",
        "Authorization: Bearer x\r\n",
    ):
        request = f"GET /metrics HTTP/1.1\r\n{host}{bearer}{extra}\r\n"
        assert b" 200 " not in raw(program, request.encode()), extra
    whole = f"GET http://evil.example/metrics HTTP/1.1\r\n{host}{bearer}\r\n"
    assert b" 200 " not in raw(program, whole.encode())
    assert b" 200 " in raw(
        program, f"GET /metrics HTTP/1.1\r\n{host}{bearer}\r\n".encode()
    )


@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd",
        "//etc/passwd",
        "/api/../metrics",
        "/api/state/",
        "/%2e%2e/metrics",
        "/metrics%00",
        "/api",
        "/debug/pprof/",
        "/debug/pprof/profile",
        "/api/state%2f..",
        "/API/STATE",
        "/." * 500,
    ],
)
def test_paths_lead_nowhere_else(program: Watched, path: str) -> None:
    answer = program.ask(path)
    assert answer.status in (400, 403, 404)
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"\r\n" * 5000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"POST /api/purge HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"
        + b"x" * 100_000,
        b"POST /api/purge HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/purge HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        bytes(range(256)) * 100,
    ],
    ids=range(11),
)
def test_nonsense_harms_nobody(program: Watched, request_: bytes) -> None:
    assert b" 200 " not in raw(program, request_)
    assert program.ask("/metrics").status == 200


def test_slow_requests_are_cut_off(program: Watched) -> None:
    """They may not take the places of others: not one by one, not all together."""
    streams = [
        socket.create_connection((program.host, program.port)) for _ in range(100)
    ]
    try:
        for stream in streams:
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        # The places are free again after the time that a stranger has.
        assert program.ask("/metrics").status == 200
        end = time.monotonic() + 60
        open_streams = set(streams[:60])
        while open_streams and time.monotonic() < end:
            for stream in list(open_streams):
                try:
                    # As slowly as can be, and never an end.
                    stream.sendall(b"X")
                    stream.settimeout(0.05)
                    if stream.recv(1) == b"":
                        open_streams.remove(stream)
                except TimeoutError:
                    continue
                except OSError:
                    open_streams.discard(stream)
        assert not open_streams
    finally:
        for stream in streams:
            stream.close()
    program.do("temporary 100 100")


def test_a_token_may_be_chosen_but_not_a_short_one(serve: Serve) -> None:
    chosen = "a-token-that-was-chosen"
    with serve(live_token=chosen) as program:
        assert program.token == chosen
        assert program.ask("/metrics").status == 200
    with (
        pytest.raises(AssertionError, match="no live page|has ended"),
        serve("/bin/true", live_token="short"),
    ):
        pass
