"""Interpreters of which each runs one script in its own language."""

from __future__ import annotations

import pytest

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides


def agree_on_script(sides: Sides, interpreter: str, script: str) -> str:
    """Runs a script on both sides and returns the output they agree on."""

    def work(launcher: Launcher) -> str:
        finished = launcher.run(interpreter, WORKLOADS / script)
        launcher.check_allocator_of(interpreter)
        assert finished.errors == ""
        return finished.text

    return sides.agree_on(work)


def test_perl_prints_the_same_from_hashes_cloned_threads_and_processes(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("perl")
    assert "process 4" in agree_on_script(sides, "perl", "records.pl")


def test_lua_prints_the_same_from_tables_and_coroutines(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("lua5.4")
    assert "array" in agree_on_script(sides, "lua5.4", "tables.lua")


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
