"""The documents say what is true: generated parts are up to date, links lead somewhere, and the
examples of the guide do what they show.

In the guide, the comment `<!-- test -->` before a console block has its commands run and their
output compared, and `<!-- test: file NAME -->` before any block writes it to a file for them. Words
must be the same; numbers and addresses may differ, `...` stands for anything, and a line of `...`
for any lines."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from allod.build import PRESETS, ensure_built
from allod.packages import PackagesUnavailable, ensure_packages

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
GUIDE = DOCS / "guide.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PACKAGES = ("binutils", "cmake", "gcc", "pkg-config")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(
    r"^<!-- test(?:: file (?P<file>\S+))? -->\n```\w*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# What may differ between two runs, and how it may look.
VARYING = [
    (re.compile(looks), allowed)
    for looks, allowed in (
        (r"\.\.\.", r".*"),
        (r"\s+", r"\s+"),
        (r"0x[0-9a-f]+", r"0x[0-9a-f]+"),
        (r"\d+(\.\d+)? ([KMGT]i)?B\b", r"\d+(\.\d+)? ([KMGT]i)?B"),
        (r"\d+(\.\d+)*", r"\d+(\.\d+)*"),
    )
]
# What must not: a word with the numbers in it, or one character.
WORD = re.compile(r"[A-Za-z_]\w*|.")
END_OF_OUTPUT = "== end of output =="
# What an interactive shell says of a program that was ended by a signal, and what a script says.
SIGNALLED = re.compile(r"^.*: line \d+: +\d+ (Aborted|Killed)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of an example, and what it should print."""

    command: str
    output: list[str]


def _generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples() -> Iterator[tuple[str | None, str, int]]:
    """The marked blocks of the guide: file or None, text, line."""
    text = GUIDE.read_text()
    for match in EXAMPLE.finditer(text):
        yield match["file"], match["body"], text.count("\n", 0, match.start()) + 1


def steps_of(body: str) -> list[Step]:
    """The commands of a console block."""
    steps: list[Step] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], []))
        else:
            steps[-1].output.append(line)
    return steps


def pattern_of(lines: list[str]) -> re.Pattern[str]:
    """What output like these lines looks like, whatever its numbers are."""
    return re.compile("".join(map(_pattern_of_line, lines)))


def _pattern_of_line(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    pieces = []
    rest = line.strip()
    while rest:
        for varying, pattern in VARYING:
            if found := varying.match(rest):
                pieces.append(pattern)
                rest = rest[found.end() :]
                break
        else:
            word = WORD.match(rest)
            assert word is not None
            pieces.append(re.escape(word[0]))
            rest = rest[word.end() :]
    return rf"\s*{''.join(pieces)}\s*?\n"


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
    """Runs commands in one shell and returns what each of them prints."""
    script = [
        f"{step.command}\nstatus=$?\necho '{END_OF_OUTPUT}'\n(exit $status)"
        for step in steps
    ]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ALLOD_", "LD_"))
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env={**environment, "HOME": str(folder / "home"), "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outputs = SIGNALLED.sub(r"\1", done.stdout).split(f"{END_OF_OUTPUT}\n")
    assert len(outputs) == len(steps) + 1, done.stdout
    return outputs[:-1]


CONSOLES = [(body, line) for file, body, line in examples() if file is None]


@pytest.mark.parametrize(
    "body", [body for body, _ in CONSOLES], ids=[f"line-{line}" for _, line in CONSOLES]
)
def test_an_example_of_the_guide_does_what_it_shows(desk: Path, body: str) -> None:
    steps = steps_of(body)
    for step, output in zip(steps, _run(desk, steps), strict=True):
        wanted = "\n".join(step.output)
        assert pattern_of(step.output).fullmatch(output), (
            f"$ {step.command}\nprinted\n{output}\nbut the guide says\n{wanted}"
        )


def test_the_comparison_sees_other_words_and_forgives_other_numbers() -> None:
    pattern = pattern_of(
        ["block 0x7f00 of size class 8", "...", "12.5 KiB in 3 blocks"]
    )
    assert pattern.fullmatch("block 0x1a of size class 16\nmore\n1 B in 40 blocks\n")
    assert not pattern.fullmatch("block 0x1a of size class 16\n1 B in 40 boxes\n")
    assert not pattern.fullmatch("piece 0x1a of size class 16\n1 B in 40 blocks\n")
    assert not pattern_of([]).fullmatch("something\n")


def test_the_table_of_options_is_that_of_the_library() -> None:
    generate = _generate()
    ensure_built(PRESETS["release"])
    text = generate.REFERENCE.read_text()
    assert text == generate.with_table(
        text, generate.options_table(generate.LIBRARY)
    ), "docs/reference.md is out of date: run python3 docs/generate.py"


def test_every_function_of_the_header_is_in_the_reference() -> None:
    header = (ROOT / "include" / "allod.h").read_text()
    reference = (DOCS / "reference.md").read_text()
    functions = set(re.findall(r"\b(allod_\w+)\(", header))
    assert functions
    assert sorted(name for name in functions if f"`{name}" not in reference) == []


def anchors_of(document: Path) -> set[str]:
    """The names that headings can be linked by."""
    text = FENCE.sub("", document.read_text())
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(text))
    return {title.strip().replace(" ", "-") for title in plain}


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
