"""A client for servers that answer requests in order over a Unix socket."""

import hashlib
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.programs.process import READY_SECONDS, Failure, Program

TALK_SECONDS = 120.0
PIECE = 1 << 16


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TALK_SECONDS)
    try:
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def wait_until_listening(server: Program, path: Path) -> None:
    """Returns when the server accepts connections; fails when it ends or takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        server.check_alive()
        try:
            connect(path).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise Failure(f"{server.name} does not listen: {error}") from None
        time.sleep(0.005)


def converse(path: Path, requests: Sequence[bytes]) -> bytes:
    """Sends requests without waiting for their answers; the last one must say goodbye.

    Returns a digest of all answers, which a second thread reads: the server stops reading
    when nobody takes its answers.
    """
    answers = hashlib.sha256()
    problems: list[OSError] = []

    def read(connection: socket.socket) -> None:
        try:
            while piece := connection.recv(PIECE):
                answers.update(piece)
        except OSError as error:
            problems.append(error)

    with connect(path) as connection:
        reader = threading.Thread(target=read, args=(connection,), daemon=True)
        reader.start()
        try:
            for request in requests:
                connection.sendall(request)
        except OSError as error:
            connection.shutdown(socket.SHUT_RDWR)
            problems.append(error)
        reader.join()
    if problems:
        raise Failure(f"a conversation with the server broke off: {problems[0]}")
    return answers.digest()
