"""The documents say what is true: generated parts are up to date, links lead somewhere, and the
examples of the guide do what they show.

In the guides, the comment `<!-- test -->` before a console block has its commands run and their
output compared, and `<!-- test: file NAME -->` before any block writes it to a file for them; see
transcripts.py for the comparison."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from transcripts import Step, assert_prints, pattern_of, run_steps, steps_of
from workshop.build import PRESETS, ensure_built, ensure_live_built
from workshop.packages import PackagesUnavailable, ensure_packages

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
GUIDE = DOCS / "guide.md"
LIVE = DOCS / "live.md"
WITH_EXAMPLES = (GUIDE, DOCS / "tailored.md", DOCS / "profiling.md", LIVE)
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "examples" / "README.md"]
)
PACKAGES = ("binutils", "cmake", "g++", "gcc", "llvm", "pkg-config")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(
    r"^<!-- test(?:: file (?P<file>\S+))? -->\n```\w*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def _generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples() -> Iterator[tuple[str | None, str, str]]:
    """The marked blocks of the guides: file or None, text, place."""
    for document in WITH_EXAMPLES:
        text = document.read_text()
        for match in EXAMPLE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield match["file"], match["body"], f"{document.name}-{line}"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the guide's commands work, with the files of its examples."""
    try:
        ensure_packages(PACKAGES)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    ensure_built(PRESETS["release"])
    folder = tmp_path_factory.mktemp("desk")
    for name in ("allod", "build", "include"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "home").mkdir()
    for file, body, _ in examples():
        if file is not None:
            (folder / file).write_text(body)
    _run(folder, steps_of(_first_installation()))
    return folder


def _first_installation() -> str:
    return next(
        body for _, body, _ in examples() if body.startswith("$ cmake --install")
    )


def _run(folder: Path, steps: list[Step]) -> list[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ALLOD_", "LD_"))
    }
    return run_steps(
        folder, steps, {**environment, "HOME": str(folder / "home"), "LC_ALL": "C"}
    )


def _need_the_live_page() -> None:
    try:
        ensure_packages(["curl"])
        ensure_live_built()
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


CONSOLES = [(body, place) for file, body, place in examples() if file is None]


@pytest.mark.parametrize(
    ("body", "place"), CONSOLES, ids=[place for _, place in CONSOLES]
)
def test_an_example_of_the_guide_does_what_it_shows(
    desk: Path, body: str, place: str
) -> None:
    if place.startswith(LIVE.name):
        _need_the_live_page()
    steps = steps_of(body)
    for step, output in zip(steps, _run(desk, steps), strict=True):
        assert_prints(step, output)


def test_the_comparison_sees_other_words_and_forgives_other_numbers() -> None:
    pattern = pattern_of(
        ["block 0x7f00 of size class 8", "...", "12.5 KiB in 3 blocks"]
    )
    assert pattern.fullmatch("block 0x1a of size class 16\nmore\n1 B in 40 blocks\n")
    assert not pattern.fullmatch("block 0x1a of size class 16\n1 B in 40 boxes\n")
    assert not pattern.fullmatch("piece 0x1a of size class 16\n1 B in 40 blocks\n")
    assert not pattern_of([]).fullmatch("something\n")


GENERATED = ("reference.md", "allod.1", "liballod.7")


@pytest.mark.parametrize("name", GENERATED)
def test_what_is_generated_is_up_to_date(name: str) -> None:
    generate = _generate()
    ensure_built(PRESETS["release"])
    parts = {
        page.name: (page, of) for page, of in generate.parts(generate.LIBRARY).items()
    }
    assert parts.keys() == set(GENERATED)
    page, wanted = parts[name]
    assert page.read_text() == generate.with_parts(page, wanted), (
        f"{name} is out of date: run .allod/venv/bin/python docs/generate.py"
    )


FORMATTERS = {
    "man": ("--warnings", "-E", "UTF-8", "-Tutf8", "--ditroff", "--local-file"),
    "mandoc": ("-Tlint",),
}


@pytest.mark.parametrize("name", ["allod.1", "liballod.7"])
@pytest.mark.parametrize("formatter", FORMATTERS)
def test_formatters_of_manual_pages_do_not_complain(formatter: str, name: str) -> None:
    if shutil.which(formatter) is None:
        pytest.skip(f"{formatter} is not installed")
    command = [formatter, *FORMATTERS[formatter], str(DOCS / "man" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stderr + (done.stdout if formatter == "mandoc" else "")
    # Pages have no date: the same sources give the same page.
    complaints = [line for line in output.splitlines() if "missing date" not in line]
    assert complaints == []


def test_every_function_of_the_header_is_in_the_reference() -> None:
    header = (ROOT / "include" / "allod.h").read_text()
    reference = (DOCS / "reference.md").read_text()
    functions = set(re.findall(r"\b(allod_\w+)\(", header))
    assert functions
    assert sorted(name for name in functions if f"`{name}" not in reference) == []


def anchors_of(document: Path) -> list[str]:
    """The names that headings can be linked by."""
    text = FENCE.sub("", document.read_text())
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(text))
    return [title.strip().replace(" ", "-") for title in plain]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_no_heading_is_there_twice(document: Path) -> None:
    anchors = anchors_of(document)
    assert sorted({name for name in anchors if anchors.count(name) > 1}) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []
