"""What several files about the hardened library use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pytest
from surface.black_box import Runner

from death.reports import (
    Outcome,
    run,
)

ALL = {"HARDENED": "all"}


with_light_guards = pytest.mark.skipif(
    [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]] < [6, 13],
    reason="Linux before 6.13 has guards behind some slabs only",
)


def run_perhaps_older(
    hardened: Runner,
    program: str,
    case: str,
    parameters: Mapping[str, int],
    options: Mapping[str, str],
    *,
    older: bool,
) -> Outcome:
    """Runs a case, perhaps as on a Linux before 6.13."""
    if not older:
        return run(hardened, program, case, parameters, options)
    path = hardened.programs / program
    given: dict[str, int | str] = {"PROGRAM": str(path), "CASE": case}
    given |= parameters
    return run(hardened, "older_system", "without_light_guards", given, options)
