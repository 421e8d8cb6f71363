"""What holds for every workload program and every case of one."""

import subprocess
from pathlib import Path

import pytest

from bench.compare.cases import GROUPS, Case, classics, patterns
from bench.tiny import TINY

CASES = [*classics.CASES, *patterns.CASES]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cfrac", "--digits", "19"], "--digits must be a whole number from 6 to 18"),
        (["larson", "--sized", "2"], "--sized must be a whole number from 0 to 1"),
        (["larson", "--max", "7"], "--max must be a whole number from 8 to"),
        (["logic", "--inputs", "25"], "--inputs must be a whole number from 4 to 24"),
        (["mixed_order", "--blocks", "11"], "--blocks must be a whole number from 12"),
        (["nbody", "--bodies", "1"], "--bodies must be a whole number from 2 to"),
        (["scratch", "--handed", "yes"], "--handed must be a whole number from 0 to 1"),
        (["simple", "--threads", "0"], "--threads must be a whole number from 1 to"),
        (["ttest", "--lives"], "option '--lives' requires an argument"),
        (["xmalloc", "--speed", "1"], "unrecognized option '--speed'"),
        (["xmalloc", "fast"], "unexpected argument 'fast'"),
        (["pareto", "--max", "7"], "--max must be a whole number from 8 to"),
        (["generations", "--threads", "0"], "--threads must be a whole number from 1"),
        (["rptest", "--falloff", "3"], "--falloff must be a whole number from 0 to 2"),
        (["large", "--min", "9", "--max", "8"], "--min is above --max"),
        (["churn", "--blocks", "5", "--left", "6"], "--left is above --blocks"),
        (["phases", "--phases", "1"], "--phases must be a whole number from 2 to 10"),
        (["idle", "--idle", "soon"], "--idle must be a whole number from 1 to"),
        (["holes", "--least", "99", "--most", "98"], "--least is above --most"),
        (["fragmentation", "--epochs", "-1"], "--epochs must be a whole number"),
        (["survivors", "--every", "1"], "--every must be a whole number from 2 to"),
        (["locality", "--elements"], "option '--elements' requires an argument"),
        (["latency", "--busy", "65"], "--busy must be a whole number from 0 to 64"),
        (["many_threads", "--threads", "1025"], "from 2 to 1024"),
        (["many_threads", "--ops", "9"], "--ops is below --threads"),
        (["realloc", "fast"], "unexpected argument 'fast'"),
        (["calloc", "--seed", "1"], "unrecognized option '--seed'"),
        (["aligned", "--ops", "1"], "--ops must be a whole number from 64 to"),
        (["aligned", "--min", "65", "--max", "66"], "no alignment between --min and"),
        (["sweep", "--markers", "1", "--threads", "2"], "--markers needs one thread"),
        (["immediate", "--ops", "many"], "--ops must be a whole number from 1 to"),
        (["immediate", "--ops", "-1"], "--ops must be a whole number from 1 to"),
        (
            ["immediate", "--max", "65536"],
            "--max must be a whole number from 1 to 65535",
        ),
        (["immediate", "--speed", "1"], "unrecognized option '--speed'"),
        (["immediate", "fast"], "unexpected argument 'fast'"),
    ],
)
def test_bad_parameters_are_refused(
    programs: Path, command: list[str], message: str
) -> None:
    program, *arguments = command
    done = subprocess.run(
        [programs / program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


# What the C++ library does is the work of those that are left out.
@pytest.mark.parametrize(
    "program", sorted(set(TINY) - {"heaps", "locality", "tailored"})
)
def test_a_program_needs_the_c_library_only(programs: Path, program: str) -> None:
    listing = subprocess.run(
        ["readelf", "--dynamic", str(programs / program)],
        capture_output=True,
        text=True,
        check=True,
    )
    needed = [line for line in listing.stdout.splitlines() if "(NEEDED)" in line]
    assert len(needed) == 1
    assert "libc.so.6" in needed[0]


def test_every_program_has_a_case_and_tiny_parameters() -> None:
    assert {case.program for case in CASES} == set(TINY)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("quick", [False, True])
def test_the_parameters_of_a_case_are_known(
    programs: Path, case: Case, quick: bool
) -> None:
    assert case.group in GROUPS
    # --help is looked at last, after every parameter was checked.
    command = [str(programs / case.program), *case.arguments(quick), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", classics.CASES, ids=lambda case: case.name)
def test_a_classic_names_its_source(case: Case) -> None:
    assert case.source
