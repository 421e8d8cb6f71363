"""With ALLOD_HARDENED=all,sweep no freed block is used again that something points to."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import (
    SKIPPED,
    Case,
    cases_in,
    describe,
    environment,
    run_program,
)

CASES = cases_in(Path(__file__).parent)


@pytest.mark.parametrize("refused", ["nothing", "watch", "thread"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sweep(
    case: Case, refused: str, liballod_hardened: Path, build_dir: Path, tmp_path: Path
) -> None:
    """The case holds, and nothing is reported: also where the system does not tell what is
    written, and where there is no thread to sweep."""
    program = build_dir / "tests" / "sweep" / case.program
    variables = environment(liballod_hardened) | {
        "ALLOD_HARDENED": "all,sweep",
        "TEST_REFUSED": refused,
    }
    result = run_program([program, case.name], variables, tmp_path)
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_it_says_that_threads_have_other_names(
    liballod_hardened: Path, build_dir: Path, tmp_path: Path
) -> None:
    """In a namespace of processes that has no /proc of its own, no thread can be stopped."""
    program = build_dir / "tests" / "sweep" / "sweep"
    variables = environment(liballod_hardened) | {"ALLOD_HARDENED": "all,sweep"}
    namespace = ["unshare", "--pid", "--fork"]
    if run_program([*namespace, "true"], {}, tmp_path).returncode != 0:
        pytest.skip("there are no namespaces of processes to be had")
    case = "what_short_threads_free_does_not_pile_up"
    result = run_program([*namespace, program, case], variables, tmp_path)
    assert "ALLOD_HARDENED=sweep has stopped" in result.stderr, describe(result)


def test_it_has_to_be_asked_for(
    liballod_hardened: Path, build_dir: Path, tmp_path: Path
) -> None:
    """All measures are those without the sweep: then the first case does not hold."""
    program = build_dir / "tests" / "sweep" / "sweep"
    variables = environment(liballod_hardened) | {"ALLOD_HARDENED": "all"}
    case = "a_pointer_keeps_a_freed_block"
    result = run_program([program, case], variables, tmp_path)
    assert result.returncode == 1, describe(result)
    assert "used again: a global" in result.stderr
