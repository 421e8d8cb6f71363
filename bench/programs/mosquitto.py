"""Mosquitto: clients publish what the broker keeps, and get back what they asked for.

Each client has topics of its own and subscribes to them. It sends without waiting, so that
the broker is what takes time. The broker keeps the last message of every topic.
"""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main
from bench.programs.process import Failure, digest
from bench.programs.sockets import PIECE, connect, wait_until_listening

CLIENTS = 4
MESSAGES = 40_000
CONNECT, RETAINED, SUBSCRIBE, DISCONNECT = 0x10, 0x31, 0x82, 0xE0
BYTES_OF_CONSENT = 4 + 5
"""What the broker answers to CONNECT and SUBSCRIBE."""
SETTINGS = """listener 0 {path}
allow_anonymous true
max_queued_messages 0
log_type error
"""


def text(value: bytes) -> bytes:
    """A text with its length, as MQTT 3.1.1 writes it."""
    return len(value).to_bytes(2, "big") + value


def packet(kind: int, body: bytes) -> bytes:
    """A packet with its header."""
    length, left = bytearray(), len(body)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((kind, *length, left)) + body


def messages(client: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Topics and what is said about them."""
    chance = Random(client)
    body = chance.randbytes(1 << 12).hex().encode()
    for _ in range(count):
        place = chance.randrange(count // 2 + 1)
        topic = f"home{client}/floor{place % 50}/room{place}/sensor"
        yield topic.encode(), body[: int(2 ** chance.uniform(3, 11))]


def write(path: Path, count: int) -> None:
    """Every client's messages, as it sends them."""
    path.mkdir()
    for client in range(CLIENTS):
        with (path / str(client)).open("wb") as file:
            for topic, body in messages(client, count):
                file.write(packet(RETAINED, text(topic) + body))


def inputs(bench: Bench) -> Path:
    """The messages of all clients."""
    count = bench.count(MESSAGES)
    return cached("mosquitto", lambda path: write(path, count), Path(__file__), count)


def converse(path: Path, client: int, sent: bytes) -> bytes:
    """Sends all, and returns a digest of the same number of bytes that come back."""
    hello = text(b"MQTT") + b"\x04\x02\0\x3c" + text(b"client%d" % client)
    wish = b"\0\1" + text(b"home%d/#" % client) + b"\0"
    wanted = len(sent) + BYTES_OF_CONSENT
    answers = hashlib.sha256()

    with connect(path) as connection:

        def send() -> None:
            connection.sendall(packet(CONNECT, hello) + packet(SUBSCRIBE, wish) + sent)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        while wanted > 0:
            piece = connection.recv(min(PIECE, wanted))
            if not piece:
                raise Failure("mosquitto has ended a conversation")
            wanted -= len(piece)
            answers.update(piece)
        sender.join()
        connection.sendall(packet(DISCONNECT, b""))
    return answers.digest()


def run(bench: Bench) -> Outcome:
    """Starts the broker, and measures it from the first message to the last."""
    folder, path = inputs(bench), bench.directory / "socket"
    settings = bench.directory / "mosquitto.conf"
    user = "user root\n" if os.geteuid() == 0 else ""
    settings.write_text(SETTINGS.format(path=path) + user)

    def use(client: int) -> bytes:
        return converse(path, client, (folder / str(client)).read_bytes())

    with bench.start("mosquitto", "-c", settings) as server:
        wait_until_listening(server, path)
        with ThreadPoolExecutor(CLIENTS) as pool, server.measuring():
            answers = list(pool.map(use, range(CLIENTS)))
        usage = server.stop()
    return Outcome(usage, CLIENTS * bench.count(MESSAGES), digest(*answers))


SCRIPT = Script("mosquitto", __doc__, {"mosquitto": "mosquitto"}, run, inputs)

if __name__ == "__main__":
    main(SCRIPT)
