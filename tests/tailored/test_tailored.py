"""Composed heaps: what does not compile, what is compiled, and what is reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from checks import budgets
from commands import ended
from workshop.build import PRESETS, ensure_built
from workshop.paths import ROOT
from workshop.paths import build_dir as build_dir_of

HERE = Path(__file__).parent
COMPILERS = ("g++", "clang++-19")
FLAGS = ("-std=c++20", "-O2", "-pthread", f"-I{ROOT / 'include'}")
DebianPackages = Callable[..., None]
WRONG = dict(re.findall(r"WRONG == (\d+)\n  // (.+)", (HERE / "wrong.cpp").read_text()))
# An instruction that is atomic, or orders memory: by its prefix, its name, or because it exchanges
# a register with memory.
ATOMIC = re.compile(r"\block\b|\b[ml]?fence\b|\bxchg[bwlq]?\s.*\(")


def compile_with(compiler: str, *arguments: str | Path) -> str:
    """What the compiler says."""
    done = ended(compiler, *FLAGS, *arguments)
    return done.stderr


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest, debian_packages: DebianPackages) -> str:
    """Each of the compilers that Allod is for."""
    debian_packages("g++", "clang-19")
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def said_of_wrong() -> dict[tuple[str, str], str]:
    """What each compiler says of each composition of wrong.cpp."""
    cases = [(name, number) for name in COMPILERS for number in WRONG]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = pool.map(
            lambda case: compile_with(
                case[0], "-fsyntax-only", f"-DWRONG={case[1]}", HERE / "wrong.cpp"
            ),
            cases,
        )
        return dict(zip(cases, said, strict=True))


@pytest.mark.parametrize("number", WRONG)
def test_a_wrong_composition_is_refused_in_one_sentence(
    compiler: str, number: str, said_of_wrong: dict[tuple[str, str], str]
) -> None:
    said = said_of_wrong[compiler, number]
    errors = re.findall(r"error: (.*)", said)
    if number == "0":
        assert errors == []
    else:
        assert len(errors) == 1, said
        assert errors[0].endswith(f": {WRONG[number]}"), said


def atomics_in(compiler: str, folder: Path, *options: str) -> list[str]:
    """The atomic instructions of fast.cpp."""
    compiled = folder / "fast.o"
    assert (
        compile_with(compiler, "-c", *options, HERE / "fast.cpp", "-o", compiled) == ""
    )
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", compiled],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [line for line in listing.splitlines() if ATOMIC.search(line)]


def test_a_heap_of_one_thread_has_no_atomic_instruction(
    compiler: str, tmp_path: Path
) -> None:
    assert atomics_in(compiler, tmp_path, "-DONE_THREAD_ONLY") == []


def test_a_heap_of_many_threads_has_some(compiler: str, tmp_path: Path) -> None:
    assert atomics_in(compiler, tmp_path) != []


def test_fast_paths_keep_their_budgets(build_dir: Path) -> None:
    rules = budgets.read_budgets(ROOT / "tools" / "checks" / "budgets-tailored.toml")
    found = budgets.measure(build_dir / "tests" / "tailored_fast", rules)
    assert [complaint for one in found for complaint in one.complaints] == []


def test_a_heap_serves_a_process_its_threads_and_its_children(build_dir: Path) -> None:
    program = build_dir / "tests" / "tailored_process"
    done = ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_library_of_ten_lines_serves_an_interpreter(build_dir: Path) -> None:
    script = "import json, threading\n" + (
        "def work(): json.loads(json.dumps({str(i): [i] * 9 for i in range(9000)}))\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print('done')"
    )
    done = ended(
        sys.executable,
        "-c",
        script,
        environment={
            **os.environ,
            "LD_PRELOAD": str(build_dir / "examples" / "own_malloc.so"),
        },
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# The single header


def test_the_single_header_compiles_alone_and_in_a_program(
    compiler: str, build_dir: Path, tmp_path: Path
) -> None:
    folder = build_dir / "include"
    strict = ("-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{folder}")
    commands = (
        ("-fsyntax-only", "-x", "c++", folder / "allod.hpp"),
        (HERE / "fast.cpp", "-o", tmp_path / "fast"),
    )
    for arguments in commands:
        done = ended(compiler, "-std=c++20", "-pthread", *strict, *map(str, arguments))
        assert (done.returncode, done.stderr) == (0, "")
    subprocess.run([tmp_path / "fast"], check=True)


def test_the_single_header_names_what_it_cannot_take_in(tmp_path: Path) -> None:
    (tmp_path / "allod.hpp").write_text('#include "allod/missing.hpp"\n')
    script = ROOT / "cmake" / "single_header.cmake"
    values = {
        "INCLUDE": tmp_path,
        "LICENCE": ROOT / "LICENSE",
        "OUTPUT": tmp_path / "x",
    }
    given = [f"-D{name}={value}" for name, value in values.items()]
    done = ended("cmake", *given, "-P", script)
    assert done.returncode == 1
    # CMake breaks lines.
    said = " ".join(done.stderr.split())
    assert f"{tmp_path / 'allod/missing.hpp'} does not exist" in said
    assert not (tmp_path / "x").exists()


# Mistakes

NEVER = None
MISTAKES = {
    "double free": "heap 'orders': block 0x… is freed twice",
    "double free of any size": "heap 'orders': block 0x… is freed twice",
    "double free of a run": "heap 'orders': block 0x… is freed twice",
    "interior": "heap 'orders': 0x… is freed, but no block begins there",
    "interior of any size": "heap 'orders': 0x… is freed, but no block begins there",
    "interior of a huge block": "heap 'orders': 0x… is freed, but no block begins there",
    "wrong size": "heap 'orders': block 0x… of 32 bytes is freed as one of 64",
    "wrong heap": "heap 'trades': block 0x… is freed here, but it belongs to heap 'orders'",
    "foreign": "heap 'orders': 0x… is freed, but belongs to no checked heap",
    "second thread": "heap 'orders' is for one thread: thread … 'first' has it, and thread …"
    " 'second' uses it",
    "after the end": "heap 'short-lived' is used after its end",
    "double free in quarantine": "heap 'guarded': block 0x… is freed twice",
    "size of what is in quarantine": "heap 'guarded': block 0x… is used, but was freed",
    **{
        f"overflow{what}": "heap 'guarded': block 0x… was written past its end"
        for what in (
            "",
            " at the end of the class",
            " of any size",
            " of a run",
            " of a huge block",
        )
    },
    "wrong size by one": "heap 'guarded': block 0x… of 40 bytes is freed as one of 41",
    **{
        f"write after free{when}": "heap 'guarded': block 0x… was written after it was"
        " freed, at byte 20"
        for when in ("", " of any size", " and the end")
    },
    "null": NEVER,
    "right use": NEVER,
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_checked_heap_reports(case: str, build_dir: Path) -> None:
    done = ended(build_dir / "tests" / "tailored_mistakes", case)
    message = MISTAKES[case]
    if message is NEVER:
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
        return
    assert done.returncode == -signal.SIGABRT, done
    pattern = re.escape(f"allod: {message}\n").replace("…", "[0-9a-f]+")
    assert re.fullmatch(pattern, done.stderr), done.stderr


def test_leaks_are_reported_by_the_place_of_their_allocation(build_dir: Path) -> None:
    program = build_dir / "tests" / "tailored_leaky"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    source = (HERE / "leaky.cpp").read_text().splitlines()
    many = source.index("  static_cast<void>(heap.allocate(size));") + 1
    one = source.index("    static_cast<void>(heap.allocate<8>());") + 1
    file = "tests/tailored/leaky.cpp"
    assert [re.sub(r"from .*?tests/", "from tests/", line) for line in lines] == [
        "allod: heap 'leaky': still in use are 264 bytes in 3 blocks",
        f"allod:   256 bytes in 2 blocks from {file}:{many}",
        f"allod:   8 bytes in 1 block from {file}:{one}",
    ]


def test_nothing_is_reported_where_nothing_is_left(build_dir: Path) -> None:
    program = build_dir / "tests" / "tailored_leaky"
    done = subprocess.run([program, "x"], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# Tools that watch memory

PLACES = ("slab", "cache", "any", "run", "huge")


def sanitized(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that was built with AddressSanitizer."""
    ensure_built(PRESETS["asan"], tests=True)
    return ended(build_dir_of("asan") / "tests" / program, *arguments)


