"""Redis under redis-benchmark, with a filled database; also its size after filling.

The filling is the same in every run: values of all kinds and sizes that are changed and
deleted again. Then redis-benchmark measures one command after the other, with pipelines.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main
from bench.programs.process import Failure, digest, memory_of
from bench.programs.sockets import converse, wait_until_listening

STEPS = 60_000
REQUESTS = 160_000
LEAST_REQUESTS = 2_000
"""redis-benchmark counts in milliseconds."""
TESTS = {
    "set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,zpopmin": 1,
    "mset": 8,
    "lrange_300": 25,
}
"""Commands, and how many fewer of them there are because each does the work of many."""
SERVER = (
    "--port",
    "0",
    "--save",
    "",
    "--appendonly",
    "no",
    "--enable-debug-command",
    "yes",
)


def filling(steps: int) -> Iterator[str]:
    """Commands, a line each."""
    chance = Random(9)
    letters = "abcdefghijklmnopqrstuvwxyz" * 200
    for step in range(steps):
        key = chance.randrange(steps // 3 + 1)
        text = letters[: int(2 ** chance.uniform(2, 10))]
        match chance.randrange(10):
            case 0 | 1 | 2:
                yield f"set text:{key} {step}{text}"
            case 3:
                yield f"append text:{key} {text[:40]}"
            case 4:
                yield f"rpush list:{key % 500} {text} {step}"
            case 5:
                yield f"hset hash:{key % 700} field{key} {text} last {step}"
            case 6:
                yield f"zadd sorted:{key % 100} {step} {text[:60]}{key}"
            case 7:
                yield f"sadd set:{key % 200} {key} {text[:30]}"
            case 8:
                kind = chance.choice(("text", "text", "list", "hash", "set"))
                yield f"unlink {kind}:{chance.randrange(steps // 3 + 1)}"
            case _:
                yield f"get text:{key}"
    yield "debug digest"
    yield "dbsize"
    yield "quit"


def inputs(bench: Bench) -> Path:
    steps = bench.count(STEPS)

    def write(path: Path) -> None:
        path.write_text("".join(f"{line}\r\n" for line in filling(steps)))

    return cached("redis.txt", write, Path(__file__), steps)


def measure(bench: Bench, path: Path, tests: str, requests: int) -> dict[str, float]:
    """The rate of each test; some bring others that prepare them."""
    output = bench.client(
        *("redis-benchmark", "-s", path, "--csv", "-t", tests, "-n", str(requests)),
        *("-r", "50000", "-d", "200", "-P", "16", "-c", "20"),
    )
    rows = csv.DictReader(line for line in output.splitlines() if line.startswith('"'))
    rates = {row["test"].partition(" ")[0].lower(): float(row["rps"]) for row in rows}
    if missing := set(tests.split(",")) - rates.keys():
        raise Failure(
            f"redis-benchmark gives no figure for {missing}: {output[-300:]!r}"
        )
    return rates


def run(bench: Bench) -> Outcome:
    steps = inputs(bench).read_bytes()
    requests = bench.count(REQUESTS)
    path = bench.directory / "socket"
    points: dict[str, float] = {}
    ops = 0
    with bench.start("redis-server", *SERVER, "--unixsocket", path) as server:
        wait_until_listening(server, path)
        answers = converse(path, [steps])
        resident = memory_of(server.pid)[1]
        with server.measuring():
            for tests, fewer in TESTS.items():
                count = max(LEAST_REQUESTS, requests // fewer)
                rates = measure(bench, path, tests, count)
                points |= {name: 1e9 / rates[name] for name in tests.split(",")}
                ops += count * len(rates)
        usage = server.stop()
    return Outcome(
        usage,
        ops,
        digest(answers),
        points,
        [("resident size after filling", resident, "KiB", "less")],
    )


SCRIPT = Script(
    "redis",
    __doc__,
    {"redis-server": "redis-server", "redis-benchmark": "redis-tools"},
    run,
    inputs,
)

if __name__ == "__main__":
    main(SCRIPT)
