"""How far a comparison is, and how long it still takes."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from bench.compare.rounds import Budget

CONSOLE = Console(stderr=True)


def say(text: str) -> None:
    """Prints a line for a person, as it is."""
    CONSOLE.print(text, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """A time to wait, as people say it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Remaining:
    """An estimate from what the cases so far took."""

    def __init__(
        self,
        cases: int,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left = cases
        self._budget = budget
        self._clock = clock
        self._finished: list[float] = []
        self._began = clock()

    def begin_case(self) -> None:
        self._began = self._clock()
        self._left -= 1

    def end_case(self) -> None:
        self._finished.append(self._clock() - self._began)

    def seconds(self, done: int, most: int) -> float:
        """After ``done`` of at most ``most`` runs of the case that runs now."""
        spent = self._clock() - self._began
        whole = spent / done * most if done else 0.0
        usual = [*self._finished, *([whole] if done else [])]
        each = sum(usual) / len(usual) if usual else 0.0
        estimate = max(whole - spent, 0.0) + each * self._left
        limit = self._budget.left if self._budget is not None else None
        return estimate if limit is None else min(estimate, limit)


class Display:
    """One line on a terminal, redrawn between runs; else one line for each case."""

    def __init__(self, console: Console, cases: int, budget: Budget) -> None:
        self._console = console
        self._cases = cases
        self._number = 0
        self._remaining = Remaining(cases, budget)
        self._bar = Progress(
            TextColumn("{task.description:28}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} runs at most"),
            TextColumn("remaining {task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
            # Nothing of ours may run beside a workload.
            auto_refresh=False,
        )
        self._task = self._bar.add_task("", total=1, left="?")

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin_case(self, name: str) -> None:
        self._number += 1
        self._remaining.begin_case()
        title = f"{name} ({self._number} of {self._cases})"
        self._bar.update(self._task, description=title, completed=0)

    def advance(self, done: int, most: int) -> None:
        left = duration(self._remaining.seconds(done, most))
        self._bar.update(self._task, completed=done, total=most, left=left)
        self._bar.refresh()

    def end_case(self, text: str) -> None:
        self._remaining.end_case()
        if not self._console.is_terminal:
            left = duration(self._remaining.seconds(0, 0))
            text = f"{self._number} of {self._cases}, {text}"
            if self._number < self._cases:
                text += f"; about {left} remaining"
            self.say(text)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
