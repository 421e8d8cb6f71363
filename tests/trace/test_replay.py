"""A trace does the same under every allocator."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import allod, ended
from workshop.paths import ROOT

from . import decoder
from .conftest import Record, Tools
from .test_reading import random_threads, write


def same_under_both(tools: Tools, trace: Path, liballod: Path) -> None:
    """Events and checksum do not depend on the allocator; blocks keep their contents."""
    info = tools.info(trace)
    prepared = tools.prepare(trace)
    reports = [
        tools.replay(prepared, *options, preload=preload)
        for preload in ([], [liballod])
        for options in ([], ["--touch", "1"])
    ]
    assert len({report["checksum"] for report in reports}) == 1
    calls = info["allocated"]["blocks"] + info["resized"] + info["released"]
    assert {report["ops"] for report in reports} == {calls}


def test_threads_and_all_functions(
    record: Record, programs: Path, tools: Tools, liballod: Path
) -> None:
    same_under_both(tools, record(programs / "calls", "4", "3000").trace, liballod)


def test_one_thread_after_another(
    record: Record, programs: Path, tools: Tools, liballod: Path
) -> None:
    trace = record(programs / "endings", "threads").trace
    same_under_both(tools, trace, liballod)
    figures = {
        figure["name"]: figure["value"]
        for figure in tools.replay(tools.prepare(trace))["figures"]
    }
    assert figures["threads"] == 301


def test_a_forked_child_whose_heap_is_older_than_its_trace(
    record: Record, programs: Path, tools: Tools, liballod: Path
) -> None:
    parent = record(programs / "endings", "forks").trace
    children = [
        path
        for path in parent.parent.glob(f"{parent.name}.*")
        if decoder.read(path).forked
    ]
    assert len(children) == 1
    assert tools.info(children[0])["unknown_releases"] == 1
    same_under_both(tools, children[0], liballod)


def test_sqlite(
    record: Record, tools: Tools, liballod: Path, debian_packages: object
) -> None:
    assert callable(debian_packages)
    debian_packages("sqlite3")
    script = (ROOT / "tests" / "programs" / "workloads" / "inventory.sql").read_text()
    done = record("sqlite3", "-bail", ":memory:", stdin=script)
    assert done.status == 0
    info = tools.info(done.trace)
    assert info["events"] > 1000 and info["complete"]
    assert info["unknown_releases"] == info["missing_releases"] == 0
    same_under_both(tools, done.trace, liballod)


def test_python_with_threads(record: Record, tools: Tools, liballod: Path) -> None:
    work = (
        "import threading, json\n"
        "def work(): json.loads(json.dumps([{str(i): 'x' * i} for i in range(500)]))\n"
        "threads = [threading.Thread(target=work) for _ in range(5)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    # The interpreter itself: what it is started by may have forked.
    done = record(os.path.realpath(sys.executable), "-c", work)
    assert done.status == 0, done.complaints
    info = tools.info(done.trace)
    assert info["threads"] == 6
    assert info["unknown_releases"] == info["missing_releases"] == 0
    same_under_both(tools, done.trace, liballod)


def test_made_up_threads_that_hand_everything_around(
    tools: Tools, tmp_path: Path, liballod: Path
) -> None:
    for seed in range(8):
        threads = [
            [event for event in events if event.size < 1 << 30 and event.address]
            for events in random_threads(seed)
        ]
        if any(threads):
            trace = write(tmp_path / f"trace-{seed}", *threads)
            same_under_both(tools, trace, liballod)


def test_the_recorded_replay_is_the_recording(
    record: Record, programs: Path, tools: Tools, recorder: Path, tmp_path: Path
) -> None:
    """Round trip: what the replay calls is what the program called."""
    first = record(programs / "calls", "1", "400").trace
    second = tmp_path / "second"
    tools.replay(
        tools.prepare(first),
        preload=[recorder],
        environment={"LIBALLOD_RECORD": str(second)},
    )
    before, after = tools.info(first), tools.info(second)
    for name in ("resized", "released", "released_by_others"):
        assert 0 <= after[name] - before[name] <= 4, name
    sizes = {entry["from"]: entry["blocks"] for entry in before["sizes"]}
    again = {entry["from"]: entry["blocks"] for entry in after["sizes"]}
    for size, blocks in sizes.items():
        assert blocks <= again[size] <= blocks + 8, size
    assert dict(after["alignments"]) == dict(before["alignments"])


def test_an_allocator_that_mixes_up_blocks_is_found_out(
    record: Record, programs: Path, tools: Tools, tmp_path: Path
) -> None:
    source = tmp_path / "wrong.c"
    source.write_text(
        "#include <stddef.h>\n"
        "static _Alignas(4096) char memory[1 << 26];\n"
        "static size_t used;\n"
        "void* malloc(size_t size) {\n"
        "  used += 65536; return memory + used % sizeof memory;\n"
        "}\n"
        "void* calloc(size_t n, size_t size) { return malloc(n * size); }\n"
        "void* realloc(void* old, size_t size) { (void)old; return malloc(size); }\n"
        "int posix_memalign(void** block, size_t a, size_t size) {\n"
        "  (void)a; *block = malloc(size); return 0; }\n"
        "void free(void* block) { (void)block; }\n"
    )
    library = tmp_path / "wrong.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-fno-builtin", "-o", library, source], check=True
    )
    prepared = tools.prepare(record(programs / "calls", "1", "400").trace)
    done = ended(
        tools.folder / "replay",
        "--file",
        prepared,
        "--verify",
        "1",
        environment={"LD_PRELOAD": str(library)},
    )
    assert done.returncode == 1
    assert re.match("error: (calloc gave|realloc lost|a block of)", done.stderr)


# The front door


def test_record_info_and_replay_from_the_front_door(
    programs: Path, liballod: Path, tmp_path: Path
) -> None:
    recorded = allod("record", "--", programs / "calls", "2", "100", directory=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    assert "wrote calls.trace: " in recorded.stderr
    assert recorded.stdout == ""

    again = allod("record", "--", programs / "endings", "exit", directory=tmp_path)
    assert again.returncode == 6

    shown = allod(
        "trace", "info", "calls.trace", "--html", "page.html", "--out", "plots",
        directory=tmp_path,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "by another thread" in shown.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4
    assert "http" not in page.replace("http://www.w3.org/", "").replace(
        "http://purl.org/", ""
    ).replace("http://creativecommons.org/", "").replace("https://matplotlib.org/", "")
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"live.png", "sizes.png", "lifetimes.png", "threads.png"} < names

    replayed = allod(
        "replay", "calls.trace", "--peer", "glibc", "--peer", f"ours={liballod}",
        "--rounds", "1", "--verify", "--json", directory=tmp_path,
    )  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    results = json.loads(replayed.stdout)
    assert results["allocators"].keys() == {"glibc", "ours"}
    assert not results["failures"]

    lines = allod("trace", "dump", "calls.trace", "--most", "5", directory=tmp_path)
    assert len(lines.stdout.splitlines()) == 5


def test_a_recording_that_cannot_be_written_is_an_error(
    liballod: Path, tmp_path: Path
) -> None:
    """Even of a program that closes its standard error before it ends."""
    assert liballod.exists()
    done = allod(
        *("record", "--output", "/dev/full", "--"),
        *("sh", "-c", "exec 2>&-; exec ls"),
        directory=tmp_path,
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1] == (
        "allod: error: incomplete trace: /dev/full: no space is left on the device"
    )


def test_a_status_of_the_program_s_own_is_kept(liballod: Path, tmp_path: Path) -> None:
    assert liballod.exists()
    done = allod(
        *("record", "--output", "/dev/full", "--", "ls", "/gone"), directory=tmp_path
    )
    assert done.returncode == 2
    assert "incomplete trace" in done.stderr


def test_what_only_begins_like_a_trace_is_passed_over(
    liballod: Path, tmp_path: Path
) -> None:
    assert liballod.exists()
    (tmp_path / "text.7").write_text("ALLODTRC")
    done = allod("record", "--output", "text", "--", "true", directory=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["record", "--", "no-such-program"], 127, "no such program"),
        (["record", "--output", "text", "--", "true"], 1, "is not a trace"),
        (["record", "--output", "gone/trace", "--", "true"], 1, "is not a folder"),
        (["trace", "info", "text"], 1, "text is not a trace"),
        (["trace", "info", "gone"], 1, "gone does not exist"),
        (["trace", "dump", "text"], 1, "text is not a trace"),
        (["replay", "text"], 1, "text is not a trace"),
        (["replay", "gone"], 1, "gone does not exist"),
        (["replay", "text", "--peer", "nobody"], 2, "there is no allocator nobody"),
        (["replay", "text", "--peer", "x=/gone.so"], 1, "is not a file"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], status: int, complaint: str, liballod: Path, tmp_path: Path
) -> None:
    assert liballod.exists()
    (tmp_path / "text").write_text(
        "Not a trace, and longer than the header of one is.\n" * 3
    )
    done = allod(*arguments, directory=tmp_path)
    assert done.returncode == status, done.stderr
    assert complaint in done.stderr
    assert (tmp_path / "text").read_text().startswith("Not a trace")
