"""The figures are those of what the program did."""

from __future__ import annotations

import math
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Serve, sample_all
from .watched import Json, Watched

MIB = 1 << 20


def sum_of(state: Json, size: int) -> Json:
    """The row of a size class."""
    rows = [row for row in state["classes"] if row["size"] == size]
    return rows[0] if rows else {"live": 0, "live_bytes": 0, "free": 0}


def test_blocks_in_use_are_counted_exactly(service: Watched) -> None:
    before = service.fresh_state()
    service.do("hold 20480 1000")
    held = service.fresh_state()
    service.do("drop")
    after = service.fresh_state()
    grown = held["now"]["live"] - before["now"]["live"]
    # The vector of the service's blocks grows, too.
    assert 1000 * 20480 <= grown <= 1000 * 20480 + 64 * 1024
    assert sum_of(held, 20480)["live"] == 1000
    assert sum_of(after, 20480)["live"] == 0
    assert after["now"]["peak_live"] >= held["now"]["live"]


def test_looking_changes_nothing(service: Watched) -> None:
    """Whatever is asked, the server's memory is in no figure."""
    service.do("hold 320 20000")
    before = service.fresh_state()["now"]
    for _ in range(20):
        for path in ("/api/map", "/api/flame?of=live", "/debug/pprof/heap", "/metrics"):
            assert service.ask(path).status == 200
    after = service.fresh_state()["now"]
    for name in ("live", "live_blocks", "huge", "cached", "free_in_slabs", "slabs"):
        assert after[name] == before[name], name


def test_resident_memory_is_taken_apart_without_rest(service: Watched) -> None:
    service.do("hold 4000 5000")
    service.do("sparse 2048 8000")
    state = service.fresh_state()
    parts = state["residency"]
    whole = sum(value for name, value in parts.items() if name != "untouched")
    assert whole == state["now"]["resident"]
    # All of it was written to: what is held is resident, and what is free is free.
    held = 5000 * 4096 + 500 * 2048
    assert held <= parts["live"] <= held + MIB
    assert (
        7500 * 2048 * 0.9
        <= parts["free_in_slabs"] + parts["dirty"]
        <= 7500 * 2048 + 2 * MIB
    )


FOREIGN = """\
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { MIB = 1 << 20 };
static void* fill_stack(void* ready) {
  char frame[24 * MIB];
  memset(frame, 1, sizeof frame);
  __asm__ volatile("" : : "r"(frame) : "memory");
  pthread_barrier_wait(ready);
  for (;;) pause();
}
int main(int n, char** a) {
  pthread_barrier_t ready;
  pthread_barrier_init(&ready, NULL, 2);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * MIB);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, fill_stack, &ready) != 0) return 1;
  pthread_barrier_wait(&ready);
  const int file = open(a[n - 1], O_RDONLY);
  volatile const char* mapped = mmap(NULL, 16 * MIB, PROT_READ, MAP_PRIVATE, file, 0);
  for (int i = 0; i < 16 * MIB; i += 4096) (void)mapped[i];
  const int rights = PROT_READ | PROT_WRITE;
  char* const own = mmap(NULL, 40 * MIB, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(own, 1, 40 * MIB);
  puts("ready");
  fflush(stdout);
  return getchar() == 0;
}
"""


