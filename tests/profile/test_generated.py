"""Code that no file holds has the names that its compiler writes for perf."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from allod.profile import code_maps, model, symbols
from commands import ended
from surface.black_box import environment

NAMES = {
    "LazyCompile:*fill /app/cache.js:12:3": ("fill", "/app/cache.js", 12),
    "JS:~fill file:///app/my cache.js:7:1": ("fill", "file:///app/my cache.js", 7),
    "Script:~ /app/main.js:1:1": ("(anonymous)", "/app/main.js", 1),
    "JS:^get length node:buffer:30:2": ("get length", "node:buffer", 30),
    "py::Cache.fill:/app/cache.py": ("Cache.fill", "/app/cache.py", 0),
    "py::<module>:<frozen importlib._bootstrap>": (
        "<module>",
        "<frozen importlib._bootstrap>",
        0,
    ),
    "void java.util.HashMap.put(Object, int)": (
        "void java.util.HashMap.put(Object, int)",
        "",
        0,
    ),
    "Builtin:ArrayPush": ("Builtin:ArrayPush", "", 0),
    "TRACE_12::cache.lua:30": ("TRACE_12::cache.lua:30", "", 0),
}
# Of the program's code: function, file and line.
WRITTEN = [
    ("fill", "/app/cache.js", 12),
    ("void Cache.put(int, int)", "", 0),
    ("Cache.make", "/app/cache.py", 0),
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_runtimes_are_split(name: str) -> None:
    frame = code_maps.split_name(name)
    assert (frame.function, frame.file, frame.line) == NAMES[name]


@pytest.fixture
def generated(build_dir: Path) -> Path:
    program = build_dir / "tests" / "profile" / "generated"
    if not program.exists():
        pytest.skip("its code is for x86-64")
    return program


def run(
    liballod: Path, program: Path, kind: str, folder: Path
) -> tuple[model.Profile, int]:
    """The profile of the program, and its process."""
    file = folder / "profile"
    with subprocess.Popen(
        [program, kind],
        env=environment(liballod)
        | {"ALLOD_PROFILE": "65536", "ALLOD_PROFILE_FILE": str(file)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        process.communicate("go\ngo\n")
    assert process.returncode == 0
    return model.read_text(file), process.pid


def stacks_of(profile: model.Profile) -> list[list[model.Frame]]:
    """Those of the blocks that the program's code has allocated, innermost frame first."""
    symbols.add_names(profile)
    stacks = sorted(profile.stacks, key=lambda stack: stack.number)
    found = [list(stack.names()) for stack in stacks]
    return [names for names in found if names[0].function == "allocate"]


def told(frames: Sequence[model.Frame]) -> list[tuple[str, str, int]]:
    return [(frame.function, frame.file, frame.line) for frame in frames]


@pytest.mark.parametrize("kind", ["map", "dump"])
def test_generated_code_has_names_between_others(
    kind: str, liballod: Path, generated: Path, tmp_path: Path
) -> None:
    profile, process = run(liballod, generated, kind, tmp_path)
    try:
        stacks = stacks_of(profile)
    finally:
        Path(f"/tmp/perf-{process}.map").unlink(missing_ok=True)
    # Line 71 is the last that begins before the call.
    first = WRITTEN[0] if kind == "map" else ("fill", "/app/first.js", 71)
    assert [told(names[1:2])[0] for names in stacks] == [first, *WRITTEN[1:]]
    for names in stacks:
        assert [frame.function for frame in names[2:4]] == ["run_generated", "main"]


def test_code_without_names_is_an_address(
    liballod: Path, generated: Path, tmp_path: Path
) -> None:
    profile, _ = run(liballod, generated, "none", tmp_path)
    for names in stacks_of(profile):
        assert re.fullmatch(r"0x[0-9a-f]+", names[1].function)
        assert names[2].function == "run_generated"


@pytest.fixture
def map_file() -> Iterator[Path]:
    """A file of names for a process that is not there."""
    # The kernel gives no process such an id.
    path = Path("/tmp/perf-99999999.map")
    path.write_text("1000 100 old\n2000 10 other\n1080 10 new\nx y z\n")
    yield path
    path.unlink(missing_ok=True)


def names_of(path: Path, **more: int) -> code_maps.CodeMaps:
    facts = {"process": 99999999, "owner": os.getuid(), "began": 0} | more
    return code_maps.CodeMaps(model.Profile(**facts))  # type: ignore[arg-type]


def test_later_code_is_there_in_place_of_earlier(map_file: Path) -> None:
    names = names_of(map_file)
    found = {at: names.at(at) for at in (0xFFF, 0x1000, 0x1080, 0x108F, 0x1090, 0x1100)}
    functions = {at: frame and frame.function for at, frame in found.items()}
    assert functions == {
        0xFFF: None,
        0x1000: "old",
        0x1080: "new",
        0x108F: "new",
        0x1090: "old",
        0x1100: None,
    }


def test_files_of_others_are_not_read(map_file: Path, tmp_path: Path) -> None:
    assert names_of(map_file).at(0x1000) is not None
    assert names_of(map_file, owner=os.getuid() + 1).at(0x1000) is None
    # Written before the process began, by another one with its id.
    late = int(map_file.stat().st_mtime) + 100
    assert names_of(map_file, began=late).at(0x1000) is None
    elsewhere = tmp_path / "map"
    shutil.move(map_file, elsewhere)
    map_file.symlink_to(elsewhere)
    assert names_of(map_file).at(0x1000) is None


NODE = """
const kept = [];
function fillCache(n) { for (let i = 0; i < n; ++i) kept.push(Buffer.alloc(1 << 20)); }
function outermost() { fillCache(16); }
outermost();
"""


def test_node_names_its_functions(liballod: Path, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here")
    script = tmp_path / "cache.js"
    script.write_text(NODE)
    file = tmp_path / "heap.%p"
    variables = environment(liballod) | {
        "ALLOD_PROFILE": "65536",
        "ALLOD_PROFILE_FILE": str(file),
    }
    # The interpreter's frames have names only in this way.
    options = ["--perf-basic-prof", "--interpreted-frames-native-stack"]
    done = ended(node, *options, script, environment=variables, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    written = next(tmp_path.glob("heap.*"))
    profile = model.read_text(written)
    try:
        symbols.add_names(profile)
    finally:
        Path(f"/tmp/perf-{profile.process}.map").unlink(missing_ok=True)
    # Whoever fills it also compiles, below more functions of C than a stack has. That takes less.
    filled = [
        (stack.total.bytes, [(frame.function, frame.file) for frame in stack.names()])
        for stack in profile.stacks
        if stack.total.bytes >= 1 << 20
        and any(frame.function == "fillCache" for frame in stack.names())
    ]
    assert sum(count for count, _ in filled) >= 16 << 20, filled
    for _, names in filled:
        order = [name for name, file in names if file == str(script)]
        assert order[:2] == ["fillCache", "outermost"], names
