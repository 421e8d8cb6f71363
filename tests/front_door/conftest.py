"""What `./allod` runs is built."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def built(liballod: Path, liballod_debug: Path) -> None:
    """The release build is there."""
    assert liballod.exists() and liballod_debug.exists()
