"""Memory with tags that the processor compares with those of pointers, as an emulator does it."""

from __future__ import annotations

import functools
import platform
import re
import signal
from pathlib import Path

import pytest
from surface.black_box import SKIPPED, describe
from workshop.build import PRESETS, ensure_built
from workshop.packages import PackagesUnavailable, ensure_packages

from arm64.emulator import BUILD, PACKAGES, PROGRAMS, abilities, run_emulated

pytestmark = pytest.mark.slow

HARDENED = BUILD / "liballod-hardened.so"
TAGS = PROGRAMS / "arm64" / "tags"
PAGE = 4096
# qemu 7.2 faults when `dc zva` gets a pointer with a tag: a memset and a bzero that do without it.
WITH_TAGS = {
    "ALLOD_HARDENED": "all,tags",
    "GLIBC_TUNABLES": "glibc.cpu.name=kunpeng920",
}
PLAIN_BZERO = PROGRAMS / "arm64" / "libplain_bzero.so"
run_tagged = functools.partial(
    run_emulated, PAGE, library=HARDENED, before=[PLAIN_BZERO], variables=WITH_TAGS
)
# A processor that has none.
WITHOUT = ("-cpu", "cortex-a72")


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """Installs what is missing and builds; skips where that cannot be done."""
    if platform.machine() != "x86_64":
        pytest.skip("for machines of another kind")
    try:
        ensure_packages(PACKAGES)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    ensure_built(PRESETS["arm64"], tests=True)
    if not abilities(PAGE).get("memory_tags"):
        pytest.skip("the emulator knows no tags of memory")


@pytest.mark.parametrize(
    "case",
    [
        "blocks_have_tags_and_neighbours_have_others",
        "large_blocks_and_those_of_heaps_have_none",
        "every_function_takes_pointers_with_tags",
        "threads_and_children_take_them_too",
    ],
)
def test_case(case: str, tmp_path: Path) -> None:
    """What is right goes on as before."""
    done = run_tagged(TAGS, case, directory=tmp_path)
    assert done.returncode == 0, describe(done)
    assert "allod: " not in done.stderr, describe(done)


@pytest.mark.parametrize(
    ("case", "report", "offset"),
    [
        ("read_past_the_end", "access past the end at", 32),
        ("write_past_the_end", "access past the end at", 1008),
        ("read_after_free", "access after free to", 8),
        ("write_after_free", "access after free to", 80),
        ("read_after_realloc", "access by a pointer to another block to", 0),
        ("read_after_reuse", "access by a pointer to another block to", 4),
    ],
)
def test_access_is_refused(case: str, report: str, offset: int, tmp_path: Path) -> None:
    """The processor stops it at once, and the report says which block it was."""
    done = run_tagged(TAGS, case, directory=tmp_path)
    assert done.returncode == -signal.SIGSEGV, describe(done)
    (block,) = re.findall(r"^block (0x[0-9a-f]+)$", done.stdout, re.MULTILINE)
    assert f"allod: error: {report} {int(block, 16) + offset:#x}\n" in done.stderr, (
        describe(done)
    )
    assert f"block {block} of size class" in done.stderr, describe(done)
    assert "this access by thread" in done.stderr, describe(done)


def test_access_is_refused_where_no_block_is(tmp_path: Path) -> None:
    """All blocks around it have been freed, and the slab is gone."""
    done = run_tagged(TAGS, "read_when_all_is_free", directory=tmp_path)
    assert done.returncode == -signal.SIGSEGV, describe(done)
    assert "allod: error: access after free to 0x" in done.stderr, describe(done)


@pytest.mark.parametrize(
    ("case", "report"),
    [
        ("free_after_reuse", "double free of"),
        ("realloc_after_reuse", "double free of"),
        ("free_twice", "double free of"),
        ("free_to_the_wrong_heap", "free to the wrong heap of"),
    ],
)
def test_free_is_reported(case: str, report: str, tmp_path: Path) -> None:
    """Also of a block that is in use, but by another pointer."""
    done = run_tagged(TAGS, case, directory=tmp_path)
    assert done.returncode == -signal.SIGABRT, describe(done)
    (block,) = re.findall(r"^block (0x[0-9a-f]+)$", done.stdout, re.MULTILINE)
    assert f"allod: error: {report} {block}\n" in done.stderr, describe(done)


@pytest.mark.parametrize(
    ("variables", "options"), [({}, ()), (WITH_TAGS, WITHOUT)], ids=["usual", "old"]
)
def test_there_are_none_elsewhere(
    variables: dict[str, str], options: tuple[str, ...], tmp_path: Path
) -> None:
    """Where nobody asks for them, and on a processor without them."""
    done = run_tagged(
        *(TAGS, "tags_are_only_there_when_they_are_named"),
        directory=tmp_path,
        variables=variables,
        options=options,
    )
    assert done.returncode == 0, describe(done)
    told = "warning: ALLOD_HARDENED=tags has no effect" in done.stderr
    assert told == bool(variables), describe(done)


@pytest.mark.parametrize("load", [(1, 1, 20000), (2, 2, 20000), (3, 8, 5000)], ids=str)
def test_payload(load: tuple[int, int, int], tmp_path: Path) -> None:
    """Threads pass blocks on, fork and end; every byte is verified.

    They take turns: when two give the first tags of a page at the same moment, qemu 7.2 loses those
    of one, on one processor as well. Only a thread alone forks: see test_arm64.py.
    """
    done = run_tagged(
        PROGRAMS / "stress" / "payload",
        *map(str, load),
        *("turns", *(["unforked"] if load[1] > 1 else [])),
        directory=tmp_path,
        variables=WITH_TAGS | {"ALLOD_PURGE_DELAY": "20"},
    )
    assert done.returncode in (0, SKIPPED), describe(done)
    assert "allod: " not in done.stderr, describe(done)
