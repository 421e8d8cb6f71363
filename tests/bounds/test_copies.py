"""liballod-copies.so stops copies that leave their blocks, and no others."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from death.reports import HEX, Outcome, Scene
from surface.black_box import Runner, describe, environment, run_program
from workshop.paths import build_dir as build_dir_of

# In the order of copies.c; by what name a report calls each.
WITH_SIZES = ("memcpy", "memmove", "mempcpy", "memset")
WITH_TEXTS = ("strcpy", "stpcpy", "strncpy", "strcat", "strncat")
FUNCTIONS = (*WITH_SIZES, *WITH_TEXTS)
KINDS = [*enumerate(FUNCTIONS), *enumerate(FUNCTIONS, len(FUNCTIONS))]
READING = [(number, name) for number, name in KINDS if name != "memset"]
FRAMES = rf"(?:allod:     #\d+ {HEX}[^\n]*\n)+"
EVENTS = rf"(?:allod:   (?:allocated|freed|this call) by thread \d+:\n{FRAMES})+"
ROOMY, TIGHT = 1000, 100
MIB = 1 << 20


@pytest.fixture(scope="session")
def copies(build_dir: Path) -> Path:
    """The library that checks copies."""
    return build_dir / "liballod-copies.so"


def beside(runner: Runner) -> dict[str, str]:
    """What preloads both libraries."""
    copies = runner.library.with_name("liballod-copies.so")
    return {"LD_PRELOAD": f"{runner.library}:{copies}"}


def run(runner: Runner, case: str, variables: Mapping[str, str | int]) -> Outcome:
    """Runs a case with both libraries."""
    result = runner.run("copies", case, **beside(runner), **variables)
    facts = {
        name: int(value, 16)
        for name, value in map(str.split, result.stdout.splitlines())
    }
    scene = Scene(runner.library, runner.programs / "copies", facts)
    return Outcome(scene, result.returncode, result.stderr, describe(result))


def report(scene: Scene, size: int, copied: str, *, kind: str, state: str) -> str:
    """The report about a block of a size that was asked for."""
    classes = {TIGHT: 104, 24: 32}
    name = scene.library.name
    known = "" if name == "liballod.so" else scene.requested(state, size)
    block = scene.facts["block"]
    rounded = rf"\d+(?: bytes)?, owned by domain \d+|{10 * MIB + 65536} bytes"
    assert size in classes or size == 10 * MIB
    return (
        scene.headline(kind, block)
        + rf"allod:   block {block:#x} of (?:size class )?(?:{rounded})\n"
        + rf"allod:   {copied} bytes there\n"
        + known
        + EVENTS
    )


PAST = "copy past the end of the block at"


@pytest.mark.parametrize(
    "case", ["copies_that_fit_are_done", "copies_elsewhere_are_done"]
)
def test_copies_do_what_those_of_libc_do(case: str, preloaded: Runner) -> None:
    result = preloaded.run("copies", case, **beside(preloaded))
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_without_allod_copies_are_not_checked(copies: Path, tmp_path: Path) -> None:
    """The library alone changes nothing."""
    result = run_program(
        ["/bin/sh", "-c", "x=abc; echo $x$x | cat"],
        {"LD_PRELOAD": str(copies), "PATH": os.defpath},
        tmp_path,
    )
    assert (result.stdout, result.stderr) == ("abcabc\n", ""), describe(result)


@pytest.mark.parametrize(("number", "name"), KINDS)
def test_a_copy_past_the_end_of_its_destination_is_stopped(
    number: int, name: str, preloaded: Runner
) -> None:
    """The report names the function, and the process is aborted."""
    variables = {"TEST_KIND": number, "TEST_FROM": ROOMY, "TEST_TO": TIGHT}
    # The default library knows the end of the size class only.
    count = 500 if preloaded.library.name == "liballod.so" else TIGHT + 1
    variables["TEST_COUNT"] = count
    outcome = run(preloaded, "copy", variables)
    text = report(
        outcome.scene, TIGHT, f"{name} would write {count}", kind=PAST, state="in use"
    )
    outcome.expect(text, death=True)


@pytest.mark.parametrize(("number", "name"), READING)
def test_a_copy_past_the_end_of_its_source_is_stopped(
    number: int, name: str, hardened: Runner
) -> None:
    """A text without an end ends where its block does."""
    variables = {"TEST_KIND": number, "TEST_FROM": TIGHT, "TEST_TO": TIGHT + 200}
    variables["TEST_COUNT"] = TIGHT + 90
    outcome = run(hardened, "copy", variables)
    read = TIGHT + 1 if name in WITH_TEXTS else TIGHT + 90
    text = report(
        outcome.scene, TIGHT, f"{name} would read {read}", kind=PAST, state="in use"
    )
    outcome.expect(text, death=True)


@pytest.mark.parametrize(("number", "name"), KINDS)
def test_a_program_that_goes_on_has_copied_what_there_was_room_for(
    number: int, name: str, hardened: Runner
) -> None:
    """With ALLOD_ABORT_ON_ERROR=0 there is one report, and no block behind is written to."""
    variables = {"TEST_KIND": number, "TEST_FROM": ROOMY, "TEST_TO": TIGHT}
    goes_on = {"TEST_COUNT": 700, "ALLOD_ABORT_ON_ERROR": 0}
    outcome = run(hardened, "copy", variables | goes_on)
    text = report(
        outcome.scene, TIGHT, f"{name} would write 700", kind=PAST, state="in use"
    )
    outcome.expect(text, death=False)


@pytest.mark.parametrize("kind", range(4))
def test_nothing_is_appended_to_a_text_without_end(
    kind: int, preloaded: Runner
) -> None:
    """With ALLOD_ABORT_ON_ERROR=0 it is reported, and the blocks behind stay as they are."""
    # Without canaries, blocks of the hardened library are as close to each other.
    variables = {"TEST_KIND": f"{kind}", "ALLOD_ABORT_ON_ERROR": "0"}
    variables["ALLOD_HARDENED"] = "-canary"
    case = "append_to_a_text_without_end"
    outcome = run(preloaded, case, variables)
    assert outcome.status == 0, outcome.description
    assert outcome.errors.count("allod: error: copy past the end") == 1
    assert "would read 65 bytes there" in outcome.errors, outcome.description


@pytest.mark.parametrize(("number", "name"), KINDS[:2])
def test_a_huge_block_ends_too(number: int, name: str, preloaded: Runner) -> None:
    count = 10 * MIB + (65537 if preloaded.library.name == "liballod.so" else 1)
    variables = {"TEST_KIND": number, "TEST_FROM": 11 * MIB, "TEST_TO": 10 * MIB}
    variables["TEST_COUNT"] = count
    outcome = run(preloaded, "copy", variables)
    assert outcome.status == -signal.SIGABRT, outcome.description
    assert f"{name} would write {count} bytes there" in outcome.errors


@pytest.mark.parametrize(("number", "name"), KINDS[:7])
def test_a_copy_to_a_freed_block_is_stopped(
    number: int, name: str, hardened: Runner
) -> None:
    outcome = run(
        hardened,
        "copy_to_a_freed_block",
        {"TEST_KIND": number},
    )
    text = report(
        outcome.scene,
        24,
        f"{name} would write 24",
        kind="copy after free at",
        state="free",
    )
    outcome.expect(text, death=True)


@pytest.mark.parametrize(("number", "name"), KINDS[:4])
def test_a_copy_to_where_no_block_is_ends_there(
    number: int, name: str, preloaded: Runner
) -> None:
    """It would reach the blocks behind, whether that place was ever handed out or not."""
    case = "copy_to_where_no_block_is"
    outcome = run(preloaded, case, {"TEST_KIND": number})
    assert outcome.status == -signal.SIGABRT, outcome.description
    headline = outcome.scene.headline(PAST, outcome.scene.facts["address"])
    assert outcome.errors.startswith(headline), outcome.description
    assert f"allod:   {name} would write 100000 bytes there\n" in outcome.errors


def test_what_allod_itself_does_is_no_defect(preloaded: Runner) -> None:
    """A hardened heap writes behind its blocks, and clears free ones."""
    case = "a_hardened_heap_goes_its_way"
    result = preloaded.run("copies", case, **beside(preloaded))
    assert (result.returncode, result.stderr) == (0, ""), describe(result)


def test_it_may_be_called_before_it_is_loaded(preloaded: Runner) -> None:
    """Resolvers of other libraries run while the loader has not come to this one yet."""
    for bind_now in ({}, {"LD_BIND_NOW": "1"}):
        result = preloaded.run("loaded", **beside(preloaded), **bind_now)
        assert (result.returncode, result.stderr) == (0, ""), describe(result)


@pytest.mark.parametrize("kind", [0, 1])
def test_any_name_of_a_function_is_reported(kind: int, preloaded: Runner) -> None:
    """It may be missing, and is escaped for programs."""
    variables = {"ALLOD_ABORT_ON_ERROR": 0, "ALLOD_REPORT_FD": 2, "TEST_KIND": kind}
    result = preloaded.run_well("copies", "a_copy_is_reported_by_name", **variables)
    found = json.loads(result.stderr.splitlines()[0])
    names = ["?", 'operator""_kb\n\\\x01\ufffd\xe9']
    assert found["function"] == names[kind]
    assert f"allod:   {names[kind][:8]}" in result.stderr


def test_report_for_programs(hardened: Runner) -> None:
    """With ALLOD_REPORT_FD it is a line of JSON."""
    variables = {"TEST_KIND": 0, "TEST_FROM": ROOMY, "TEST_TO": TIGHT}
    variables |= {"TEST_COUNT": 500, "ALLOD_REPORT_FD": 2, "ALLOD_SHOW_ERRORS": 0}
    done = hardened.run("copies", "copy", **beside(hardened), **variables)
    assert done.returncode == -signal.SIGABRT
    found = json.loads(done.stderr)
    facts = dict(line.split() for line in done.stdout.splitlines())
    wanted = {
        "kind": "copy_past_the_end",
        "address": facts["block"],
        "block": facts["block"],
        "requested": TIGHT,
        "function": "memcpy",
        "access": "write",
        "bytes": 500,
    }
    assert {name: found[name] for name in wanted} == wanted


PROGRAMS = (
    [
        "python3",
        "-c",
        "import json, re, zlib; print(len(json.dumps([1.5, 'x'] * 999)))",
    ],
    ["perl", "-e", "$_ = 'a' x 1000; s/a/bb/g; print length, qq(\\n)"],
    ["sh", "-c", "for i in 1 2 3; do echo $i$i | sed s/1/one/; done | sort"],
    ["git", "-C", str(build_dir_of("release").parents[1]), "log", "-3", "--stat"],
)


@pytest.mark.parametrize("command", PROGRAMS, ids=lambda command: command[0])
def test_programs_see_no_difference(
    command: list[str], hardened: Runner, tmp_path: Path
) -> None:
    """The output is that without any of the libraries, and there is no report."""
    plain = {**os.environ, "LD_PRELOAD": ""}
    alone = run_program(list(command), plain, tmp_path)
    variables = environment(hardened.library) | beside(hardened)
    both = run_program(list(command), plain | variables, tmp_path)
    assert (both.returncode, both.stderr) == (alone.returncode, alone.stderr)
    assert re.sub(r"0x[0-9a-f]+", "", both.stdout) == alone.stdout
