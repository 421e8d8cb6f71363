"""Python functions stand in call stacks with file and line, between the C functions around them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from allod.profile import model, pprof
from commands import allod, ended
from surface.black_box import describe, environment, run_program

# As many as a machine may have; pyenv names them so.
VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
# Each case allocates a block of its own size. Comments name the lines.
SCRIPT = """
import gc, sys, threading
MIB = 1 << 20
kept = []

class Store:
    def fill(self, n):
        kept.append(
            bytearray(n * MIB)  # fill
        )

def inner(n):
    Store().fill(n)  # inner

def through_c(n):
    sorted([1], key=lambda i: inner(n))  # through_c

def generate(n):
    yield 1
    Store().fill(n)  # generate
    yield 2

def consume(n):
    for i in generate(n):  # consume
        pass

def caught(n):
    try:
        raise KeyError(n)
    except KeyError:
        inner(n)  # caught

def deep(n, depth):
    if depth == 0:
        return inner(n)  # deepest
    return deep(n, depth - 1)  # deep

def größe(n):
    return [bytearray(n * MIB) for _ in range(1)]  # größe

def gone(n):
    names = {"kept": kept, "MIB": MIB}
    source = "def vanish(n):\\n\\n  kept.append(bytearray(n * MIB))\\n"
    exec(compile(source, "gone.py", "exec"), names)
    names["vanish"](n)  # gone