@pytest.mark.parametrize(
    ("name", "variables", "pool"),
    [
        ("python3.99", {}, "Python's own pools"),
        ("python3.99", {"PYTHONMALLOC": "malloc"}, ""),
        ("something", {}, ""),
    ],
)
def test_what_is_not_allods_is_explained(
    serve: Serve,
    clean: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    variables: dict[str, str],
    pool: str,
) -> None:
    source = tmp_path / "foreign.c"
    source.write_text(FOREIGN)
    program = tmp_path / name
    subprocess.run(["cc", "-O1", "-o", program, source, "-pthread"], check=True)
    data = tmp_path / "data"
    data.write_bytes(b"x" * (16 * MIB))
    for variable, value in variables.items():
        monkeypatch.setitem(clean, variable, value)
    with serve(program, data) as process:
        assert process.process.stdout is not None
        assert process.process.stdout.readline() == "ready\n"
        state = process.fresh_state()
        metrics = process.ask("/metrics").body.decode()
    foreign = state["foreign"]
    parts = ("code", "stacks", "files", "other")
    assert sum(foreign[part] for part in parts) == state["residency"]["not_ours"]
    for part, planted in {"stacks": 24, "files": 16, "other": 40}.items():
        assert abs(foreign[part] / MIB - planted) < 3, foreign
    assert foreign["code"] > MIB
    assert (foreign["pool"], foreign["remedy"] != "") == (pool, pool != "")
    told = re.findall(
        r'^allod_not_allods_part_bytes\{part="(\w+)"\} (\d+)$', metrics, re.M
    )
    assert {part for part, _ in told} == set(parts)


def test_names_leave_no_memory_behind(serve: Serve) -> None:
    """Files are read for the names of functions, and given back."""
    with serve(profile="0") as program:
        sample_all(program)
        program.do("hold 20480 200")
        program.do("leak 20480 200")
        for _ in range(2):
            flame = program.ask("/api/flame?of=live").json()
            assert any(
                "Sessions::open" in "".join(path) for path, _ in leaves(flame["root"])
            )
            assert program.ask("/debug/pprof/heap").status == 200
        # What took long to read is kept for a while.
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if (page := program.fresh_state()["residency"]["page"]) < 6 * MIB:
                break
        assert page < 6 * MIB


def test_the_map_shows_what_is_sparse(service: Watched) -> None:
    service.do("sparse 2048 16000")
    spans = service.ask("/api/map").json()["spans"]
    sparse = [span for span in spans if span[2] == 0 and span[4] == 2048]
    blocks = sum(span[5] for span in sparse)
    free = sum(span[6] for span in sparse)
    assert 16000 <= blocks <= 16000 + 200
    assert blocks - free >= 1000
    assert free >= 14_000


def free_in_emptiest(spans: list[list[int]]) -> int:
    """Bytes in memory that are free in slabs at most a quarter full."""
    return sum(
        min(free * size, max(0, resident - (blocks - free) * size))
        for _, _, kind, _, size, blocks, free, resident in spans
        if kind == 0 and 0 < blocks - free <= blocks // 4
    )


def function_of(row: Json) -> str:
    return str(row["frames"][0]["n"])


def test_pins_are_exact_where_every_block_is_sampled(serve: Serve) -> None:
    with serve(profile="0", purge_delay="-1") as program:
        sample_all(program)
        program.do("sparse 2048 16000")
        spans = program.ask("/api/map").json()["spans"]
        pins = program.ask("/api/stacks?of=pins").json()
    free = free_in_emptiest(spans)
    assert free > 14_000 * 2048
    assert pins["free"] == pytest.approx(free, rel=0.01)
    by_function = {function_of(row): row for row in pins["rows"]}
    [row] = [row for name, row in by_function.items() if "Cache::make" in name]
    assert row["error"] == 0
    assert row["rate"] == pytest.approx(free, rel=0.01)


@pytest.mark.parametrize("every", [6, 24, 200])
def test_planted_pins_are_found(serve: Serve, every: int) -> None:
    """Among blocks that were freed: several in a slab, one or two, one in some."""
    with serve(profile="16384", purge_delay="-1") as program:
        # The class of another stack is full, and pins nothing.
        program.do("leak 3072 20000")
        program.do(f"plant {every} 2048 120000")
        spans = program.ask("/api/map").json()["spans"]
        pins = program.ask("/api/stacks?of=pins").json()
    free = free_in_emptiest(spans)
    planted = free_in_emptiest([span for span in spans if span[4] == 2048])
    assert planted > 20 * MIB
    rows = pins["rows"]
    assert sum(row["rate"] for row in rows) <= free * 1.01
    [row] = [row for row in rows if "Pins::plant" in function_of(row)]
    assert 0 < row["error"] < planted
    # The error is two standard deviations.
    assert abs(row["rate"] - planted) < 3 * row["error"] + 0.05 * planted
    others = sum(r["rate"] for r in rows if "Pins::plant" not in function_of(r))
    assert others < 0.05 * planted


