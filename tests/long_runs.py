"""Tests that only a run of their folder alone has time for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

LONG = "long_run"
T = TypeVar("T")


def is_asked_for(folder: Path, arguments: list[str]) -> bool:
    """Whether the command names tests of the folder, as `./allod test --only ports` does."""
    paths = [Path(argument.split("::", 1)[0]).resolve() for argument in arguments]
    return any(path == folder or folder in path.parents for path in paths)


def shortly(values: Iterable[T], is_usual: Callable[[T], bool]) -> list[Any]:
    """Parameters of tests: what is not usual is for a run of the folder alone."""
    alone = getattr(pytest.mark, LONG)
    return [
        each if is_usual(each) else pytest.param(each, marks=alone) for each in values
    ]


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes those whose folder the run does not name out of it."""
    left_out = [
        item
        for item in items
        if item.get_closest_marker(LONG) is not None
        and not is_asked_for(item.path.parent, config.args)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
