"""`allod gdb` tells what an address is, in a process and in a core file."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from allod import debugger
from allod.console import Failure
from commands import allod, ended
from surface.black_box import environment
from workshop.paths import ROOT

DebianPackages = Callable[..., None]

PROGRAM = """\
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "allod.h"
#pragma weak allod_heap_new_ex
#pragma weak allod_heap_malloc
#pragma weak allod_heap_free
char* in_use;
char* freed;
char* of_another;
char* huge;
char* freed_huge;
char foreign;
char* of_heap;
char* freed_of_heap;
char* huge_of_heap;
char* of_buffer;
char* freed_of_buffer;
char* of_all;
char* freed_of_all;
int sharing;
static sem_t ready;
static char buffer[1 << 17] __attribute__((aligned(1 << 16)));
static void* frees(void* block) {
  free(block);
  return 0;
}
/* Enough for a place of its own. */
static void come_and_go(void) {
  for (int i = 0; i < 1000; ++i) free(malloc(100));
}
static void* holds_a_place(void* unused) {
  come_and_go();
  sem_post(&ready);
  pause();
  return unused;
}
static void* shares(void* unused) {
  come_and_go();
  of_all = malloc(100);
  freed_of_all = malloc(100);
  free(freed_of_all);
  sharing = gettid();
  sem_post(&ready);
  pause();
  return unused;
}
static void begin(void* (*function)(void*)) {
  pthread_t thread;
  pthread_create(&thread, 0, function, 0);
  sem_wait(&ready);
}
static void use_heaps(void) {
  allod_heap_options_t options = {.struct_size = sizeof options, .name = "own"};
  allod_heap_t* heap = allod_heap_new_ex(&options);
  of_heap = allod_heap_malloc(heap, 100);
  freed_of_heap = allod_heap_malloc(heap, 100);
  allod_heap_free(heap, freed_of_heap);
  huge_of_heap = allod_heap_malloc(heap, 14 << 20);
  options.name = "lent";
  options.memory = buffer + 1024;
  options.memory_bytes = (1 << 16);
  heap = allod_heap_new_ex(&options);
  of_buffer = allod_heap_malloc(heap, 100);
  freed_of_buffer = allod_heap_malloc(heap, 200);
  *(char*)allod_heap_malloc(heap, 16) = 0;
  allod_heap_free(heap, freed_of_buffer);
}
__attribute__((noinline)) void stand_here(void) { __asm__ volatile("" ::: "memory"); }
int main(int count, char** arguments) {
  pthread_t thread;
  sem_init(&ready, 0, 0);
  come_and_go();
  in_use = malloc(100);
  freed = malloc(100);
  of_another = malloc(3000);
  huge = malloc(10 << 20);
  free(freed);
  pthread_create(&thread, 0, frees, of_another);
  pthread_join(thread, 0);
  strcpy(in_use, "kept");
  if (allod_heap_new_ex != 0) use_heaps();
  freed_huge = malloc(12 << 20);
  memset(freed_huge, 1, 12 << 20);
  free(freed_huge);
  if (count > 1 && strcmp(arguments[1], "crowd") == 0) {
    for (int i = 0; i < 12; ++i) begin(holds_a_place);
    begin(shares);
  }
  stand_here();
  if (count > 1 && strcmp(arguments[1], "abort") == 0) abort();
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
    "allod block of_heap",
    "allod block freed_of_heap",
    "allod block huge_of_heap",
    "allod block of_buffer+101",
    "allod block freed_of_buffer",
    "allod block buffer",
    "allod slab of_buffer",
    "allod heap",
)
MISTAKES = (
    ("allod block", "allod: an address is missing"),
    ("allod slab &foreign", "allod: no slab is at 0x"),
    ("allod block nothing", 'allod: No symbol "nothing" in current context'),
)
SHARED = ("allod block of_all", "allod block freed_of_all", "print sharing")
# Of a block of the program's, by library: what is known besides its state.
KNOWN = {
    "liballod.so": "",
    "liballod-debug.so": (
        r", requested with 100 bytes\n  allocated by thread \d+:\n"
        r"    #0 0x\w+ malloc\(size_t\) at \S+\n    #1 0x\w+ main at \S+/program\.c:\d+\n"
    ),
    "liballod-hardened.so": r", requested with 100 bytes",
}
# The same of one that the program has freed.
FREED = {
    "liballod.so": r"free, in the cache of thread \d+",
    "liballod-debug.so": (
        "free: it was freed, and waits"
        + KNOWN["liballod-debug.so"]
        + r"(    #.*\n)+  freed by thread \d+:\n    #0 0x\w+ free\(void\*\) at \S+\n"
        r"    #1 0x\w+ main at "
    ),
    "liballod-hardened.so": "free: it was freed, and waits",
}
KEPT_OR_NOT = (
    r"(a huge block of 12\.\d MiB\n  free, kept for the next request|"
    r"in 12\.\d MiB of free memory of Allod)"
)
FREED_HUGE = {
    "liballod.so": KEPT_OR_NOT,
    "liballod-debug.so": KEPT_OR_NOT,
    "liballod-hardened.so": r"a huge block of 12\.\d MiB\n  free: it was freed, and waits",
}
ANSWERS = (
    r"0x\w+ is a block of size class (?P<class>\d+)\n  in use{known}",
    r"\n  block \d+ of \d+ in the slab at 0x\w+\n  owner: domain \d+ of thread \d+",
    r"0x\w+ is 7 bytes into 0x\w+, a block of size class {class}\n  in use",
    r"0x\w+ is a block of size class {class}\n  {freed}",
    r"0x\w+ is a block of size class \d+\n  freed? ?",
    r"0x\w+ is 4096 bytes into 0x\w+, a huge block of 10\.\d MiB\n  in use",
    r"0x\w+ is {freed_huge}",
    r"0x\w+ is not Allod's memory",
    r"0x0 is not Allod's memory",
    r"slab at 0x\w+: [\d,]+ bytes, \d+ blocks of size class {class}\n  owner: domain",
    r"  # in use: 1\n",
    r"  0x\w+ [#.crq]+\n",
    r"0x\w+ is a block of size class \d+\n  in use.*\n(  .*\n)+?"
    r"  owner: first-class heap \d+ \(own\)\n",
    r"0x\w+ is a block of size class \d+\n  free, kept by its heap.*\n(  .*\n)+?"
    r"  owner: first-class heap \d+ \(own\)\n",
    r"0x\w+ is a huge block of 14\.\d MiB\n  in use",
    r"  owner: first-class heap \d+ \(own\)\n",
    r"0x\w+ is 101 bytes into 0x\w+, a block of 112 bytes\n  in use",
    r"  in the slab at 0x\w+, with blocks of all sizes\n"
    r"  owner: first-class heap \d+ \(lent\)\n",
    r"0x\w+ is in free memory\n  in the slab at 0x\w+, with blocks of all sizes\n",
    r"0x\w+ is the program's own, beside what it gave to a heap\n",
    r"slab at 0x\w+: 65,536 bytes, with blocks of all sizes\n"
    r"  owner: first-class heap \d+ \(lent\)\n  # in use: 2 blocks\n"
    r"  \. free: 5[56] times 16 bytes\n  0x\w+ #={6}\.{13}#=?\.{42,43}\nsize class",
    r" +{class} +\d+ ",
    r"huge blocks: 2, 24\.\d MiB",
    r"slabs with blocks of all sizes: 64 KiB, 2 blocks\n",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gdb")
    source, program = folder / "program.c", folder / "program"
    source.write_text(PROGRAM)
    flags = ("-g", "-O1", "-fno-builtin", "-pthread", "-D_GNU_SOURCE")
    include = f"-I{ROOT / 'include'}"
    subprocess.run(["cc", *flags, include, source, "-o", program], check=True)
    return program


def gdb(*words: str | Path, asks: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    options = [word for ask in asks for word in ("-ex", ask)]
    done = allod("gdb", "-nx", "-batch", *options, *words)
    if "ptrace" in done.stdout + done.stderr:
        pytest.skip("nobody may look into programs here")
    return done


def started_on(library: Path, *arguments: str) -> tuple[str, ...]:
    """What brings the program to the place where it is asked."""
    return (
        "set startup-with-shell off",
        f"set environment LD_PRELOAD {library}",
        "break stand_here",
        " ".join(("run", *arguments)),
    )


def verify(done: subprocess.CompletedProcess[str], library: Path) -> None:
    """Each answer is there, in order."""
    words = {
        "{known}": KNOWN[library.name],
        "{freed}": FREED[library.name],
        "{freed_huge}": FREED_HUGE[library.name],
    }
    position = 0
    for answer in ANSWERS:
        for word, told in words.items():
            answer = answer.replace(word, told)
        found = re.compile(answer).search(done.stdout, position)
        assert found is not None, f"{answer}\n{done.stdout}{done.stderr}"
        position = found.end()
        words |= {f"{{{key}}}": value for key, value in found.groupdict().items()}


@pytest.mark.parametrize("name", FREED)
def test_gdb_tells_what_an_address_is(
    program: Path,
    build_dir: Path,
    tmp_path: Path,
    debian_packages: DebianPackages,
    name: str,
) -> None:
    """In a process, and in the core file that it writes of it."""
    debian_packages("gdb")
    library, core = build_dir / name, tmp_path / "core"
    writes = (f"generate-core-file {core}", "kill")
    done = gdb(program, asks=(*started_on(library), *QUESTIONS, *writes))
    verify(done, library)
    assert core.exists(), done.stderr
    verify(gdb(program, core, asks=QUESTIONS), library)


@pytest.mark.parametrize("name", FREED)
def test_a_core_file_of_the_kernel_s_tells_as_much(
    program: Path,
    build_dir: Path,
    tmp_path: Path,
    debian_packages: DebianPackages,
    name: str,
) -> None:
    debian_packages("gdb")
    library = build_dir / name
    core = core_of_the_kernel(program, library, tmp_path)
    verify(gdb(program, core, asks=QUESTIONS), library)


def core_of_the_kernel(
    program: Path, library: Path, folder: Path, parts: str = "33"
) -> Path:
    """Aborts the program. Its core file has the parts that `coredump_filter` says."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()
    if pattern != "core":
        pytest.skip("core files go elsewhere here")
    script = 'echo $1 > /proc/self/coredump_filter; exec "$2" abort'
    shell = ("sh", "-c", script, "sh", f"0x{parts}", program)
    limited = ("prlimit", "--core=unlimited", *shell)
    ended(*limited, directory=folder, environment=environment(library))
    (core,) = folder.glob("core*")
    return core


def test_a_core_file_without_the_records_says_so(
    program: Path, liballod: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    core = core_of_the_kernel(program, liballod, tmp_path, parts="10")
    done = gdb(program, core, asks=("allod heap",))
    assert "the core file lacks private memory" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_core_file_without_the_map_says_so(
    program: Path, liballod: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    """As those of processes that had no mapping left, and of older libraries."""
    debian_packages("gdb")
    core = tmp_path / "core"
    hide = (
        "python at = int(gdb.parse_and_eval('in_use'))",
        "python at = Heap().map['spans_'][at >> 16].address",
        "python gdb.execute(f'call (int)madvise({int(at) & -4096}, 4096, 16)')",
    )
    writes = (f"generate-core-file {core}", "kill")
    gdb(program, asks=(*started_on(liballod), *hide, *writes))
    done = gdb(program, core, asks=("allod block in_use",))
    wanted = "allod: the core file lacks the map from addresses to blocks"
    assert wanted in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("caches", "cache"),
    [
        ("thread", r"the cache of thread (\d+)"),
        ("processor", "a cache that threads (s)hare"),
    ],
)
def test_gdb_tells_a_cache_over_a_domain_that_threads_share(
    program: Path,
    liballod: Path,
    debian_packages: DebianPackages,
    caches: str,
    cache: str,
) -> None:
    debian_packages("gdb")
    options = (
        f"set environment ALLOD_CACHES {caches}",
        "set environment ALLOD_PROCESSORS 1",
    )
    asks = (*options, *started_on(liballod, "crowd"), *SHARED)
    done = gdb(program, asks=asks)
    owner = r"(?:  .*\n)+?  owner: domain \d+, which threads share\n"
    block = r"0x\w+ is a block of size class \d+\n"
    wanted = rf"{block}  in use\n{owner}{block}  free, in {cache}\n{owner}\$1 = (\d+)"
    found = re.search(wanted, done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert caches == "processor" or found[1] == found[2]


def test_gdb_tells_of_guarded_blocks(
    program: Path, liballod: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    options = "set environment ALLOD_GUARD_SAMPLE 1"
    asks = ("allod block in_use+7", "allod block freed", "allod block (in_use+4096)")
    done = gdb(program, asks=(options, *started_on(liballod), *asks))
    told = (
        r"0x\w+ is 7 bytes into guarded block 0x\w+ of 100 bytes\n  in use\n"
        r"  allocated by thread \d+:\n    #0 0x\w+ main at \S+/program\.c:\d+\n",
        r"0x\w+ is 0 bytes into guarded block 0x\w+ of 100 bytes\n  free\n"
        r"  allocated by thread \d+:\n    #0 0x\w+ main at \S+/program\.c:\d+\n(    #.*\n)*"
        r"  freed by thread \d+:\n    #0 0x\w+ main at \S+/program\.c:\d+\n",
        r"0x\w+ is beside guarded blocks",
    )
    assert re.search(r"[\s\S]*".join(told), done.stdout), done.stdout + done.stderr


def test_mistakes_have_one_line(
    program: Path, liballod: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    asks = tuple(ask for ask, _ in MISTAKES)
    done = gdb(program, asks=(*started_on(liballod), *asks))
    for _, complaint in MISTAKES:
        assert complaint in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_without_the_library_is_told(
    program: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    done = gdb(program, asks=("break stand_here", "run", "allod heap"))
    assert "the program does not run on Allod" in done.stderr, done.stdout + done.stderr


def test_a_library_without_debug_information_is_named(
    program: Path, liballod: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    library = tmp_path / "liballod.so"
    subprocess.run(["strip", liballod, "-o", library], check=True)
    done = gdb(program, asks=(*started_on(library), "allod heap"))
    wanted = rf"no debug information of {library} \(build id [0-9a-f]{{40}}\)"
    assert re.search(wanted, done.stderr), done.stdout + done.stderr


def test_the_commands_can_be_loaded_by_gdb_itself(
    program: Path, liballod: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    script = allod("gdb", "--script").stdout.strip()
    asks = (f"source {script}", *started_on(liballod), "allod block in_use")
    options = [word for ask in asks for word in ("-ex", ask)]
    done = ended("gdb", "-nx", "-batch", *options, program)
    if "ptrace" in done.stdout + done.stderr:
        pytest.skip("nobody may look into programs here")
    assert re.search(r"is a block of size class \d+\n  in use", done.stdout), (
        done.stderr
    )


def test_without_gdb_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Failure, match="^gdb is not installed$") as raised:
        debugger.start([])
    assert raised.value.status == 127
