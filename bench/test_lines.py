"""Cache lines that travel are counted as they do, and Allod lets few of them travel."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from bench.compare import cli, lines, markdown, page, peers
from bench.compare.cases import CASES_BY_NAME
from bench.compare.lines import Total
from bench.compare.peers import Peer
from bench.compare.processes import RunError
from bench.compare.results import Results
from bench.tiny import GLIBC, compile_library

# Two threads take turns in writing to cells, STRIDE bytes apart, for ROUNDS rounds.
_TURNS = """
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { kRounds = 1000 };
static _Alignas(64) volatile char cells[256];
static _Alignas(64) atomic_int next_one;
static void* run(void* argument) {
  const int id = argument != NULL;
  for (int round = 0; round < kRounds; ++round) {
    while (atomic_load(&next_one) != id) sched_yield();
    ++cells[id * STRIDE];
    atomic_store(&next_one, !id);
  }
  return NULL;
}
int main(void) {
  pthread_t one, other;
  syscall(SYS_write, -1L, 0L, 1L);
  pthread_create(&one, NULL, run, NULL);
  pthread_create(&other, NULL, run, &one);
  pthread_join(one, NULL);
  pthread_join(other, NULL);
  syscall(SYS_write, -1L, 0L, 0L);
  return 0;
}
"""
ROUNDS = 1000


@pytest.fixture(scope="session")
def plugin() -> Path:
    found = lines.prepare(print, may_install=True)
    if found is None:
        pytest.skip("qemu-user is not there and cannot be installed")
    return found


@pytest.fixture(scope="session")
def allod() -> Peer:
    try:
        return peers.find("allod")
    except peers.PeerError:
        pytest.skip("the library is not built")


def count_turns(folder: Path, plugin: Path, stride: int) -> Total:
    source, program, out = folder / "turns.c", folder / "turns", folder / "out"
    source.write_text(_TURNS)
    options = ["-O1", f"-DSTRIDE={stride}", "-pthread"]
    subprocess.run(["cc", *options, "-o", program, source], check=True)
    given = f"{plugin},out={out},of={program}"
    command = [lines.EMULATOR, "-plugin", given, str(program)]
    subprocess.run(command, check=True, timeout=60)
    return lines.parse(out.read_text())


def test_a_line_travels_as_often_as_threads_take_turns_on_it(
    tmp_path: Path, plugin: Path
) -> None:
    """The cells on one line travel twice a round more than those on lines of their own: once to
    each thread to be read, and once to be written."""
    together = count_turns(tmp_path, plugin, stride=1)
    alone = count_turns(tmp_path, plugin, stride=64)
    more = together.apart - alone.apart
    assert more == pytest.approx(4 * ROUNDS, rel=0.15)
    assert sum(alone.places.values()) == alone.lines
    # The turns themselves: each thread reads what the other wrote, and then writes it.
    assert alone.apart > 3 * ROUNDS


@pytest.mark.parametrize(
    ("case", "most"), [("cores-own", 0.002), ("cores-pass", 0.6), ("cores-sets", 0.47)]
)
def test_few_lines_travel_for_allod(
    case: str, most: float, programs: Path, plugin: Path, allod: Peer
) -> None:
    """For its own code, with eight threads, in lines for each operation.

    With marks and links on lines of their own, sets took 0.53. Four runs took 0.35 to 0.41: threads
    come to own their domains sooner or later.
    """
    # The helper looks by the clock, which goes on while the emulator is slow.
    alone = dataclasses.replace(allod, variables=(("ALLOD_PURGE_THREAD", "0"),))
    counted = lines.count(
        programs, plugin, (CASES_BY_NAME[case], alone, 8), quick=False
    )
    assert counted.apart is not None
    assert counted.apart < most
    assert counted.per_op >= counted.apart


def test_threads_beyond_the_places_share_little(
    programs: Path, plugin: Path, allod: Peer
) -> None:
    """Without restartable sequences, which the emulator has not."""
    crowd = CASES_BY_NAME[lines.CROWD]
    counted = lines.count(programs, plugin, (crowd, allod, 32), quick=False)
    assert counted.apart is not None
    assert counted.apart < 0.5


def test_source_lines_are_those_of_the_repository(
    programs: Path, plugin: Path, allod: Peer
) -> None:
    work = (CASES_BY_NAME["cores-pass"], allod, 32)
    counted = lines.count(programs, plugin, work, quick=True)
    assert counted.places
    lines_of = [at.line for at in counted.places]
    assert any(line.startswith("bench/workloads/cores.cpp:") for line in lines_of)
    assert any(line.startswith("include/allod/slab/") for line in lines_of)
    assert all(at.per_op > 0 for at in counted.places)


def test_the_c_librarys_malloc_is_not_told_apart(programs: Path, plugin: Path) -> None:
    counted = lines.count(
        programs, plugin, (CASES_BY_NAME["cores-own"], GLIBC, 2), quick=True
    )
    assert counted.apart is None
    assert counted.places == ()


def test_an_allocator_that_crashes_is_told(
    programs: Path, plugin: Path, tmp_path: Path
) -> None:
    library = compile_library(tmp_path, "void free(void *p) { *(int *)0 = 1; }")
    work = [(CASES_BY_NAME["cores-own"], peers.from_file("broken", library), 2)]
    ((_, counted),) = lines.count_all(programs, plugin, work, quick=True)
    assert isinstance(counted, str)


def test_a_count_without_an_end_is_refused() -> None:
    text = "place 3 0x10 /lib/a b.so\nplace 4 0x10 /lib/a b.so\n"
    total = lines.parse(f"{text}total 100 5 2 7\n")
    assert total == Total(7, 7, {("/lib/a b.so", 16): 7})
    with pytest.raises(RunError, match="has no end"):
        lines.parse(text)


def test_the_report_has_curves_tables_and_source_lines(rich: Results) -> None:
    text = markdown.render(rich, [], None)
    assert "| allocator | 1 thread | 8 threads |" in text
    assert "cores-pass: where lines travel under allod, 8 threads" in text
    shown = page.render(rich, [], None)
    assert "include/&lt;allod&gt;.hpp:1" in shown
    assert "Cache lines that travel between cores" in shown


def test_without_the_emulator_the_group_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines, "EMULATOR", "qemu-of-no-machine")
    arguments = ["--group", "cores", "--quick", "--peer", "glibc", "--no-install"]
    assert cli.main([*arguments, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert (
        "cache lines are not counted: qemu-of-no-machine is missing"
        in said.out + said.err
    )
