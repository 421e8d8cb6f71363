"""Quantities as people read them."""

from __future__ import annotations


def human(amount: float) -> str:
    """A number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def human_time(nanoseconds: float) -> str:
    """A length of time."""
    for unit in ("ns", "µs", "ms"):
        if nanoseconds < 1000:
            return f"{nanoseconds:.3g} {unit}"
        nanoseconds /= 1000
    return f"{nanoseconds:.3g} s"


def counted(number: int, word: str) -> str:
    """A number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
