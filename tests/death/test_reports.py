"""Reports for people and for programs: how they are written, and what is in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from surface.black_box import (
    CASE_SECONDS,
    Runner,
    environment,
    run_program,
)

from death.reports import run


def test_a_report_for_programs_tells_the_changed_byte(debug: Runner) -> None:
    options = {"SHOW_ERRORS": "0", "REPORT_FD": "2"}
    given = {"SIZE": 100, "OFFSET": 40}
    case = "write_behind_a_block"
    outcome = run(debug, "overruns", case, given, options)
    report = json.loads(outcome.errors)
    assert report["kind"] == "overflow"
    assert (report["requested"], report["first_changed"]) == (100, 140)


@pytest.mark.parametrize("shown", ["0", "1"])
def test_a_report_for_programs_that_cannot_be_written(
    shown: str, programs: Path, liballod_debug: Path, tmp_path: Path
) -> None:
    """It is told as text, also where none is wanted."""
    variables = environment(liballod_debug) | {"TEST_SIZE": "100"}
    with open("/dev/full", "w") as full:
        descriptor = full.fileno()
        result = subprocess.run(
            [programs / "misuse", "double_free_at_once"],
            env=variables
            | {"ALLOD_REPORT_FD": str(descriptor), "ALLOD_SHOW_ERRORS": shown},
            cwd=tmp_path,
            pass_fds=[descriptor],
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == -signal.SIGABRT
    warning, headline, *_ = result.stderr.splitlines()
    assert warning == (
        f"allod: warning: cannot write a report to file descriptor {descriptor}:"
        " No space left on device; it follows here"
    )
    assert re.fullmatch(r"allod: error: double free of 0x[0-9a-f]+", headline)


def test_report_for_programs(debug: Runner) -> None:
    """One line of JSON has the block's history, too."""
    options = {"SHOW_ERRORS": "0", "REPORT_FD": "2"}
    given = {"SIZE": 100}
    case = "double_free_by_another_thread"
    outcome = run(debug, "misuse", case, given, options)
    report = json.loads(outcome.errors)
    facts = outcome.scene.facts
    assert report["kind"] == "double_free"
    assert (report["requested"], report["in_use"]) == (100, False)
    assert report["allocating_thread"] == report["freeing_thread"]
    assert report["allocating_thread"] == facts["main_thread"]
    assert report["thread"] == facts["thread"]
    stacks = [report[name] for name in ("allocated_at", "freed_at", "stack")]
    assert all(len(stack) > 2 for stack in stacks)
    assert len({tuple(stack) for stack in stacks}) == 3
    paths = [file["path"] for file in report["files"]]
    assert {Path(path).name for path in paths} >= {"misuse", debug.library.name}
    assert len(set(paths)) == len(paths)


def test_report_for_programs_names_all_files(
    liballod_debug: Path, tmp_path: Path
) -> None:
    """As many as three stacks can have."""
    source = Path(__file__).with_name("many_files.c")
    program = tmp_path / "program"
    library = tmp_path / "library.so"
    for made, flags in ((program, []), (library, ["-shared", "-fPIC"])):
        subprocess.run(["cc", "-O1", *flags, source, "-o", made], check=True)
    files = [tmp_path / f"{number}.so" for number in range(3 * 20)]
    for file in files:
        shutil.copy(library, file)
    options = {"ALLOD_SHOW_ERRORS": "0", "ALLOD_REPORT_FD": "2"}
    variables = environment(liballod_debug) | options
    result = run_program([program, *files], variables, tmp_path)
    report = json.loads(result.stderr)
    ranges = [(int(file["base"], 16), int(file["end"], 16)) for file in report["files"]]
    assert len(ranges) > 3 * 15
    for name in ("allocated_at", "freed_at", "stack"):
        for address in (int(frame, 16) - 1 for frame in report[name]):
            assert any(base <= address < end for base, end in ranges)


def test_reports_of_threads_do_not_mix(debug: Runner) -> None:
    """Neither those for programs, nor the lines of those for people."""
    options = {"REPORT_FD": "2", "ABORT_ON_ERROR": "0"}
    case = "threads_report_at_once"
    outcome = run(debug, "crowd", case, {}, options)
    assert outcome.survived, outcome.description
    lines = outcome.errors.splitlines()
    for line in lines:
        if line.startswith("{"):
            assert json.loads(line)["kind"] == "double_free"
        else:
            assert re.fullmatch(r"allod: (?:error: double free of 0x|  )[^:]*:?", line)
    assert sum(line.startswith("{") for line in lines) == 1200


