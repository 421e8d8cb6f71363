"""What was never touched takes no memory when blocks are freed or used again."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import Runner, cases_in

CASES = [
    case.name for case in cases_in(Path(__file__).parent) if case.program == "sparse"
]
# calloc of the default library writes to blocks that were used before.
BY_LIBRARY = (
    [("hardened", case) for case in CASES]
    + [("release", case) for case in CASES if "used_again" not in case]
    + [("debug", case) for case in CASES if case.startswith("what_was_never")]
)
# Nothing is given back meanwhile.
AN_HOUR = {"ALLOD_PURGE_DELAY": "3600000", "ALLOD_PURGE_BUDGET": "1G"}


@pytest.mark.parametrize(("kind", "case"), BY_LIBRARY)
def test_sparse(kind: str, case: str, request: pytest.FixtureRequest) -> None:
    """The case holds."""
    runner: Runner = request.getfixturevalue(kind)
    runner.run_well("sparse", case, **AN_HOUR)


@pytest.mark.parametrize("measures", ["all,-guards", "all,-quarantine"])
def test_sparse_with_other_measures(measures: str, hardened: Runner) -> None:
    """Whatever else is on, what was never touched gets no memory when it is freed."""
    case = "what_was_never_touched_gets_no_memory"
    hardened.run_well("sparse", case, ALLOD_HARDENED=measures, **AN_HOUR)