def test_a_full_class_pins_nothing(serve: Serve) -> None:
    """Its few samples lie alone in a slab of their own, which says nothing about the others."""
    with serve(profile=str(16 * MIB), purge_delay="-1") as program:
        program.do("leak 3072 30000")
        spans = program.ask("/api/map").json()["spans"]
        pins = program.ask("/api/stacks?of=pins").json()
    assert sum(row["rate"] for row in pins["rows"]) <= free_in_emptiest(spans)
    assert all(row["rate"] < MIB for row in pins["rows"])


def test_memory_nodes_add_up(serve: Serve) -> None:
    with serve(nodes="2") as program:
        program.do("hold 20480 1000")
        state = program.fresh_state()
        metrics = program.ask("/metrics").body.decode()
    assert [row["node"] for row in state["nodes"]] == [0, 1]
    assert sum(row["used"] for row in state["nodes"]) >= 1000 * 20480
    assert sum(row["dirty"] for row in state["nodes"]) == state["now"]["dirty"]
    assert re.search(r'^allod_node_used_bytes\{node="1"\} \d+$', metrics, re.MULTILINE)


def test_one_memory_node_is_not_shown(serve: Serve) -> None:
    with serve(nodes="1") as program:
        assert program.fresh_state()["nodes"] == []
        assert "node_used" not in program.ask("/metrics").body.decode()


def test_threads_have_their_names_and_sizes(service: Watched) -> None:
    service.do("work 4 1536 2000")
    rows = {row["name"]: row for row in service.fresh_state()["threads"]}
    for number in range(4):
        row = rows[f"worker-{number}"]
        # A thread owns slabs once it has allocated a little.
        assert 1500 * 1536 <= row["live"] <= 2100 * 1536 + 64 * 1024
        assert row["peak"] >= row["live"]
    metrics = service.ask("/metrics").body.decode()
    group = re.search(
        r'allod_thread_group_allocated_bytes\{group="worker"\} (\d+)', metrics
    )
    assert group is not None
    assert int(group[1]) == sum(rows[f"worker-{i}"]["live"] for i in range(4))


def test_a_thousand_short_threads(serve: Serve, tmp_path: Any) -> None:
    script = tmp_path / "threads.py"
    script.write_text(
        "import sys, threading\n"
        "for _ in range(1000):\n"
        "    t = threading.Thread(target=lambda: [bytes(3000) for _ in range(50)])\n"
        "    t.start(); t.join()\n"
        "print('done', flush=True); sys.stdin.read()\n"
    )
    with serve("/usr/bin/python3", script) as program:
        assert program.process.stdout is not None
        program.process.stdout.readline()
        state = program.fresh_state()
        # Python waits for a thread's code to end; the kernel may be at its end a little longer.
        end = time.monotonic() + 60
        while state["now"]["threads"] > 3 and time.monotonic() < end:
            state = program.fresh_state()
    assert state["now"]["threads"] <= 3
    assert sum_of(state, 3072)["live"] < 100


def test_heaps_and_reports(service: Watched) -> None:
    service.do("heap 4096 300")
    service.do("report 100 50")
    state = service.fresh_state()
    [heap] = state["heaps"]
    assert (heap["name"], heap["live"], heap["live_blocks"]) == (
        "tiles",
        300 * 4096,
        300,
    )
    now = state["now"]
    assert (now["reported"], now["reported_blocks"]) == (5000, 50)
    assert now["reported_peak"] == 5100
    assert (
        'allod_heap_allocated_bytes{heap="tiles"} 1228800'
        in service.ask("/metrics").body.decode()
    )


def leaves(node: Json, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], int]]:
    """Paths of a flame graph that end in a node without children, and their bytes."""
    here = (*path, node["n"])
    children = node.get("c", [])
    if not children:
        return [(here, node["v"])]
    return [leaf for child in children for leaf in leaves(child, here)]