@pytest.mark.parametrize(
    "case", ["what_a_pipe_does_not_take_is_lost_whole", "a_full_pipe_is_waited_for"]
)
def test_reports_are_whole(case: str, debug: Runner) -> None:
    """A descriptor that does not block may take nothing, or a little at a time."""
    options = {"ABORT_ON_ERROR": "0"}
    outcome = run(debug, "crowd", case, {}, options)
    outcome.expect("", death=False)


def test_no_report_goes_to_another_file_with_the_number(debug: Runner) -> None:
    options = {"REPORT_FD": "0", "ABORT_ON_ERROR": "0", "SHOW_ERRORS": "0"}
    case = "a_file_with_the_number_of_another"
    outcome = run(debug, "crowd", case, {}, options)
    outcome.expect("", death=False)


@pytest.mark.parametrize("kind", ["debug", "hardened"])
def test_a_report_waits_for_no_lock_of_the_loader(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """A library is being loaded, and its constructor waits for the thread that is reported."""
    runner: Runner = request.getfixturevalue(kind)
    given = {"CONSTRUCTOR": str(runner.programs / "constructor.so")}
    case = "double_free_while_a_library_is_loaded"
    outcome = run(runner, "misuse", case, given)
    assert outcome.status == -signal.SIGABRT, outcome.description
    assert re.match(r"allod: error: double free of 0x[0-9a-f]+\n", outcome.errors)
    # Its frames are named all the same.
    assert re.search(r"#0 0x[0-9a-f]+ free\+", outcome.errors), outcome.description


def test_a_handler_that_allocates_waits_for_no_lock(debug: Runner) -> None:
    """It may have interrupted its own thread, which has the lock of the records."""
    case = "a_handler_allocates"
    outcome = run(debug, "misuse", case)
    outcome.expect("", death=False)


def functions(stack: list[str], files: list[dict[str, str]]) -> list[str]:
    """Those that the addresses lie in, as somebody finds who has nothing but the report."""
    ranges = sorted(
        (int(file["base"], 16), int(file["end"], 16), file["path"]) for file in files
    )
    found = []
    for address in (int(frame, 16) - 1 for frame in stack):
        base, end, path = next(file for file in reversed(ranges) if file[0] <= address)
        assert address < end
        command = ["addr2line", "-f", "-e", path, hex(address - base)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(done.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize("measures", ["all", "all,history"])
def test_report_for_programs_of_the_hardened_library(
    measures: str, programs: Path, liballod_hardened: Path, tmp_path: Path
) -> None:
    """With ALLOD_REPORT_FD a report is one line of JSON, too."""
    read_end, write_end = os.pipe()
    environment = {
        "LD_PRELOAD": str(liballod_hardened),
        "ALLOD_REPORT_FD": str(write_end),
        "ALLOD_SHOW_ERRORS": "0",
        "ALLOD_HARDENED": measures,
        "TEST_SIZE": "30",
        "TEST_OFFSET": "0",
    }
    done = subprocess.run(
        [programs / "overruns", "write_behind_a_block"],
        env=environment,
        pass_fds=[write_end],
        capture_output=True,
        text=True,
        timeout=CASE_SECONDS,
        check=False,
    )
    os.close(write_end)
    with open(read_end, encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    facts = dict(line.split() for line in done.stdout.splitlines())
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == ""
    assert len(found) == 1
    thread = int(facts["main_thread"], 16)
    stack = found[0].pop("stack")
    assert len(stack) > 2
    files = found[0].pop("files")
    assert "misusing_function" in functions(stack, files)
    if measures == "all,history":
        allocated_at = functions(found[0].pop("allocated_at"), files)
        assert "allocating_function" in allocated_at
        assert found[0].pop("allocating_thread") == thread
    assert found[0] == {
        "allod": "error",
        "kind": "overflow",
        "address": facts["block"],
        "block": facts["block"],
        "block_bytes": 48,
        "domain": 1,
        "requested": 30,
        "in_use": True,
        "process": thread,
        "thread": thread,
    }
