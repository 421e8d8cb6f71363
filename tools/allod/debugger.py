"""Starts gdb with the commands of gdb_heap.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from allod.console import Failure
from allod.run import NOT_FOUND

COMMANDS = Path(__file__).with_name("gdb_heap.py")


def start(arguments: Sequence[str]) -> None:
    """Takes the place of this process. Failure: there is no gdb."""
    gdb = shutil.which("gdb")
    if gdb is None:
        raise Failure("gdb is not installed", NOT_FOUND)
    os.execv(gdb, [gdb, "-q", "-x", str(COMMANDS), *arguments])