def test_the_flame_graph_adds_up(service: Watched) -> None:
    service.do("leak 20480 700")
    service.do("hold 1024 3000")
    flame = service.ask("/api/flame?of=live").json()
    found = leaves(flame["root"])
    leaked = sum(
        size for path, size in found if any("Sessions::open" in n for n in path)
    )
    held = sum(size for path, size in found if any("Cache::make" in n for n in path))
    assert leaked == 700 * 20480
    assert held == 3000 * 1024
    assert flame["bytes"] == flame["root"]["v"]
    # What is too narrow to be seen has no node of its own, but is in the sums above it.
    seen = sum(size for _, size in found)
    assert 0.99 * flame["bytes"] < seen <= flame["bytes"]
    folded = service.ask("/debug/folded").body.decode().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded) == flame["bytes"]


def test_estimates_keep_within_theory(serve: Serve) -> None:
    """Sampled by bytes, the estimate of N bytes in blocks of s at a mean of m has a standard
    deviation of about sqrt(N * m), for s much smaller than m."""
    mean = 16384
    with serve(profile=str(mean)) as program:
        program.do("leak 512 100000")
        flame = program.ask("/api/flame?of=live").json()
        total = program.ask("/api/state").json()["profile"]["live"]
    leaked = sum(
        size
        for path, size in leaves(flame["root"])
        if any("Sessions::open" in name for name in path)
    )
    truth = 512 * 100_000
    deviation = math.sqrt(truth * mean)
    assert abs(leaked - truth) < 5 * deviation
    assert abs(total["requested"] / total["bytes"] - 1) < 0.1


def test_growth_between_two_moments(serve: Serve) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("hold 20480 200")
        while len(program.state()["profile"]["moments"]) < 2:
            pass
        first = program.state()["profile"]["moments"][-1]
        program.do("leak 10240 300")
        flame = program.ask(f"/api/flame?of=growth&from={first}&to={first * 2}").json()
    assert flame["from_ms"] == first
    assert flame["bytes"] == 300 * 10240
    assert all("Sessions::open" in "".join(path) for path, _ in leaves(flame["root"]))


def test_a_leak_is_the_first_suspect(serve: Serve) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("hold 4096 4000")
        rows: list[Json] = []
        # Growth is seen over a few moments, which are seconds apart.
        end = time.monotonic() + 60
        while not rows and time.monotonic() < end:
            program.do("leak 2048 20")
            program.do("temporary 4096 50")
            rows = program.ask("/api/stacks?of=suspects").json()["rows"]
        temporary = program.ask("/api/stacks?of=temporary").json()["rows"]
    assert any("Sessions::open" in frame["n"] for frame in rows[0]["frames"])
    assert not any("Parser::parse" in f["n"] for row in rows for f in row["frames"])
    assert any("Parser::parse" in frame["n"] for frame in temporary[0]["frames"])


def test_buttons_do_what_they_say(serve: Serve) -> None:
    with serve(profile="0", purge_delay="-1") as program:
        sample_all(program)
        program.do("hold 20480 2000")
        program.do("drop")
        before = program.fresh_state()["now"]
        assert before["dirty"] > 30 * MIB
        for action in ("purge", "reset", "mark?label=deploy", "sampling?interval=4096"):
            assert program.ask(f"/api/{action}", method="POST").status == 200, action
        state = program.fresh_state()
        assert state["now"]["dirty"] < MIB
        assert state["now"]["resident"] < before["resident"] - 30 * MIB
        assert state["now"]["peak_live"] < 30 * MIB
        assert state["profile"]["interval"] == 4096
        assert [mark["label"] for mark in state["history"]["marks"]] == ["deploy"]
        assert program.ask("/api/sampling?interval=x", method="POST").status == 400
        assert program.ask("/api/sampling?interval=0", method="POST").status == 200
        assert program.fresh_state()["profile"]["interval"] == 0
