"""clang-tidy finds nothing in the sources, and finds what is planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from allod.paths import ROOT
from checks import tidy

DebianPackages = Callable[..., None]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "source", tidy.sources(), ids=lambda source: str(source.relative_to(ROOT))
)
def test_nothing_is_found(
    source: Path, clang_build: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("clang-tidy-19")
    compilation = tidy.compilation(clang_build, source)
    if compilation is None and source.parent.name == "live":
        pytest.skip("the live server is not built here")
    assert compilation is not None
    if (found := compilation.complaint()) is not None:
        pytest.fail(found, pytrace=False)


SOURCE = """
int half(int number) {
#ifdef PLANTED
  return number == number ? 1 : 0;
#endif
  return number / 2;
}
"""


def build_of(folder: Path, *options: str) -> tuple[Path, Path]:
    """A build folder in which a source is compiled once with each option, and the source."""
    source = folder / "planted.cpp"
    source.write_text(SOURCE)
    (folder / ".clang-tidy").write_text((ROOT / ".clang-tidy").read_text())
    entries = [
        {
            "file": str(source),
            "directory": str(folder),
            "command": f"clang++-19 {option} -o {number}.o -c {source}",
        }
        for number, option in enumerate(options)
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder, source


@pytest.mark.parametrize(("first", "is_found"), [("-DPLANTED", True), ("-O2", False)])
def test_what_is_planted_is_found_where_the_first_product_has_it(
    tmp_path: Path, debian_packages: DebianPackages, first: str, is_found: bool
) -> None:
    debian_packages("clang-19", "clang-tidy-19")
    compilation = tidy.compilation(*build_of(tmp_path, first, "-O1", "-DPLANTED"))
    assert compilation is not None
    complaint = compilation.complaint() or ""
    assert ("misc-redundant-expression" in complaint) == is_found


def test_what_is_compiled_as_one_file_with_others_is_found(
    tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("clang-19", "clang-tidy-19")
    build, source = build_of(tmp_path, "-DPLANTED")
    all_in_one = tmp_path / "Unity" / "all.cxx"
    all_in_one.parent.mkdir()
    all_in_one.write_text(f'#include "{source}"\n')
    database = build / "compile_commands.json"
    database.write_text(database.read_text().replace(str(source), str(all_in_one)))
    compilation = tidy.compilation(build, source)
    assert compilation is not None
    complaint = compilation.complaint() or ""
    assert "misc-redundant-expression" in complaint
    assert "planted.cpp" in complaint
    assert tidy.compilation(build, source.with_name("other.cpp")) is None


def test_what_is_not_built_is_not_looked_at(tmp_path: Path) -> None:
    folder, source = build_of(tmp_path, "-O2")
    assert tidy.compilation(folder, source.with_name("other.cpp")) is None