@pytest.mark.parametrize("place", PLACES)
def test_address_sanitizer_sees_a_use_after_free(place: str) -> None:
    done = sanitized("tailored_tools", "use after free", place)
    assert done.returncode != 0
    # A huge block is gone altogether.
    expected = "SEGV" if place == "huge" else "use-after-poison"
    assert f"AddressSanitizer: {expected}" in done.stderr


@pytest.mark.parametrize("place", ("slab", "cache", "any"))
def test_address_sanitizer_sees_an_overflow(place: str) -> None:
    done = sanitized("tailored_tools", "overflow", place)
    assert done.returncode != 0
    assert "AddressSanitizer: use-after-poison" in done.stderr


@pytest.mark.parametrize("place", PLACES)
def test_address_sanitizer_is_content_with_right_use(place: str) -> None:
    done = sanitized("tailored_tools", "nothing", place)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_address_sanitizer_sees_the_standard_malloc_by_the_switch() -> None:
    done = sanitized("tailored_tools_system", "use after free", "slab")
    assert "AddressSanitizer: heap-use-after-free" in done.stderr
    done = sanitized("tailored_tools_system", "overflow", "slab")
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
    assert sanitized("tailored_tools_system", "nothing", "slab").returncode == 0


def watched(
    build_dir: Path, program: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program under valgrind; its status is 9 when it had something to say."""
    return ended(
        "valgrind",
        "--error-exitcode=9",
        "--leak-check=full",
        build_dir / "tests" / program,
        *arguments,
    )


@pytest.mark.parametrize("place", ("slab", "cache", "any", "run"))
def test_valgrind_sees_a_use_after_free(
    place: str, build_dir: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("valgrind")
    done = watched(build_dir, "tailored_tools", "use after free", place)
    assert done.returncode == 9
    assert "Invalid read of size 1" in done.stderr
    assert re.search(r"inside a block of size [\d,]+ free'd", done.stderr), done.stderr


def test_valgrind_sees_overflow_and_leak_and_is_content_with_right_use(
    build_dir: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("valgrind")
    done = watched(build_dir, "tailored_tools", "overflow", "any")
    block = "(recently re-allocated )?block of size 3,000 alloc'd"
    assert re.search(f"is 0 bytes after a {block}", done.stderr), done.stderr
    done = watched(build_dir, "tailored_tools", "leak", "slab")
    assert "40 bytes in 1 blocks are definitely lost" in done.stderr
    for place in PLACES:
        done = watched(build_dir, "tailored_tools", "nothing", place)
        assert "ERROR SUMMARY: 0 errors" in done.stderr, (place, done.stderr)


def test_valgrind_sees_the_standard_malloc_by_the_switch(
    build_dir: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("valgrind")
    done = watched(build_dir, "tailored_tools_system", "use after free", "slab")
    assert "inside a block of size 40 free'd" in done.stderr
