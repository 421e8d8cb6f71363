"""What a user runs: programs on Allod, and what shows their heaps.

In a program, `allod.library("hardened")` is the path of a library, and `allod.heap()` are the
statistics of the process's own heap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allod.own import Heap

__all__ = ["heap", "library"]


# Imported when they are called: starting a program must stay quick.
def library(variant: str = "") -> str:
    """The path of the library, or of a variant of it, such as "hardened"."""
    from allod import own

    return own.library(variant)


def heap() -> Heap:
    """The heap of this process. RuntimeError: it does not run on Allod."""
    from allod import own

    return own.heap()
