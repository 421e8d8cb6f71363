"""PostgreSQL: a cluster made, loaded, queried, dumped, stopped and started."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .launcher import (
    WORKLOADS,
    DebianPackages,
    Finished,
    Launcher,
    Server,
    Sides,
    digest,
)

CLIENTS = 6
TRANSACTIONS = 400
HISTORY = "pgbench_history"
"""The table that holds the time of day of every transaction."""


def programs() -> Path:
    """The directory of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert found, "the server's programs are installed"
    return found[-1]


def account() -> str | None:
    """The user to run the server as, which refuses to run as root."""
    return None if os.geteuid() != 0 else "postgres"


@dataclass
class Cluster:
    """A cluster in the launcher's directory."""

    launcher: Launcher

    def run(self, program: str, *arguments: str, stdin: bytes = b"") -> Finished:
        """Runs one of PostgreSQL's programs."""
        environment = {"PGHOST": str(self.launcher.directory), "PGUSER": "owner"}
        return self.launcher.run(
            programs() / program,
            *arguments,
            stdin=stdin,
            environment=environment,
            user=account(),
        )

    def create(self) -> None:
        """Makes the files of the cluster."""
        self.run(
            *("initdb", "--pgdata=data", "--username=owner", "--auth=trust"),
            *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--data-checksums"),
        )

    @contextmanager
    def started(self) -> Iterator[Server]:
        """Serves the cluster on a socket in its directory."""
        settings = ("listen_addresses=", "fsync=off", "max_worker_processes=6")
        with self.launcher.serve(
            *(programs() / "postgres", "-D", "data", "-k", self.launcher.directory),
            *(part for setting in settings for part in ("-c", setting)),
            user=account(),
        ) as server:
            server.wait_until(self.accepts, "PostgreSQL accepts connections")
            yield server
            assert server.stop(signal.SIGINT) == 0, server.errors()

    def accepts(self) -> bool:
        """Whether the server takes connections."""
        status = self.launcher.run(
            *(programs() / "pg_isready", "-q", "-h", self.launcher.directory),
            succeeds=False,
        ).status
        return status == 0

    def ask(self, script: str) -> str:
        """The rows that a script prints."""
        return self.run(
            *("psql", "-XqAt", "--dbname=postgres"), stdin=script.encode()
        ).text


@pytest.mark.slow
def test_postgresql_answers_the_same_and_keeps_its_books_balanced(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("postgresql", "postgresql-contrib")

    def work(launcher: Launcher) -> tuple[str, str, str]:
        if user := account():
            owner = pwd.getpwnam(user)
            os.chown(launcher.directory, owner.pw_uid, owner.pw_gid)
        cluster = Cluster(launcher)
        cluster.create()
        with cluster.started() as server:
            helpers = [int(helper) for helper in cluster.ask(HELPERS).split()]
            launcher.check_mapped_in(server.pid, *helpers)
            answers = cluster.ask((WORKLOADS / "queries.sql").read_text())
            cluster.run("pgbench", "-i", "-q", "-s", "2", "postgres")
            cluster.run(
                *("pgbench", "-n", "-c", str(CLIENTS), "-j", "2", "--random-seed=5"),
                *("-M", "prepared", "-t", str(TRANSACTIONS), "postgres"),
            )
            # Without -C, each of these would be one long session.
            cluster.run("pgbench", "-n", "-C", "-S", "-c", "4", "-t", "60", "postgres")
            books = cluster.ask(BALANCES)
        with cluster.started():
            assert cluster.ask(BALANCES) == books
            dump = cluster.run("pg_dump", f"--exclude-table-data={HISTORY}", "postgres")
            cluster.run("pg_amcheck", "--all", "--install-missing", "--heapallindexed")
        cluster.run("pg_checksums", "--check", "--pgdata=data")
        for program in ("postgres", "psql", "pgbench", "initdb", "pg_dump"):
            launcher.check_allocator_of(programs() / program)
        shutil.rmtree(launcher.directory / "data")
        return answers, books, stable_digest(dump.output)

    _, books, _ = sides.agree_on(work)
    sums, count, _ = books.splitlines()
    assert len(set(sums.split("|"))) == 1, "every table must have the same total"
    assert int(count) == CLIENTS * TRANSACTIONS


HELPERS = """
SELECT pid FROM pg_stat_activity
WHERE backend_type IN ('checkpointer', 'background writer', 'walwriter');
"""
BALANCES = """
SELECT (SELECT sum(abalance) FROM pgbench_accounts),
       (SELECT sum(bbalance) FROM pgbench_branches),
       (SELECT sum(tbalance) FROM pgbench_tellers),
       (SELECT sum(delta) FROM pgbench_history);
SELECT count(*) FROM pgbench_history;
SELECT md5(string_agg(aid || ':' || abalance, ',' ORDER BY aid)) FROM pgbench_accounts;
"""


def stable_digest(dump: bytes) -> str:
    """A digest of a dump that leaves out the order of rows and the random keys."""
    lines = (line for line in dump.splitlines() if b"restrict " not in line)
    return digest(b"\n".join(sorted(lines)))
