"""memcached: four clients with own keys store, append, read and delete, and reconnect.

The clients send requests without waiting, so that the server is what takes time.
memcached takes its items from slabs of its own; what reaches malloc are these slabs'
pages, connections and buffers.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main
from bench.programs.process import Failure, digest
from bench.programs.sockets import converse, wait_until_listening

CLIENTS = 4
SESSIONS = 60
REQUESTS = 8_000
KEYS = 4_000


def requests(client: int) -> Iterator[bytes]:
    """What a client asks in a session."""
    chance = Random(client)
    text = chance.randbytes(1 << 14).hex().encode()
    for _ in range(REQUESTS):
        key = b"client%d:%d" % (client, chance.randrange(KEYS))
        size = int(2 ** chance.uniform(3, 12))
        if chance.random() < 0.002:
            size *= 8
        kind = chance.choices(
            ("get", "set", "append", "delete", "gets"), (50, 35, 5, 8, 2)
        )[0]
        if kind in ("set", "append"):
            size = size if kind == "set" else size % 50
            yield b"%s %s 0 0 %d\r\n%s\r\n" % (kind.encode(), key, size, text[:size])
        elif kind == "gets":
            keys = (
                b"client%d:%d" % (client, chance.randrange(KEYS)) for _ in range(20)
            )
            yield b"get %s\r\n" % b" ".join(keys)
        else:
            yield b"%s %s\r\n" % (kind.encode(), key)
    yield b"quit\r\n"


def write(folder: Path) -> None:
    folder.mkdir()
    for client in range(CLIENTS):
        (folder / str(client)).write_bytes(b"".join(requests(client)))


def inputs(_: Bench) -> Path:
    return cached("memcached", write, Path(__file__))


def run(bench: Bench) -> Outcome:
    folder = inputs(bench)
    sessions = bench.count(SESSIONS)
    path = bench.directory / "socket"
    user = ("-u", "root") if os.geteuid() == 0 else ()
    command = ("memcached", "-s", path, "-t", str(CLIENTS), "-m", "1024", "-M", *user)

    def use(client: int) -> bytes:
        request = (folder / str(client)).read_bytes()
        return b"".join(converse(path, [request]) for _ in range(sessions))

    with bench.start(*command) as server:
        wait_until_listening(server, path)
        with ThreadPoolExecutor(CLIENTS) as pool, server.measuring():
            answers = list(pool.map(use, range(CLIENTS)))
        usage = server.stop()
    if len(set(answers)) < CLIENTS:
        raise Failure("memcached gave two clients the same answers")
    return Outcome(usage, sessions * CLIENTS * REQUESTS, digest(*answers))


SCRIPT = Script("memcached", __doc__, {"memcached": "memcached"}, run, inputs)

if __name__ == "__main__":
    main(SCRIPT)
