"""`allod gdb` tells what an address is, in a process."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from allod import debugger
from allod.console import Failure
from commands import allod

DebianPackages = Callable[..., None]

PROGRAM = """\
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
char* in_use;
char* freed;
char* of_another;
char* huge;
char* freed_huge;
char foreign;
static void* frees(void* block) {
  free(block);
  return 0;
}
__attribute__((noinline)) void stand_here(void) { __asm__ volatile("" ::: "memory"); }
int main(void) {
  pthread_t thread;
  /* Enough for a place of its own. */
  for (int i = 0; i < 1000; ++i) free(malloc(100));
  in_use = malloc(100);
  freed = malloc(100);
  of_another = malloc(3000);
  huge = malloc(10 << 20);
  free(freed);
  pthread_create(&thread, 0, frees, of_another);
  pthread_join(thread, 0);
  strcpy(in_use, "kept");
  freed_huge = malloc(12 << 20);
  free(freed_huge);
  stand_here();
  return foreign;
}
"""
QUESTIONS = (
    "allod block in_use",
    "allod block in_use+7",
    "allod block freed",
    "allod block of_another",
    "allod block huge+4096",
    "allod block freed_huge",
    "allod block &foreign",
    "allod block 0",
    "allod slab in_use",
    "allod heap",
)
MISTAKES = (
    ("allod block", "allod: an address is missing"),
    ("allod slab &foreign", "allod: no slab is at 0x"),
    ("allod block nothing", 'allod: No symbol "nothing" in current context'),
)
# By library: what is said of a block that the program has freed.
FREED = {
    "liballod.so": r"free, in the cache of thread \d+",
    "liballod-debug.so": "in use, or freed lately",
    "liballod-hardened.so": "free: it was freed, or was never allocated",
}
FREED_HUGE = {
    "liballod.so": "free, kept for the next request",
    "liballod-debug.so": "in use, or freed lately",
    "liballod-hardened.so": "free: it was freed, and waits",
}
ANSWERS = (
    r"0x\w+ is a block of size class (?P<class>\d+)\n  in use.*\n"
    r"  block \d+ of \d+ in the slab at 0x\w+\n  owner: domain \d+ of thread \d+",
    r"0x\w+ is 7 bytes into 0x\w+, a block of size class (?P=class)\n  in use",
    r"0x\w+ is a block of size class (?P=class)\n  {freed}",
    r"0x\w+ is a block of size class \d+\n  (free|in use, or freed lately)",
    r"0x\w+ is 4096 bytes into 0x\w+, a huge block of 10\.\d MiB\n  in use",
    r"0x\w+ is (a huge block of 12\.\d MiB\n  {freed_huge}|in free memory of Allod)",
    r"0x\w+ is not Allod's memory",
    r"0x0 is not Allod's memory",
    r"slab at 0x\w+: [\d,]+ bytes, \d+ blocks of size class (?P=class)\n  owner: domain",
    r"  # in use.*: \d+",
    r"  0x\w+ [#.crq]+",
    r"size class",
    r" +(?P=class) +\d+ ",
    r"huge blocks: 1, 10\.\d MiB",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gdb")
    source, program = folder / "program.c", folder / "program"
    source.write_text(PROGRAM)
    flags = ("-g", "-O1", "-fno-builtin", "-pthread")
    subprocess.run(["cc", *flags, source, "-o", program], check=True)
    return program


def gdb(*words: str | Path, asks: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    options = [word for ask in asks for word in ("-ex", ask)]
    return allod("gdb", "-nx", "-batch", *options, *words)


def started_on(library: Path) -> tuple[str, ...]:
    """What brings the program to the place where it is asked."""
    return (
        "set startup-with-shell off",
        f"set environment LD_PRELOAD {library}",
        "break stand_here",
        "run",
    )


def verify(done: subprocess.CompletedProcess[str], library: Path) -> None:
    if "ptrace" in done.stdout + done.stderr:
        pytest.skip("nobody may look into programs here")
    freed = FREED[library.name]
    wanted = r"[\s\S]*?".join(ANSWERS).replace("{freed}", freed)
    wanted = wanted.replace("{freed_huge}", FREED_HUGE[library.name])
    assert re.search(wanted, done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("name", FREED)
def test_gdb_tells_what_an_address_is(
    program: Path, build_dir: Path, debian_packages: DebianPackages, name: str
) -> None:
    debian_packages("gdb")
    library = build_dir / name
    verify(gdb(program, asks=(*started_on(library), *QUESTIONS)), library)


def test_a_core_file_tells_that_it_lacks_the_map(
    program: Path, liballod: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    core = tmp_path / "core"
    writes = (f"generate-core-file {core}", "kill")
    written = gdb(program, asks=(*started_on(liballod), *writes))
    if not core.exists():
        pytest.skip(f"gdb writes no core file here: {written.stderr}")
    done = gdb(program, core, asks=("allod block in_use",))
    assert "allod: the core file lacks the page map" in done.stderr, done.stderr


def test_mistakes_have_one_line(
    program: Path, liballod: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    for ask, complaint in MISTAKES:
        done = gdb(program, asks=(*started_on(liballod), ask))
        assert complaint in done.stderr, done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_program_without_the_library_is_told(
    program: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    done = gdb(program, asks=("break stand_here", "run", "allod heap"))
    assert "the program does not run on Allod" in done.stderr, done.stdout + done.stderr


def test_without_gdb_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Failure, match="^gdb is not installed$") as raised:
        debugger.start([])
    assert raised.value.status == 127
