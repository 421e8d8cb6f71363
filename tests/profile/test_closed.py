"""What a library has allocated is its own, also when it was closed before anybody asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from allod.profile import flame, model, pprof, symbols
from commands import allod
from surface.black_box import Runner, describe, environment, run_program

NAMES = ("first", "second")


@pytest.fixture
def plugins(build_dir: Path, tmp_path: Path) -> list[Path]:
    """Two libraries that come to the same place, one after the other."""
    folder = build_dir / "tests" / "profile"
    return [Path(shutil.copy(folder / f"closed_{name}.so", tmp_path)) for name in NAMES]


def written(
    library: Path, build_dir: Path, folder: Path, *plugins: Path
) -> model.Profile:
    """What the library has written of a program that opens and closes these."""
    file = folder / "profile"
    variables = environment(library) | {
        "ALLOD_PROFILE": "2",
        "ALLOD_PROFILE_FILE": str(file),
    }
    program = build_dir / "tests" / "profile" / "closes"
    result = run_program([program, *plugins], variables, folder)
    assert result.returncode == 0, describe(result)
    return model.read_text(file)


def blocks_of(profile: model.Profile, function: str) -> int:
    """How many were allocated in a function."""
    return sum(
        stack.total.blocks
        for stack in profile.stacks
        if any(frame.function == function for frame in stack.names())
    )


def test_each_library_has_what_it_allocated(
    library: Path, build_dir: Path, plugins: list[Path], tmp_path: Path
) -> None:
    first, second = plugins
    profile = written(library, build_dir, tmp_path, second, first, first, first, first)
    symbols.add_names(profile)
    assert [blocks_of(profile, name) for name in NAMES] == [40, 10]
    # One that comes and goes has the same stacks, from the second time on.
    stacks = [
        stack
        for stack in profile.stacks
        if any(frame.function == "first" for frame in stack.names())
    ]
    assert len(stacks) == 2
    modules = {
        frame.module
        for stack in stacks
        for frame in stack.names()
        if frame.function == "first"
    }
    assert modules == {f"{first} (closed)"}


def test_the_files_of_a_profile_name_it(
    library: Path, build_dir: Path, plugins: list[Path], tmp_path: Path
) -> None:
    profile = written(library, build_dir, tmp_path, *plugins)
    symbols.add_names(profile)
    graph = flame.folded(profile)
    assert all(f"allocate;{name} " in graph for name in NAMES), graph
    file = tmp_path / "profile.pb.gz"
    pprof.write(profile, file)
    read = pprof.read(file)
    assert [blocks_of(read, name) for name in NAMES] == [10, 10]
    paths = {each.path for each in read.mappings}
    assert {f"{each} (closed)" for each in plugins} <= paths


def test_another_file_of_the_same_name_does_not_name_it(
    library: Path, build_dir: Path, plugins: list[Path], tmp_path: Path
) -> None:
    """As when a program has a library built anew."""
    first, second = plugins
    profile = written(library, build_dir, tmp_path, first)
    kept = tmp_path / "kept"
    first.rename(kept)
    shutil.copy(second, first)
    symbols.add_names(profile)
    names = {frame.function for stack in profile.stacks for frame in stack.names()}
    assert not names & set(NAMES)
    assert any(
        name.startswith("closed_first.so+0x") and name.endswith(" (closed)")
        for name in names
    ), names


def test_a_report_of_leaks_names_it(plugins: list[Path], preloaded: Runner) -> None:
    result = preloaded.run("closes", *plugins, ALLOD_LEAKS=1)
    assert "allod: error: 20 blocks leak" in result.stderr, describe(result)
    for plugin in plugins:
        lines = [line for line in result.stderr.splitlines() if f"({plugin}+" in line]
        assert lines and all(line.endswith(", closed)") for line in lines), describe(
            result
        )


def test_the_command_for_leaks_names_functions(
    build_dir: Path, plugins: list[Path], tmp_path: Path
) -> None:
    program = build_dir / "tests" / "profile" / "closes"
    result = allod("leaks", "--", program, *plugins, directory=tmp_path)
    for name in NAMES:
        assert f"#0 {name} " in result.stderr, result.stderr
