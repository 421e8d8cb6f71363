"""What only a run of these tests alone has time for."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = "long_run"


def is_asked_for(arguments: list[str]) -> bool:
    """Whether the command names these tests, as `./allod test --only ports` does."""
    paths = [Path(argument.split("::", 1)[0]).resolve() for argument in arguments]
    return any(path == HERE or HERE in path.parents for path in paths)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves the long ones out of all other runs."""
    if is_asked_for(config.args):
        return
    left_out = [
        item
        for item in items
        if HERE in item.path.parents and item.get_closest_marker(LONG) is not None
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
