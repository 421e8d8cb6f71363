"""Reports come out, and processes end, wherever the misuse happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from surface.black_box import (
    CASE_SECONDS,
    Runner,
    cases_in,
    environment,
    listed_cases,
)

from death.reports import FREE, GONE, MALLOC, Scene, run

FOLDER = Path(__file__).parent
CASES = cases_in(FOLDER)
HUGE = 10 << 20


def report(
    scene: Scene, *, freed_by: str = "", called_by: str = "", root: str = "main"
) -> str:
    """A second free of a huge block; each thread is the main one unless named.

    The stack of the second free begins in main, or in the function that is named.
    """
    headline = scene.headline("double free of", scene.facts["block"])
    this_call = scene.event(
        "this call", FREE, "misusing_function", thread=called_by, root=root
    )
    if "hardened" in scene.library.name:
        # It is still in quarantine, unless its thread has ended.
        place = scene.place(HUGE + (64 << 10)) + scene.requested("free", HUGE)
        return f"{headline}(?:{place}|{GONE}){this_call}"
    text = headline + GONE
    if "debug" not in scene.library.name:
        return text
    return (
        text
        + scene.requested("free", HUGE)
        + scene.event("allocated", MALLOC, "allocating_function")
        + scene.event("freed", FREE, "freeing_function", thread=freed_by)
        + this_call
    )


@pytest.mark.parametrize("program", sorted({case.program for case in CASES}))
def test_no_case_is_forgotten(program: str, build_dir: Path) -> None:
    """Every case of a program is run by a test of this folder."""
    tests = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py"))
    listed = listed_cases(build_dir / "tests" / "death" / program)
    assert listed
    assert {case for case in listed if f'"{case}"' not in tests} == set()


def test_thread_with_the_smallest_stack(preloaded: Runner) -> None:
    """A report needs little stack."""
    case = "thread_with_the_smallest_stack"
    outcome = run(preloaded, "places", case)
    text = report(outcome.scene, freed_by="thread", called_by="thread")
    outcome.expect(text, death=True)


@pytest.mark.parametrize(
    "case", ["standard_error_is_closed", "standard_error_cannot_be_written"]
)
def test_nowhere_to_write(case: str, preloaded: Runner) -> None:
    """A report that nobody can read is dropped, and the process is aborted all the same."""
    run(preloaded, "places", case).expect("", death=True)


@pytest.mark.parametrize(
    "case", ["standard_error_is_closed", "standard_error_cannot_be_written"]
)
def test_nowhere_to_write_and_no_abort(case: str, preloaded: Runner) -> None:
    """The heap stays usable when the report is lost."""
    options = {"ABORT_ON_ERROR": "0"}
    outcome = run(preloaded, "places", case, options=options)
    outcome.expect("", death=False)


def test_child_of_a_fork(preloaded: Runner) -> None:
    """The child reports and is aborted, and its parent is not."""
    outcome = run(preloaded, "places", "child_of_a_fork")
    assert outcome.status == 0, outcome.description
    assert os.WTERMSIG(outcome.scene.facts["child_status"]) == signal.SIGABRT
    assert not outcome.survived
    text = report(outcome.scene, called_by="thread")
    assert re.fullmatch(text, outcome.errors), outcome.description


def test_child_of_a_fork_goes_on(preloaded: Runner) -> None:
    """The child's heap stays usable."""
    case = "child_of_a_fork"
    options = {"ABORT_ON_ERROR": "0"}
    outcome = run(preloaded, "places", case, options=options)
    assert outcome.scene.facts["child_status"] == 0, outcome.description
    outcome.expect(report(outcome.scene, called_by="thread"), death=False)


@pytest.mark.parametrize(
    ("case", "root"), [("static_destructor", "exit"), ("handler_of_a_signal", "main")]
)
@pytest.mark.parametrize("abort", ["0", "1"])
def test_unusual_moment(case: str, root: str, abort: str, preloaded: Runner) -> None:
    """After main, and in a signal handler."""
    options = {"ABORT_ON_ERROR": abort}
    outcome = run(preloaded, "places", case, options=options)
    outcome.expect(report(outcome.scene, root=root), death=abort == "1")


def test_handler_of_abort_may_allocate(preloaded: Runner) -> None:
    """No lock is held when the process is told to abort, and the heap is in order."""
    case = "handler_of_abort_that_allocates"
    outcome = run(preloaded, "places", case)
    assert outcome.status == 3, outcome.description
    assert outcome.survived
    assert re.fullmatch(report(outcome.scene), outcome.errors), outcome.description


def test_pipe_that_nobody_reads(library: Path, programs: Path, tmp_path: Path) -> None:
    """A report fits into a pipe, so that its reader may come later."""
    program = programs / "places"
    with subprocess.Popen(
        [program, "standard_error_is_a_pipe"],
        env=environment(library),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            status = process.wait(CASE_SECONDS)
        finally:
            process.kill()
        output, errors = process.communicate()
    assert status == -signal.SIGABRT
    facts = dict(line.split() for line in output.splitlines())
    scene = Scene(library, program, {name: int(facts[name], 16) for name in facts})
    assert re.fullmatch(report(scene), errors), errors


@pytest.mark.parametrize(
    "options", [{}, {"ABORT_ON_ERROR": "0"}, {"SHOW_ERRORS": "0"}], ids=str
)
def test_failed_internal_check(
    options: dict[str, str], library: Path, preloaded: Runner
) -> None:
    """When its own data are damaged the library cannot go on, whatever the options say."""
    case = "a_magazine_is_overwritten"
    if "hardened" in library.name:
        # Blocks come to a magazine at once, as elsewhere.
        options = options | {"HARDENED": "-quarantine"}
    outcome = run(preloaded, "internal", case, options=options)
    assert "changed" in outcome.scene.facts, outcome.description
    assert "unseen" not in outcome.scene.facts, outcome.description
    outcome.expect(
        "allod: error: internal check failed: a magazine holds what is no block\n"
        "allod:   either the program has written outside its blocks, or Allod has a defect\n",
        death=True,
    )
