"""What was never touched takes no memory when blocks are freed or used again."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import cases_in

from options.runs import run_well

CASES = [
    case.name for case in cases_in(Path(__file__).parent) if case.program == "sparse"
]
# calloc of the default library writes to blocks that were used before.
BY_LIBRARY = (
    [("liballod_hardened", case) for case in CASES]
    + [("liballod", case) for case in CASES if "used_again" not in case]
    + [("liballod_debug", case) for case in CASES if case.startswith("what_was_never")]
)
# Nothing is given back meanwhile.
AN_HOUR = {"ALLOD_PURGE_DELAY": "3600000", "ALLOD_PURGE_BUDGET": "1G"}


def program(build_dir: Path) -> Path:
    """The program of these cases."""
    return build_dir / "tests" / "options" / "sparse"


@pytest.mark.parametrize(("library_name", "case"), BY_LIBRARY)
def test_sparse(
    library_name: str,
    case: str,
    build_dir: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The case holds."""
    library: Path = request.getfixturevalue(library_name)
    run_well(program(build_dir), case, library, tmp_path, AN_HOUR)


@pytest.mark.parametrize("measures", ["all,-guards", "all,-quarantine"])
def test_sparse_with_other_measures(
    measures: str, build_dir: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """Whatever else is on, what was never touched gets no memory when it is freed."""
    case = "what_was_never_touched_gets_no_memory"
    variables = AN_HOUR | {"ALLOD_HARDENED": measures}
    run_well(program(build_dir), case, liballod_hardened, tmp_path, variables)
