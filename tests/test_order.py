"""Nothing includes or imports what stands above it, and what does is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checks import imports_order, layers, processors
from workshop.paths import ROOT

# Processors


def test_only_the_lowest_layers_ask_for_a_processor() -> None:
    assert list(processors.violations(ROOT)) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("src/report/planted.cpp", "#if defined(__x86_64__)\n#endif\n"),
        ("src/report/planted.cpp", "#ifdef __ARM_FEATURE_BTI_DEFAULT\n#endif\n"),
        (
            "include/allod/heap/planted.hpp",
            "# if 1 && \\\n  __riscv_xlen == 64\n# endif\n",
        ),
        ("live/planted.hpp", "#if 0\n#elif defined(__s390x__)\n#endif\n"),
        ("include/planted.h", "#ifndef __LP64__\n#endif\n"),
    ],
)
def test_a_planted_question_is_found(tmp_path: Path, file: str, text: str) -> None:
    planted = tmp_path / file
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    (found,) = processors.violations(tmp_path)
    assert found.startswith(f"{file}:")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("include/allod/base/planted.hpp", "#if defined(__x86_64__)\n#endif\n"),
        ("include/allod/os/linux/planted.hpp", "#ifdef __arm__\n#endif\n"),
        (
            "src/report/planted.cpp",
            "// for __x86_64__\n#ifdef ALLOD_HAS_UNWINDER\n#endif\n",
        ),
    ],
)
def test_who_may_ask_for_a_processor_does(tmp_path: Path, file: str, text: str) -> None:
    planted = tmp_path / file
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    assert list(processors.violations(tmp_path)) == []


# Layers


def test_no_layer_includes_a_higher_one() -> None:
    assert list(layers.violations(ROOT / "include")) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("base/planted.hpp", "#include <allod/os/os.hpp>"),
        ("slab/planted.hpp", '#include "allod/heap/engine.hpp"'),
        ("slab/planted.hpp", '  #  include "../heap/engine.hpp"'),
        ("heap/planted.hpp", '#include "allod/heaps/heap.hpp"'),
        ("heap/planted.hpp", "#include <allod/profiling/sampler.hpp>"),
        ("api/planted.hpp", '#include "../../../src/instance/process.hpp"'),
        ("thread/planted.hpp", "#include <allod.h>"),
        ("profiling/planted.hpp", "#include <cstddef>"),
    ],
)
def test_a_planted_include_is_found(tmp_path: Path, file: str, line: str) -> None:
    include = tmp_path / "include"
    shutil.copytree(ROOT / "include", include)
    for layer in layers.LAYERS:
        (include / "allod" / layer).mkdir(exist_ok=True)
        (include / "allod" / layer / f"{layer}.hpp").touch()
    (include / "allod.h").touch()
    assert list(layers.violations(include)) == []

    planted = include / "allod" / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"#pragma once\n{line}\n")
    found = list(layers.violations(include))
    assert len(found) == 1
    assert str(planted.parent) in found[0]


def test_only_the_lowest_layers_know_the_system(tmp_path: Path) -> None:
    folders = (ROOT / "include", ROOT / "src", ROOT / "live")
    assert list(layers.system_violations(*folders)) == []
    for folder in ("base", "heap"):
        (tmp_path / "allod" / folder).mkdir(parents=True)
        (tmp_path / "allod" / folder / "planted.hpp").write_text(
            "#pragma once\n#if __GNUC__ > 9 && defined(_WIN32)\n#endif\n"
        )
    (found,) = layers.system_violations(tmp_path)
    assert "heap/planted.hpp:2: only base and os know _WIN32" in found


def test_no_room_includes_a_higher_one() -> None:
    assert list(layers.room_violations(ROOT / "src", ROOT / "live")) == []


def test_the_rooms_have_an_order() -> None:
    names = list(layers.ROOMS)
    for room, lower in layers.ROOMS.items():
        assert all(names.index(each) < names.index(room) for each in lower), room


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("src/settings/planted.cpp", '#include "instance/process.hpp"'),
        ("src/report/planted.hpp", '#include "entry/entry.hpp"'),
        ("src/report/planted.hpp", "#include <entry/entry.hpp>"),
        ("src/text/planted.hpp", '#include "allod/heap/engine.hpp"'),
        ("src/leaks/planted.cpp", '#include "../entry/entry.hpp"'),
        ("src/stop/planted.hpp", '#include "stop_turn.hpp"'),
        ("src/attic/planted.hpp", "#include <cstddef>"),
        ("live/planted.cpp", '#include "report/report.hpp"'),
    ],
)
def test_a_planted_include_in_a_room_is_found(
    tmp_path: Path, file: str, line: str
) -> None:
    for folder in ("src", "live"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    planted = tmp_path / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"{line}\n")
    found = list(layers.room_violations(tmp_path / "src", tmp_path / "live"))
    assert len(found) == 1
    assert str(planted) in found[0]


def test_a_planted_circle_in_a_room_is_found(tmp_path: Path) -> None:
    source = shutil.copytree(ROOT / "src", tmp_path / "src")
    (source / "text" / "one.hpp").write_text('#include "text/two.hpp"\n')
    (source / "text" / "two.hpp").touch()
    assert list(layers.room_violations(source, tmp_path / "live")) == []

    (source / "text" / "two.cpp").write_text('#include "text/one.hpp"\n')
    (found,) = layers.room_violations(source, tmp_path / "live")
    assert "text/one" in found
    assert "text/two" in found


def test_a_lower_layer_and_the_system_may_be_included(tmp_path: Path) -> None:
    heap = tmp_path / "allod" / "heap"
    heap.mkdir(parents=True)
    (heap / "own.hpp").touch()
    (heap / "planted.hpp").write_text(
        '#include <vector>\n#include <allod/base/bits.hpp>\n#include "own.hpp"\n'
    )
    assert list(layers.violations(tmp_path)) == []


# Imports of Python and TypeScript


def test_nothing_imports_upwards_or_in_a_circle() -> None:
    assert list(imports_order.violations(ROOT)) == []


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The Python and TypeScript of the repository, to plant something in."""
    for folder in ("tools", "bench", "docs", "live/page"):
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix in (".py", ".ts") and "node_modules" not in file.parts:
                copy = tmp_path / file.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)
    assert list(imports_order.violations(tmp_path)) == []
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("tools/allod/top.py", "import workshop.build", "must not import"),
        ("tools/allod/top.py", "    from workshop import build", "must not import"),
        ("tools/allod/top.py", "from bench.compare import stats", "must not import"),
        ("tools/allod/profile/flame.py", "from ..trace import tool", "must not import"),
        ("tools/workshop/fuzz.py", "from bench import tiny", "must not import"),
        ("bench/compare/cached.py", "from clone.bench import bench", "must not import"),
        ("bench/compare/cached.py", "from bench.tiny import TINY", "must not import"),
        ("tools/clone/bench.py", "from checks import budgets", "must not import"),
        ("tools/allod/units.py", "from allod.top import short", "circle"),
        ("live/page/panel.ts", 'import type { Panels } from "./panels";', "circle"),
        ("live/page/format.ts", 'export * from "./flame";', "circle"),
    ],
)
def test_a_planted_import_is_found(
    scripts: Path, file: str, line: str, complaint: str
) -> None:
    planted = scripts / file
    start = "def planted():\n" if line.startswith(" ") else ""
    planted.write_text(f"{planted.read_text()}\n{start}{line}\n")
    found = list(imports_order.violations(scripts))
    assert any(file in one and complaint in one for one in found), found
