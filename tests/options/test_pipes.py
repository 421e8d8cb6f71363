"""Text that cannot be written any more does not end the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import Case, Runner, cases_in

CASES = [case for case in cases_in(Path(__file__).parent) if case.program == "pipes"]


@pytest.mark.parametrize("form", ["none", "text", "json"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, form: str, preloaded: Runner) -> None:
    """The case holds, whatever is to be written at its end."""
    variables = {} if form == "none" else {"ALLOD_SHOW_STATS": form}
    preloaded.run_well("pipes", case.name, **variables)
