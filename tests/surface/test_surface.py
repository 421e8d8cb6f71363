"""Every entry point of the allocator, as programs see it through the preloaded library."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from surface.black_box import (
    Case,
    Runner,
    cases_in,
    describe,
    environment,
    listed_cases,
    run_program,
)

FOLDER = Path(__file__).parent
CASES = cases_in(FOLDER)
REPLACED = [case for case in CASES if case.program.startswith("replaced_")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_surface(case: Case, preloaded: Runner) -> None:
    """The case holds on the library."""
    preloaded.holds(*case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_surface_as_clang_compiles_it(
    case: Case, clang_build: Path, programs: Path, tmp_path: Path
) -> None:
    """The case holds on the library that another compiler has optimised."""
    Runner(clang_build / "liballod.so", programs, tmp_path).holds(*case)


@pytest.mark.parametrize("case", REPLACED, ids=str)
def test_replaced_operators_with_every_measure(case: Case, hardened: Runner) -> None:
    """Nothing is freed by a function of another family than allocated it."""
    hardened.holds(*case, ALLOD_HARDENED="all")


@pytest.mark.parametrize("case", REPLACED, ids=str)
def test_replaced_operators_behind_the_recorder(
    case: Case, build_dir: Path, tmp_path: Path
) -> None:
    """The recorder has all forms of operators, too."""
    program = build_dir / "tests" / "surface" / case.program
    trace = tmp_path / "trace"
    variables = environment(build_dir / "liballod-record.so")
    result = run_program(
        [program, case.name], variables | {"LIBALLOD_RECORD": str(trace)}, tmp_path
    )
    assert result.returncode == 0, describe(result)
    assert trace.stat().st_size > 0


@pytest.mark.parametrize("program", sorted({case.program for case in CASES}))
def test_no_case_is_forgotten(program: str, build_dir: Path) -> None:
    """What the program lists is what its source defines, and so what is tested above."""
    defined = {case.name for case in CASES if case.program == program}
    assert listed_cases(build_dir / "tests" / "surface" / program) == defined


def test_malloc_info_is_well_formed(preloaded: Runner) -> None:
    """The output of malloc_info is XML: a malloc element with a version, and something in it."""
    root = ElementTree.fromstring(preloaded.holds("queries", "info_is_xml"))
    assert root.tag == "malloc"
    assert root.attrib["version"] == "1"
    assert len(root) > 0
    in_use = [int(size.attrib["size"]) for size in root.iter() if "size" in size.attrib]
    assert max(in_use) >= 3 * 1024 * 1024