def replaced(n):
    # Much of each is where the last was, with texts of the same lengths.
    for i in range(20):
        names = {"size": n * MIB}
        source = "\\n" * (i // 5) + "def again():\\n  bytearray(size)\\n"
        name = chr(97 + i) + "gain"
        source = source.replace("again", name)
        exec(compile(source, f"file{i % 4}.py", "exec"), names)
        names[name]()

inner(8)  # main
through_c(9)
consume(10)
caught(11)
deep(12, 30)
kept.append(größe(13))
gone(14)
gc.collect()
thread = threading.Thread(target=inner, args=(15,))
thread.start()
thread.join()
replaced(16)
"""


def line_of(comment: str) -> int:
    lines = SCRIPT.splitlines()
    return 1 + next(i for i, line in enumerate(lines) if line.endswith(f"# {comment}"))


@pytest.fixture(scope="module", params=VERSIONS)
def interpreter(request: pytest.FixtureRequest) -> Path:
    """A Python of this version."""
    version = str(request.param)
    found = sorted(
        Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3")
    )
    for path in (*found, shutil.which(f"python{version}")):
        if path is None:
            continue
        told = ended(
            str(path), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"
        )
        if told.stdout.strip() == version:
            return Path(path)
    pytest.skip(f"there is no Python {version} here")


def run(
    library: Path, folder: Path, interpreter: Path, *words: str | Path
) -> model.Profile:
    """The library's own text, whose C functions have no names yet."""
    file = folder / "profile"
    variables = environment(library) | {
        "ALLOD_PROFILE": "65536",
        "ALLOD_PROFILE_FILE": str(file),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }
    result = run_program([interpreter, *words], variables, folder)
    assert result.returncode == 0, describe(result)
    return model.read_text(file)


@pytest.fixture(scope="module")
def profile(
    liballod: Path, interpreter: Path, tmp_path_factory: pytest.TempPathFactory
) -> model.Profile:
    folder = tmp_path_factory.mktemp("python")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    return run(liballod, folder, interpreter, "script.py")


Frame = tuple[str, int]


def stack_of(profile: model.Profile, mebibytes: int) -> list[Frame | None]:
    """That of the block of this size, innermost first; None stands for C functions."""
    size = mebibytes << 20
    stacks = [
        stack for stack in profile.stacks if size <= stack.total.requested < size + 4096
    ]
    assert len(stacks) == 1, mebibytes
    frames: list[Frame | None] = []
    for address in stacks[0].addresses:
        frame = profile.functions.get(address)
        if frame is None and frames and frames[-1] is None:
            continue
        # Before 3.11, code does not know its class.
        told = (frame.function.split(".")[-1], frame.line) if frame else None
        frames.append(told)
    return frames


def without_c(frames: Sequence[Frame | None]) -> list[Frame]:
    return [frame for frame in frames if frame is not None]


INNER = [("fill", line_of("fill")), ("inner", line_of("inner"))]
MODULE = "<module>"


def test_functions_have_lines(profile: model.Profile) -> None:
    frames = stack_of(profile, 8)
    assert without_c(frames) == [*INNER, (MODULE, line_of("main"))]
    assert frames[0] is None and frames[-1] is None
    names = {frame.file for frame in profile.functions.values()}
    assert any(Path(name).name == "script.py" for name in names)


def test_c_functions_stand_between(profile: model.Profile) -> None:
    frames = stack_of(profile, 9)
    line = line_of("through_c")
    names = [frame and frame[0] for frame in frames]
    at = names.index("<lambda>")
    assert without_c(frames)[:4] == [*INNER, ("<lambda>", line), ("through_c", line)]
    assert names[at : at + 3] == ["<lambda>", None, "through_c"]


def test_generators_and_handlers(profile: model.Profile) -> None:
    assert without_c(stack_of(profile, 10))[:3] == [
        INNER[0],
        ("generate", line_of("generate")),
        ("consume", line_of("consume")),
    ]
    assert without_c(stack_of(profile, 11))[:3] == [
        *INNER,
        ("caught", line_of("caught")),
    ]


def test_deep_recursion_keeps_both_ends(profile: model.Profile) -> None:
    frames = without_c(stack_of(profile, 12))
    deep = [("deep", line_of("deepest")), *[("deep", line_of("deep"))] * 30]
    assert frames[:33] == [*INNER, *deep]
    assert frames[33][0] == MODULE


def test_names_that_are_not_ascii(profile: model.Profile) -> None:
    # A comprehension is a function of its own before 3.12.
    frames = [
        each for each in without_c(stack_of(profile, 13)) if each[0] != "<listcomp>"
    ]
    assert frames[0] == ("größe", line_of("größe"))


def test_code_that_is_gone_has_its_names(profile: model.Profile) -> None:
    frames = without_c(stack_of(profile, 14))
    assert frames[:2] == [("vanish", 3), ("gone", line_of("gone"))]
    assert any(frame.file == "gone.py" for frame in profile.functions.values())


def test_code_that_takes_the_place_of_other_code_has_its_own_names(
    profile: model.Profile,
) -> None:
    size = 16 << 20
    found = set()
    for stack in profile.stacks:
        if size <= stack.total.requested < size + 4096:
            frames = (profile.functions.get(each) for each in stack.addresses)
            inner = next(frame for frame in frames if frame is not None)
            found.add((inner.function, inner.file, inner.line))
    assert found == {
        (f"{chr(97 + i)}gain", f"file{i % 4}.py", 2 + i // 5) for i in range(20)
    }


def test_threads_have_their_own_frames(profile: model.Profile) -> None:
    frames = without_c(stack_of(profile, 15))
    assert frames[:3] == [*INNER, frames[2]]
    assert [name for name, _ in frames[2:]] == ["run", "_bootstrap_inner", "_bootstrap"]


def test_trampolines_of_perf_are_left_out(
    interpreter: Path, liballod: Path, tmp_path: Path
) -> None:
    told = ended(interpreter, "-c", "import sys; sys.activate_stack_trampoline")
    if told.returncode != 0:
        pytest.skip("this Python writes no names for perf")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    profile = run(liballod, tmp_path, interpreter, "-X", "perf", "script.py")
    try:
        assert without_c(stack_of(profile, 8)) == [*INNER, (MODULE, line_of("main"))]
        text = Path(f"/tmp/perf-{profile.process}.map").read_text(errors="replace")
    finally:
        Path(f"/tmp/perf-{profile.process}.map").unlink(missing_ok=True)
    assert "py::inner:" in text
    # Their places are not among the frames of the stack.
    stubs = [line.split(" ") for line in text.splitlines() if " py::" in line]
    spans = [(int(it[0], 16), int(it[0], 16) + int(it[1], 16)) for it in stubs]
    frames = next(
        each for each in profile.stacks if each.total.requested // (1 << 20) == 8
    )
    for address in frames.addresses:
        assert not any(start < address <= end for start, end in spans)


def test_the_command_names_python_functions(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    words = ["run", "--profile", "--output", "heap", "--", sys.executable, str(script)]
    result = allod(*words, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    stacks = pprof.read(tmp_path / "heap.pb.gz").stacks
    named = [
        list(stack.names())
        for stack in stacks
        if 9 << 20 <= stack.total.bytes < 10 << 20
    ]
    names = [frame.function for frame in named[0]]
    at = names.index("Store.fill")
    assert named[0][at].file == str(script)
    assert named[0][at].line == line_of("fill")
    start = names.index("through_c.<locals>.<lambda>") + 1
    between = named[0][start : names.index("through_c")]
    assert between and all(frame.file != str(script) for frame in between)
    assert "Store.fill" in (tmp_path / "heap.html").read_text()
