"""What the fuzzers know. They are run by tools/workshop/pytest_gtest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FUZZERS = ("fuzz_space", "fuzz_slab", "fuzz_heap")
MOST_FILES = 60


@pytest.mark.parametrize("name", FUZZERS)
def test_every_fuzzer_knows_something(name: str) -> None:
    assert any((FOLDER / "corpus" / name).iterdir())


def test_what_is_known_is_small() -> None:
    known = [path for path in (FOLDER / "corpus").rglob("*") if path.is_file()]
    assert len(known) < MOST_FILES
    assert max(path.stat().st_size for path in known) <= 4096
