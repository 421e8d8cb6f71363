"""With ALLOD_HARDENED=all,sweep no freed block is used again that something points to."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface.black_box import (
    Case,
    Runner,
    cases_in,
    describe,
    run_program,
)

CASES = cases_in(Path(__file__).parent)


@pytest.mark.parametrize("refused", ["nothing", "watch", "thread"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sweep(case: Case, refused: str, hardened: Runner) -> None:
    """The case holds, and nothing is reported: also where the system does not tell what is
    written, and where there is no thread to sweep."""
    result = hardened.run(*case, ALLOD_HARDENED="all,sweep", TEST_REFUSED=refused)
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_it_says_that_threads_have_other_names(
    hardened: Runner, tmp_path: Path
) -> None:
    """In a namespace of processes that has no /proc of its own, no thread can be stopped."""
    namespace = ("unshare", "--pid", "--fork")
    if run_program([*namespace, "true"], {}, tmp_path).returncode != 0:
        pytest.skip("there are no namespaces of processes to be had")
    case = "what_short_threads_free_does_not_pile_up"
    result = hardened.behind(*namespace).run("sweep", case, ALLOD_HARDENED="all,sweep")
    assert "ALLOD_HARDENED=sweep has stopped" in result.stderr, describe(result)


def test_it_has_to_be_asked_for(hardened: Runner) -> None:
    """All measures are those without the sweep: then the first case does not hold."""
    case = "a_pointer_keeps_a_freed_block"
    result = hardened.run("sweep", case, ALLOD_HARDENED="all")
    assert result.returncode == 1, describe(result)
    assert "used again: a global" in result.stderr
