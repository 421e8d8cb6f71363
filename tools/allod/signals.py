"""Signals that are handled otherwise for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals
) -> Iterator[None]:
    """What handled these signals before handles them afterwards. In the main thread only."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
