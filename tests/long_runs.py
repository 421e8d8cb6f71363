"""Tests that only a run of their folder alone has time for."""

from __future__ import annotations

from pathlib import Path

import pytest

LONG = "long_run"


def is_asked_for(folder: Path, arguments: list[str]) -> bool:
    """Whether the command names tests of the folder, as `./allod test --only ports` does."""
    paths = [Path(argument.split("::", 1)[0]).resolve() for argument in arguments]
    return any(path == folder or folder in path.parents for path in paths)


def leave_out(folder: Path, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes those of the folder out of a run that does not name it."""
    if is_asked_for(folder, config.args):
        return
    left_out = [
        item
        for item in items
        if folder in item.path.parents and item.get_closest_marker(LONG) is not None
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
