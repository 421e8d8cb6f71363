"""Huge pages where the system gives them to all memory unasked, as Debian does by default."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from surface.black_box import environment

MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SHOW = "print(open('/proc/self/smaps_rollup').read())"
MANY_BLOCKS = "kept = [str(number) for number in range(1_000_000)]\n"


@pytest.fixture(name="always")
def fixture_always() -> Iterator[None]:
    """Root may switch the mode. Each case takes a moment, as the whole system is in it."""
    try:
        before = re.search(r"\[(\w+)\]", MODE.read_text())
        assert before is not None
        MODE.write_text("always")
    except OSError as error:
        pytest.skip(f"the system's mode for huge pages cannot be switched: {error}")
    yield
    MODE.write_text(before[1])


def huge_kib(library: Path, script: str, **variables: str) -> int:
    """What a script on Allod has in huge pages."""
    run = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env=environment(library) | {"PYTHONMALLOC": "malloc"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"AnonHugePages: +(\d+) kB", run.stdout)
    assert found is not None
    return int(found[1])


@pytest.mark.usefixtures("always")
def test_a_small_program_gets_none(library: Path) -> None:
    assert huge_kib(library, SHOW) == 0


@pytest.mark.usefixtures("always")
def test_a_large_program_gets_none_where_they_are_never_to_be(library: Path) -> None:
    if library.name.startswith("liballod-debug"):
        pytest.skip("the records of blocks are no blocks, and may get some")
    assert huge_kib(library, MANY_BLOCKS + SHOW, ALLOD_HUGE_PAGES="never") == 0


@pytest.mark.usefixtures("always")
def test_a_large_program_gets_some(library: Path) -> None:
    assert huge_kib(library, MANY_BLOCKS + SHOW) > 0
