"""A pytest plugin that says what pytest-xdist hands to one worker as a whole.

A file stays together, as its tests may share a fixture or a program that runs once for all of
them. A few folders stay together as well: what they start would see, or disturb, its like. Where
each test of a file takes long by itself, it is a share of its own.

The largest shares come first, so that no worker is left with one when the others are done.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

# The list of live programs shows every one; servers and databases are one load at a time.
TOGETHER = ("tests/live/", "tests/programs/")
# Each test is a program that runs for seconds and that nothing is shared with.
APART = ("tests/test_clang_tidy.py", "tests/fuzz/")
# What takes minutes, or seconds for a single test that cannot be divided, by what it takes.
FIRST = (
    "tests/programs/",
    "tests/arm64/",
    "tests/windows/",
    "tests/bsd/",
    "tests/ports/",
    "tests/live/",
    "tests/traps/",
    "tests/test_clang_tidy.py",
    "tests/fuzz/",
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Shares of a file each, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)


def share_of(nodeid: str) -> str:
    """The share that a test belongs to."""
    for folder in TOGETHER:
        if nodeid.startswith(folder):
            return folder
    if nodeid.startswith(APART):
        return nodeid
    return nodeid.split("::", 1)[0]


def place_of(nodeid: str) -> int:
    """How early a test comes: the first is 0."""
    for place, start in enumerate(FIRST):
        if nodeid.startswith(start):
            return place
    return len(FIRST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Changes the order where there are workers, and in all of them alike."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    """Takes the place of xdist's own choice."""
    return ByFile(config, log)
