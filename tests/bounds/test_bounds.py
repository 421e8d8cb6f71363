"""Which block an address lies in, as programs can ask each of the libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import (
    Case,
    Runner,
    cases_in,
    describe,
    listed_cases,
)

GUARDED = "guarded_blocks_are_found"
CASES = [case for case in cases_in(Path(__file__).parent) if case.program == "bounds"]


@pytest.mark.parametrize("case", [c for c in CASES if c.name != GUARDED], ids=str)
def test_bounds(case: Case, preloaded: Runner) -> None:
    """The case holds on the library."""
    preloaded.holds(*case)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name.startswith("threads_may_ask")], ids=str
)
def test_memory_that_goes_at_once(case: Case, preloaded: Runner) -> None:
    """Threads may ask about memory that goes back to the system as soon as it is free."""
    result = preloaded.run(*case, ALLOD_PURGE_DELAY=0)
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_guarded_blocks(release: Runner) -> None:
    """Of a block on a page of its own, the default library knows the size to the byte, too."""
    result = release.run("bounds", GUARDED, ALLOD_GUARD_SAMPLE=1)
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_no_case_is_forgotten(build_dir: Path) -> None:
    """What the program lists is what its source defines, and so what is tested above."""
    program = build_dir / "tests" / "bounds" / "bounds"
    assert listed_cases(program) == {case.name for case in CASES}
