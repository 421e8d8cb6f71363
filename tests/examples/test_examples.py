"""Every example does what its section in examples/README.md shows."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import DebianPackages
from transcripts import assert_prints, run_steps, steps_of
from workshop import paths
from workshop.build import ensure_live_built
from workshop.packages import PackagesUnavailable

EXAMPLES = paths.ROOT / "examples"
SECTION = re.compile(r"^## (?P<title>.+?)$(?P<text>.*?)(?=^## |\Z)", re.M | re.S)
SOURCE = re.compile(r"\]\((?P<name>\w+)\.cpp\)")
WITH_LIVE_PAGE = {"pool"}
CONSOLE = re.compile(r"^```console\n(?P<body>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Example:
    """A section: which source it is about, and what it shows."""

    name: str
    console: str

    def __str__(self) -> str:
        return self.name


def _examples() -> list[Example]:
    found = []
    for section in SECTION.finditer((EXAMPLES / "README.md").read_text()):
        source = SOURCE.search(section["text"])
        consoles = [match["body"] for match in CONSOLE.finditer(section["text"])]
        if source and consoles:
            found.append(Example(source["name"], "".join(consoles)))
    return found


def compile_with_live_page(name: str, build_dir: Path, folder: Path) -> None:
    """What the build does not do by itself, because the page needs Node.js."""
    try:
        ensure_live_built()
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    command: list[str | Path] = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror"]
    command += ["-I", paths.ROOT / "include", EXAMPLES / f"{name}.cpp"]
    command += ["-L", build_dir, f"-Wl,-rpath,{build_dir}", "-lallod-live", "-lallod"]
    subprocess.run([*command, "-o", folder / name], check=True)


@pytest.mark.parametrize("example", _examples(), ids=str)
def test_an_example_does_what_its_section_shows(
    example: Example,
    build_dir: Path,
    tmp_path: Path,
    debian_packages: DebianPackages,
) -> None:
    if example.name in WITH_LIVE_PAGE:
        debian_packages("curl")
        compile_with_live_page(example.name, build_dir, tmp_path)
    for program in (build_dir / "examples").iterdir():
        if program.is_file() and os.access(program, os.X_OK):
            (tmp_path / program.name).symlink_to(program)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ALLOD_", "LD_"))
    }
    steps = steps_of(example.console)
    outputs = run_steps(tmp_path, steps, environment)
    for step, output in zip(steps, outputs, strict=True):
        assert_prints(step, output)


def test_every_source_has_a_section() -> None:
    sources = {path.stem for path in EXAMPLES.glob("*.cpp")}
    assert sources == {example.name for example in _examples()}
