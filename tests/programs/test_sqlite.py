"""SQLite's shell."""

from __future__ import annotations

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides, digest


def test_sqlite_builds_queries_and_dumps_the_same_database(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("sqlite3")
    script = (WORKLOADS / "inventory.sql").read_bytes()

    def work(launcher: Launcher) -> tuple[str, str]:
        answers = launcher.run("sqlite3", "-bail", "shop.db", stdin=script)
        dump = launcher.run("sqlite3", "shop.db", ".dump")
        launcher.run("sqlite3", "-bail", "copy.db", stdin=dump.output)
        again = launcher.run("sqlite3", "copy.db", ".dump")
        assert again.output == dump.output
        launcher.check_allocator_of("sqlite3")
        return answers.text, digest(dump.output)

    answers, _ = sides.agree_on(work)
    assert "ok" in answers.splitlines(), "the integrity check must pass"
