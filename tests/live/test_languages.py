"""The live page names functions of interpreters and of compilers at run time."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Serve
from .watched import Watched

SECONDS = 30.0
PYTHON = """
kept = []
def fill():
    kept.append(bytearray(8 << 20))
def through_c():
    sorted([1], key=lambda i: fill() or 0)
through_c()
def fleeting():
    bytearray(4 << 20)
fleeting()
input()
"""


def nodes_of(program: Watched) -> list[dict[str, Any]]:
    """All nodes of the flame graph."""
    waiting = [program.ask("/api/flame?of=live").json()["root"]]
    found = []
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += node.get("c", [])
    return found


def wait_for(program: Watched, function: str) -> list[dict[str, Any]]:
    """The nodes, once this function is there."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        nodes = nodes_of(program)
        if any(node["n"] == function for node in nodes):
            return nodes
        time.sleep(0.05)
    raise AssertionError(f"no {function} in {[node['n'] for node in nodes]}")


@pytest.mark.parametrize(
    ("kind", "place"), [("map", "/app/cache.js:12"), ("dump", "/app/first.js:71")]
)
def test_generated_code_is_named_as_soon_as_its_names_are_there(
    kind: str, place: str, serve: Serve, build_dir: Path
) -> None:
    generated = build_dir / "tests" / "profile" / "generated"
    if not generated.exists():
        pytest.skip("its code is for x86-64")
    with serve(generated, kind, profile="65536") as program:
        before = wait_for(program, "run_generated")
        assert not any(node["n"] == "fill" for node in before)
        program.do("go")
        try:
            after = wait_for(program, "fill")
        finally:
            Path(f"/tmp/perf-{program.process.pid}.map").unlink(missing_ok=True)
    files = {node["n"]: node.get("f") for node in after}
    assert files["fill"] == place
    assert files["Cache.make"] == "/app/cache.py"
    assert "void Cache.put(int, int)" in files


def test_python_functions_stand_between_c(serve: Serve, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PYTHON)
    with serve(sys.executable, str(script), profile="65536") as program:
        nodes = wait_for(program, "fill")
        folded = program.ask("/debug/folded").body.decode()
        rows = program.ask("/api/stacks?of=temporary").json()["rows"]
    # Rows are named by what the user wrote, and not by the interpreter's functions below.
    assert "fleeting" in {row["frames"][row["who"]]["n"] for row in rows}
    places = {node["n"]: node.get("f") for node in nodes}
    assert places["fill"] == f"{script}:4"
    assert places["through_c"] == f"{script}:6"
    line = next(each for each in folded.splitlines() if ";fill;" in each)
    names = line.split(";")
    at = names.index("through_c")
    assert names[at - 1] == "<module>"
    # With the function that it stands in, since Python 3.11.
    inner = next(i for i, name in enumerate(names) if name.endswith("<lambda>"))
    assert inner > at + 1
    assert names.index("fill") > inner
