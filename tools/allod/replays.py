"""What is to be measured of replays of a trace, and what was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Allocator(Protocol):
    """An allocator under a name; without a library it is the C library's own."""

    @property
    def name(self) -> str: ...
    @property
    def library(self) -> Path | None: ...
    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """What a program under it needs in its environment."""


@dataclass(frozen=True)
class Replays:
    """What replays of one trace measured, by the allocators' names: each run as the replay has
    reported it, the 95 % interval of the seconds, and why an allocator failed."""

    runs: Mapping[str, Sequence[Mapping[str, Any]]]
    intervals: Mapping[str, tuple[float, float]]
    failures: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """How a prepared trace is replayed; `timeout` is in seconds."""

    title: str
    params: dict[str, int | str]
    rounds: int
    timeout: float
