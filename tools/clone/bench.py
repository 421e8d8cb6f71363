"""Hands over to the side-by-side measurement in bench/compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from workshop.build import PRESETS, ensure_built
from workshop.environment import ensure_bench, ensure_profilers
from workshop.paths import ROOT

# What measures nothing needs no library.
HELP = {"-h", "--help"}
ASKS_ONLY = {*HELP, "--list", "--from"}


def bench(arguments: Sequence[str]) -> NoReturn:
    """Builds the library and measures it; does not return."""
    if not HELP.intersection(arguments):
        ensure_bench()
        if "--profilers" in arguments:
            ensure_profilers()
    if not ASKS_ONLY.intersection(each.partition("=")[0] for each in arguments):
        ensure_built(PRESETS["release"])
    sys.path.insert(0, str(ROOT))
    from bench.compare.cli import main

    sys.exit(main(arguments, "allod bench"))
