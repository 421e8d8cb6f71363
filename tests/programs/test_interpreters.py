"""Interpreters of which each runs one script in its own language."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.programs.common import WORK

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides


def agree_on_script(
    sides: Sides, interpreter: str, script: str | Path, *arguments: str
) -> str:
    """Runs a script, of these tests or by its path, and returns the output both sides agree on."""

    def work(launcher: Launcher) -> str:
        finished = launcher.run(interpreter, WORKLOADS / script, *arguments)
        launcher.check_allocator_of(interpreter)
        assert finished.errors == ""
        return finished.text

    return sides.agree_on(work)


def test_perl_prints_the_same_from_hashes_cloned_threads_and_processes(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("perl")
    assert "process 4" in agree_on_script(sides, "perl", "records.pl")


def test_lua_prints_the_same_from_tables_closures_and_coroutines(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("lua5.4")
    output = agree_on_script(sides, "lua5.4", WORK / "script.lua", "2")
    assert len(output.splitlines()) == 2


def test_php_prints_the_same_from_extensions_that_look_in_libc_first(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    """Each extension is opened with RTLD_DEEPBIND, and gives blocks to PHP and takes others."""
    debian_packages("php-cli", "php-xml", "php-sqlite3", "php-mbstring")
    assert "documents" in agree_on_script(sides, "php", "documents.php")


@pytest.mark.slow
def test_ruby_prints_the_same_under_collector_stress_in_threads_and_fibers(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("ruby")
    assert "process 3" in agree_on_script(sides, "ruby", "garbage.rb")


@pytest.mark.slow
def test_node_prints_the_same_from_buffers_that_pass_between_workers(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("nodejs")
    assert "buffers" in agree_on_script(sides, "node", "workers.js")
