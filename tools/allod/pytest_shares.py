"""A pytest plugin that says what pytest-xdist hands to one worker as a whole.

A file stays together, as its tests may share a fixture or a program that runs once for all of
them. A few folders stay together as well: what they start would see, or disturb, its like.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

# The list of live programs shows every one; servers and databases are one load at a time.
TOGETHER = ("tests/live/", "tests/programs/")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Shares of a file each, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)


def share_of(nodeid: str) -> str:
    """The share that a test belongs to."""
    for folder in TOGETHER:
        if nodeid.startswith(folder):
            return folder
    return nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    """Takes the place of xdist's own choice."""
    return ByFile(config, log)
