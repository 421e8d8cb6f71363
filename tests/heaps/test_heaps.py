"""First-class heaps: the C functions, the C++ objects, and both under load."""

from __future__ import annotations

import mmap
import re
import signal
from pathlib import Path

import pytest
from surface.black_box import (
    Case,
    Runner,
    cases_in,
    describe,
    run_program,
)
from workshop.build import PRESETS, ensure_built
from workshop.paths import build_dir as build_dir_of

FOLDER = Path(__file__).parent
CASES = cases_in(FOLDER)
IN_C = [case for case in CASES if case.program == "heaps"]
LOADS = [(1, 1, 800_000), (2, 2, 500_000), (3, 4, 300_000), (4, 16, 50_000)]
SANITIZED_LOADS = [(1, 2, 400_000), (2, 4, 200_000), (3, 8, 100_000)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_heaps(case: Case, preloaded: Runner) -> None:
    """The case holds on the library."""
    preloaded.holds(*case)


@pytest.mark.parametrize("case", IN_C, ids=str)
def test_heaps_beside_another_malloc(
    case: Case, build_dir: Path, tmp_path: Path
) -> None:
    """The case holds on the library that replaces nothing."""
    program = build_dir / "tests" / "heaps" / "heaps-prefixed"
    result = run_program([program, case.name], {}, tmp_path)
    assert result.returncode == 0, describe(result)


def test_one_include_replaces_the_operators(build_dir: Path, tmp_path: Path) -> None:
    """With allod/new.hpp, what a program makes with new is Allod's."""
    result = run_program([build_dir / "tests" / "heaps" / "operators"], {}, tmp_path)
    assert result.returncode == 0, describe(result)


@pytest.mark.parametrize(
    ("how", "owner", "named"),
    [
        ("named", 'heap "one"', r"heap \d+"),
        ("nameless", r"heap \d+", 'heap "one"'),
        ("plain", r"domain \d+", 'heap "one"'),
    ],
)
def test_a_free_to_the_wrong_heap_is_reported(
    how: str, owner: str, named: str, preloaded: Runner
) -> None:
    """The report names both, and the process is aborted."""
    result = preloaded.run("misuse", how)
    assert result.returncode == -signal.SIGABRT, describe(result)
    # The debug library watches 64 bytes more, but in no heap of the program's.
    size = 176 if "debug" in preloaded.library.name and how == "plain" else 112
    assert re.match(
        r"allod: error: free to the wrong heap of (0x[0-9a-f]+)\n"
        rf"allod:   block \1 of size class {size}, owned by {owner}\n"
        rf"allod:   the caller names {named}\n",
        result.stderr,
    ), describe(result)


@pytest.mark.parametrize("how", ["goes-on", "goes-on-plain"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_free_to_the_wrong_heap_has_no_effect(
    how: str, preloaded: Runner, *, sampled: bool
) -> None:
    """In a program that goes on, the right free is right."""
    result = preloaded.run_well("misuse", how, ALLOD_GUARD_SAMPLE=int(sampled))
    assert result.stderr.count("allod: error: ") == 1, describe(result)
    assert "error: free to the wrong heap of" in result.stderr, describe(result)


@pytest.mark.parametrize("kind", ["debug", "hardened"])
def test_a_block_that_is_freed_after_its_heap_went_with_it(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Where the history is kept, the report says so."""
    runner: Runner = request.getfixturevalue(kind)
    result = runner.run("misuse", "freed-late", ALLOD_HARDENED="all,history")
    assert result.returncode == -signal.SIGABRT, describe(result)
    frames = r"(?:allod:     #\d+ .*\n)*"
    assert re.search(
        r"allod: error: double free of 0x[0-9a-f]+\n(?:.*\n)*"
        rf"allod:   allocated by thread \d+:\nallod:     #0 \S+ allod_heap_malloc.*\n{frames}"
        rf"allod:   freed by thread \d+:\nallod:     #0 \S+ allod_heap_destroy.*\n{frames}"
        r"allod:   this call by thread \d+:\nallod:     #0 \S+ allod_free",
        result.stderr,
    ), describe(result)


@pytest.mark.parametrize(
    ("how", "name", "end"),
    [
        ("destroyed", 'heap "one"', "destroyed"),
        ("deleted", 'heap "one"', "deleted"),
        ("nameless-gone", r"heap \d+", "destroyed"),
    ],
)
def test_a_heap_that_is_gone_is_named_by_the_debug_library(
    how: str, name: str, end: str, debug: Runner
) -> None:
    """Its record serves no other heap for a while, and the process is aborted."""
    result = debug.run("misuse", how)
    assert result.returncode == -signal.SIGABRT, describe(result)
    assert re.match(
        rf"allod: error: use of {name} after it was {end}\n"
        r"allod:   this call by thread \d+:\n",
        result.stderr,
    ), describe(result)


@pytest.mark.parametrize("how", ["named", "destroyed", "none"])
def test_a_name_cannot_look_like_a_report(how: str, debug: Runner) -> None:
    """Reports and statistics have it on one line, as JSON would."""
    result = debug.run(
        "misuse",
        how,
        ALLOD_SHOW_STATS="text",
        TEST_NAME='one"\nallod: error: double free\x1b[0m',
    )
    name = r'"one\"\u000aallod: error: double free\u001b[0m"'
    assert name in result.stderr, describe(result)
    assert "\nallod: error: double free" not in result.stderr, describe(result)


@pytest.mark.parametrize(
    ("how", "headline", "offset", "size"),
    [
        ("twice", "double free of", 0, 112),
        ("interior", "invalid free of", 16, 112),
        ("overflow", "write past the end of", 0, 112),
        ("overflow-at-end", "write past the end of", 0, 112),
        ("overflow-huge", "write past the end of", 0, None),
        ("realloc", "write past the end of", 0, 112),
        ("underflow", "write past the end of", 0, 112),
        ("zeros", "write past the end of", 0, 48),
        ("zeros-asked", "write past the end of", 0, 48),
        ("zeros-resized", "write past the end of", 0, 48),
        ("zeros-bounds", "write past the end of", 0, 48),
        ("zeros-before", "write past the end of", 0, 48),
        ("realloc-freed", "double free of", 0, 112),
        ("written", "write after free to", 20, 112),
        ("written-collected", "write after free to", 20, 112),
        ("written-destroyed", "write after free to", 20, 112),
        ("written-deleted", "write after free to", 20, 112),
    ],
)
def test_a_hardened_heap_reports_misuse_in_a_library_that_is_not(
    how: str, headline: str, offset: int, size: int | None, release: Runner
) -> None:
    """The report names the block and the heap, and the process is aborted."""
    result = release.run("misuse", f"hardened-{how}")
    assert result.returncode == -signal.SIGABRT, describe(result)
    block = int(result.stdout, 16)
    place = f"{offset} bytes into block" if offset else "block"
    kind = f"size class {size}" if size else r"10027008 bytes"
    assert re.match(
        rf"allod: error: {headline} {block + offset:#x}\n"
        rf'allod:   {place} {block:#x} of {kind}, owned by heap "guarded"\n',
        result.stderr,
    ), describe(result)


def test_a_hardened_heap_that_goes_has_reported_all(release: Runner) -> None:
    """Also of blocks that were freed while another thread was using the heap."""
    result = release.run_well("misuse", "late", ALLOD_ABORT_ON_ERROR=0)
    # Some may be seen twice, from the block behind.
    assert result.stderr.count("error: write past the end of ") >= 4 * 300


def test_of_two_threads_that_free_a_large_block_at_once_one_is_told(
    preloaded: Runner,
) -> None:
    """The late one finds the block gone, and leaves what may be another's by then."""
    result = preloaded.run_well("misuse", "at-once", ALLOD_ABORT_ON_ERROR=0)
    assert result.stderr.count("allod: error: double free of ") == 400, describe(result)
    assert result.stderr.count("allod: error: ") == 400, describe(result)


@pytest.mark.parametrize("kind", ["release", "hardened"])
def test_a_handler_that_interrupts_a_heap_can_be_told_of_misuse(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The report waits for nothing that the interrupted thread has. (The debug library's record of
    each block does.)"""
    runner: Runner = request.getfixturevalue(kind)
    result = runner.run_well("misuse", "interrupted", ALLOD_ABORT_ON_ERROR=0)
    reports = re.findall(
        r"free to the wrong heap of 0x[0-9a-f]+\n.* owned by heap \"one\"\n",
        result.stderr,
    )
    assert len(reports) == 1000, describe(result)


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("behind-slab", r"\d+ bytes into block 0x[0-9a-f]+ of size class 112"),
        ("behind-huge", r"10002432 bytes into block {block:#x} of 10027008 bytes"),
    ],
)
def test_behind_the_blocks_of_a_hardened_heap_is_a_guard(
    how: str, place: str, release: Runner
) -> None:
    """Who runs into it is stopped, and told so."""
    if not has_light_guards():
        pytest.skip("this system has no guards without a mapping: Linux 6.13 has")
    result = release.run("misuse", f"hardened-{how}")
    assert result.returncode == -signal.SIGSEGV, describe(result)
    place = place.format(block=int(result.stdout, 16))
    assert re.match(
        r"allod: error: access past the end at 0x[0-9a-f]+\n"
        rf'allod:   {place}, owned by heap "guarded"\n'
        r"allod:   this access by thread \d+:\n",
        result.stderr,
    ), describe(result)


def has_light_guards() -> bool:
    """Does the system take MADV_GUARD_INSTALL?"""
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE) as memory:
        try:
            memory.madvise(102)
        except OSError:
            return False
        return True


@pytest.mark.parametrize("how", ["leaks", "exit", "many-leaks"])
def test_blocks_that_are_left_are_reported(how: str, preloaded: Runner) -> None:
    """When the heap is destroyed, or at exit; with who allocated them, where that is kept."""
    result = preloaded.run_well("misuse", how, ALLOD_HARDENED="all,history")
    count = 25 if how == "many-leaks" else 1
    blocks = "25 blocks" if count > 1 else "1 block"
    line = r"allod:   block 0x[0-9a-f]+ of 112 bytes"
    if preloaded.library.name != "liballod.so":
        line += r", requested with 100 bytes\n"
        line += r"allod:   allocated by thread \d+:\n(allod:     #\d+ .*\n)+"
    else:
        line += r"\n"
    rest = r"allod:   and 5 more\n" if count > 20 else ""
    assert re.fullmatch(
        rf'allod: heap "leaky" has {blocks} in use, {112 * count} bytes\n'
        rf"({line}){{{min(count, 20)}}}{rest}",
        result.stderr,
    ), describe(result)


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_load(load: tuple[int, int, int], preloaded: Runner) -> None:
    """No block is lost or handed out twice while heaps come and go."""
    seed, threads, operations = load
    if preloaded.library.name == "liballod-debug.so":
        operations //= 10
    arguments = [str(number) for number in (seed, threads, operations)]
    preloaded.holds("load", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("load", SANITIZED_LOADS, ids=str)
def test_load_has_no_data_race(load: tuple[int, int, int], tmp_path: Path) -> None:
    """ThreadSanitizer sees the program and the library's sources, compiled into one."""
    ensure_built(PRESETS["tsan"], tests=True)
    variables = {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
    program = build_dir_of("tsan") / "tests" / "heaps" / "load"
    arguments = [str(number) for number in load]
    result = run_program([program, *arguments], variables, tmp_path)
    assert result.returncode == 0, describe(result)
