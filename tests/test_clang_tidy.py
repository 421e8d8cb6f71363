"""clang-tidy finds nothing in the sources, and finds what is planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checks import tidy
from workshop.build import PRESETS, ensure_live_configured
from workshop.packages import PackagesUnavailable

DebianPackages = Callable[..., None]

pytestmark = pytest.mark.slow
# The rooms that are compiled for other systems alone.
ELSEWHERE = {"portable", "windows", "bsd", "darwin", "freebsd"}


@pytest.mark.parametrize("folder", tidy.FOLDERS, ids=lambda folder: str(folder.name))
def test_nothing_is_found(
    folder: Path, clang_build: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("clang-tidy-19")
    if folder.name == "live":
        try:
            ensure_live_configured(PRESETS["clang"])
        except PackagesUnavailable as reason:
            pytest.skip(str(reason))
    units = list(tidy.units(clang_build, folder))
    seen = sorted(source for unit in units for source in unit.sources)
    here = [file for file in folder.rglob("*.cpp") if file.parent.name not in ELSEWHERE]
    assert seen and seen == sorted(here)
    if found := [text for unit in units if (text := unit.complaint())]:
        pytest.fail("\n".join(found), pytrace=False)


SOURCE = """#include <stddef.h>
int half(int number) {
#ifdef PLANTED
  return number == number ? 1 : 0;
#endif
  return number / 2;
}
"""
COMPANION = """#include <stddef.h>

void nothing() {}
"""


def build_of(folder: Path, *options: str) -> Path:
    """A build folder in which a source there is compiled once with each option."""
    source = folder / "planted.cpp"
    source.write_text(SOURCE)
    entries = [
        {
            "file": str(source),
            "directory": str(folder),
            "command": f"clang++-19 {option} -o {number}.o -c {source}",
        }
        for number, option in enumerate(options)
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder


@pytest.mark.parametrize(("first", "is_found"), [("-DPLANTED", True), ("-O2", False)])
def test_what_is_planted_is_found_where_the_first_product_has_it(
    tmp_path: Path, debian_packages: DebianPackages, first: str, is_found: bool
) -> None:
    debian_packages("clang-19", "clang-tidy-19")
    [unit] = tidy.units(build_of(tmp_path, first, "-O1", "-DPLANTED"), tmp_path)
    assert ("misc-redundant-expression" in (unit.complaint() or "")) == is_found


def test_what_is_compiled_as_one_file_with_others_is_found(
    tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("clang-19", "clang-tidy-19")
    build = build_of(tmp_path, "-DPLANTED")
    source, companion = build / "planted.cpp", build / "companion.cpp"
    companion.write_text(COMPANION)
    together = tmp_path / "Unity" / "together.cxx"
    together.parent.mkdir()
    together.write_text(f'#include "{companion}"\n#include "{source}"\n')
    database = build / "compile_commands.json"
    database.write_text(database.read_text().replace(str(source), str(together)))
    [unit] = tidy.units(build, tmp_path)
    assert unit.sources == (companion, source)
    complaint = unit.complaint() or ""
    assert f"{source}:4:" in complaint
    assert "misc-redundant-expression" in complaint
    assert "duplicate-include" not in complaint
    source.write_text("#include <stddef.h>\n" + SOURCE)
    assert f"{source}:2:" in (complaint := unit.complaint() or ""), complaint
    assert "duplicate-include" in complaint


def test_what_is_not_built_is_not_looked_at(tmp_path: Path) -> None:
    build = build_of(tmp_path, "-O2")
    (build / "other.cpp").write_text(COMPANION)
    [unit] = tidy.units(build, tmp_path)
    assert unit.sources == (build / "planted.cpp",)
