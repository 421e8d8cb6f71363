"""Which block an address lies in, as programs can ask each of the libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import (
    Case,
    cases_in,
    describe,
    environment,
    listed_cases,
    run_case,
    run_program,
)

GUARDED = "guarded_blocks_are_found"
CASES = [case for case in cases_in(Path(__file__).parent) if case.program == "bounds"]


@pytest.mark.parametrize("case", [c for c in CASES if c.name != GUARDED], ids=str)
def test_bounds(case: Case, library: Path, build_dir: Path, tmp_path: Path) -> None:
    """The case holds on the library."""
    program = build_dir / "tests" / "bounds" / case.program
    run_case(program, case.name, library, tmp_path)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name.startswith("threads_may_ask")], ids=str
)
def test_memory_that_goes_at_once(
    case: Case, library: Path, build_dir: Path, tmp_path: Path
) -> None:
    """Threads may ask about memory that goes back to the system as soon as it is free."""
    program = build_dir / "tests" / "bounds" / case.program
    variables = environment(library) | {"ALLOD_PURGE_DELAY": "0"}
    result = run_program([program, case.name], variables, tmp_path)
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_guarded_blocks(liballod: Path, build_dir: Path, tmp_path: Path) -> None:
    """Of a block on a page of its own, the default library knows the size to the byte, too."""
    program = build_dir / "tests" / "bounds" / "bounds"
    variables = environment(liballod) | {"ALLOD_GUARD_SAMPLE": "1"}
    result = run_program([program, GUARDED], variables, tmp_path)
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_no_case_is_forgotten(build_dir: Path) -> None:
    """What the program lists is what its source defines, and so what is tested above."""
    program = build_dir / "tests" / "bounds" / "bounds"
    assert listed_cases(program) == {case.name for case in CASES}
