"""Redis: its commands, background threads, forks and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from .launcher import DebianPackages, Launcher, Server, Sides, listens

COMMANDS = (
    "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"
)


@dataclass
class Redis:
    """A running Redis server and its command-line client."""

    launcher: Launcher
    server: Server

    def ask(self, *command: str, stdin: bytes = b"") -> str:
        """Sends one command, or what the client reads from standard input."""
        finished = self.launcher.run(
            *("redis-cli", "-s", "redis.sock", "-e", *command), stdin=stdin
        )
        return finished.text.strip()

    def information(self, section: str) -> dict[str, str]:
        """One section of the server's INFO."""
        lines = self.ask("info", section).splitlines()
        return dict(line.strip().split(":", 1) for line in lines if ":" in line)

    def benchmark(self, requests: int) -> None:
        """Runs the benchmark tool with several clients, pipelines and value sizes."""
        for size, pipeline in (("3", "1"), ("900", "16"), ("20000", "4")):
            count = requests // 10 if size == "20000" else requests
            self.launcher.run(
                *("redis-benchmark", "-s", "redis.sock", "-q", "-c", "30"),
                *("-n", str(count), "-r", "20000", "-d", size, "-P", pipeline),
                *("-t", COMMANDS),
            )

    def save_in_background(self) -> None:
        """Starts a fork that saves, and returns when it has succeeded."""
        self.ask("bgsave")
        self.server.wait_until(
            lambda: self.information("persistence")["rdb_bgsave_in_progress"] == "0",
            "the background save has ended",
        )
        assert self.information("persistence")["rdb_last_bgsave_status"] == "ok"

    def start_log(self) -> None:
        """Starts a fork that writes the log, and returns when it has succeeded."""
        self.ask("config", "set", "appendonly", "yes")
        self.server.wait_until(
            lambda: (
                not {
                    self.information("persistence")[f"aof_rewrite_{state}"]
                    for state in ("scheduled", "in_progress")
                }
                - {"0"}
            ),
            "the log is written",
        )
        assert self.information("persistence")["aof_last_bgrewrite_status"] == "ok"


@contextmanager
def running(launcher: Launcher, *options: str) -> Iterator[Redis]:
    """A Redis server that listens on a socket in the launcher's directory."""
    command = (
        *("redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""),
        *("--enable-debug-command", "yes", "--io-threads", "2", *options),
    )
    with launcher.serve(*command) as server:
        socket = launcher.directory / "redis.sock"
        server.wait_until(lambda: listens(socket), "redis accepts clients")
        redis = Redis(launcher, server)
        server.wait_until(
            lambda: redis.information("persistence").get("loading") == "0",
            "redis has loaded its data",
        )
        launcher.check_mapped_in(server.pid)
        yield redis


def commands(seed: int, count: int) -> bytes:
    """Commands that build, grow, shrink and delete values of every type."""
    chance = Random(seed)
    lines: list[str] = []
    for _ in range(count):
        number = chance.randrange(count // 8)
        text = f"{chance.randrange(10**9):x}" * chance.randrange(1, 60)
        lines += [
            f"set string:{number} {text}",
            f"append string:{chance.randrange(count // 8)} {text[:40]}",
            f"rpush list:{number % 97} {text} {number}",
            f"lpop list:{chance.randrange(97)}",
            f"hset hash:{number % 89} field{number} {text}",
            f"hdel hash:{chance.randrange(89)} field{chance.randrange(count)}",
            f"zadd sorted:{number % 83} {number} {text[:70]}",
            f"zremrangebyrank sorted:{chance.randrange(83)} 0 1",
            f"sadd set:{number % 79} {number} {text[:50]}",
            f"setrange page:{number % 50} {chance.randrange(50000)} {text}",
            f"xadd stream:{number % 10} * field {text}",
            f"xtrim stream:{number % 10} maxlen 100",
            f"unlink string:{chance.randrange(count // 8)}",
        ]
    # Entry ids hold the time of day, so the streams must not outlive the work.
    lines += [f"unlink stream:{number}" for number in range(10)]
    return "\r\n".join([*lines, ""]).encode()


def check_redis(sides: Sides, requests: int, count: int) -> None:
    """Benchmarks, fills, saves, stops and reloads a server on both sides."""

    def work(launcher: Launcher) -> tuple[str, str, str]:
        with running(launcher) as redis:
            redis.benchmark(requests)
            redis.ask("flushall", "async")
            redis.ask("--pipe", stdin=commands(1, count))
            redis.save_in_background()
            redis.ask("bgsave")
            # These are written while the child of a fork still saves.
            redis.ask("--pipe", stdin=commands(2, count))
            state = redis.ask("debug", "digest")
            keys = redis.ask("dbsize")
            value = redis.ask("getrange", "page:7", "0", "-1")
            redis.ask("shutdown", "save")
            assert redis.server.wait() == 0
        launcher.run("redis-check-rdb", "dump.rdb")
        with running(launcher) as redis:
            assert redis.ask("debug", "digest") == state
            redis.ask("debug", "reload")
            redis.start_log()
            assert redis.ask("memory", "doctor") != ""
            assert redis.server.stop() == 0
        with running(launcher, "--appendonly", "yes") as redis:
            assert redis.ask("debug", "digest") == state
            assert redis.server.stop() == 0
        launcher.check_allocator_of("redis-server", "redis-benchmark")
        return state, keys, value

    state, keys, _ = sides.agree_on(work)
    assert state.strip("0") and int(keys) > 300


def test_redis_serves_its_benchmark_and_keeps_its_data(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("redis-server", "redis-tools")
    check_redis(sides, requests=1000, count=4000)
