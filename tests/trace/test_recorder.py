"""The recorder misses nothing, and the program does not notice it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ended

from . import decoder
from .conftest import Record, Tools

THREADS = 3
ROUNDS = 200


def counts(trace: decoder.Trace) -> Counter[str]:
    """How often each function was called."""
    return Counter(event.kind for event in trace.events)


@pytest.fixture(params=["glibc", "allod"])
def behind(request: pytest.FixtureRequest, liballod: Path) -> list[Path]:
    """What serves the recorded program: the C library, or a preloaded one."""
    return [liballod] if request.param == "allod" else []


def test_every_call_is_recorded(
    record: Record, programs: Path, behind: list[Path]
) -> None:
    idle = record(programs / "calls", str(THREADS), "0", behind=behind)
    busy = record(programs / "calls", str(THREADS), str(ROUNDS), behind=behind)
    assert (idle.status, busy.status) == (0, 0), busy.complaints
    assert (busy.output, busy.complaints) == ("", "")
    trace = decoder.read(busy.trace)
    found = counts(trace)
    found.subtract(counts(decoder.read(idle.trace)))
    each = THREADS * ROUNDS
    at_ends = THREADS * 4
    assert found == {
        "malloc": 5 * each + at_ends,
        "calloc": each,
        "realloc": 4 * each,
        "aligned": 3 * each,
        "free": 8 * each + at_ends,
    }
    assert Counter(event.alignment for event in trace.events if event.alignment) == {
        64: each,
        256: each,
        4096: each,
    }
    assert len(trace.sized(33)) == len(trace.sized(7)) == each
    assert len(trace.sized(77)) == at_ends
    assert trace.complete
    assert len({chunk.thread for chunk in trace.chunks}) == THREADS + 1
    library = str(behind[0]) if behind else "libc.so.6"
    assert trace.allocator.endswith(Path(library).name)
    assert trace.command == [str(programs / "calls"), str(THREADS), str(ROUNDS)]


def test_operators_are_recorded_as_such(
    record: Record, programs: Path, behind: list[Path]
) -> None:
    idle = record(programs / "operators", "0", behind=behind)
    busy = record(programs / "operators", "50", behind=behind)
    assert (idle.status, busy.status) == (0, 0), busy.complaints
    trace = decoder.read(busy.trace)
    wide = [event for event in trace.events if event.alignment == 128]
    assert len(wide) == 2 * 50
    assert all(event.by_operator for event in wide)
    found = counts(trace)
    found.subtract(counts(decoder.read(idle.trace)))
    # Two requests fail. The runtime's own operators try again: one of them with malloc, the other
    # with the first one's kind of operator.
    failed = [
        event for event in trace.events if event.address == 0 and event.kind == "new"
    ]
    assert found["new"] == (4 + 3) * 50
    assert len(failed) == 3 * 50 + 1
    assert found["delete"] == 6 * 50


def test_addresses_are_those_that_the_program_has(
    record: Record, programs: Path
) -> None:
    trace = decoder.read(record(programs / "calls", "1", "100").trace)
    live: set[int] = set()
    events = sorted(trace.events, key=lambda event: event.ticks)
    for event in events:
        if event.kind in decoder.FREES:
            live.remove(event.address)
        elif event.kind == "realloc":
            live -= {event.address}
            live.add(event.moved_to)
        elif event.address:
            assert event.address not in live
            live.add(event.address)


def test_events_of_a_thread_that_is_alone_share_their_times(
    record: Record, programs: Path
) -> None:
    trace = decoder.read(record(programs / "handovers", "1", "50000").trace)
    assert len(trace.events) > 100_000
    # One for 32 events, and one for each where the buffer is the first or the machine is slow.
    assert len({event.ticks for event in trace.events}) < len(trace.events) / 2


# Within the first buffer, and with several of them between two handovers.
@pytest.mark.parametrize(("rounds", "burst"), [(3000, 3), (300, 40), (12, 25_000)])
def test_times_order_what_threads_hand_over(
    record: Record, programs: Path, tools: Tools, rounds: int, burst: int
) -> None:
    done = record(programs / "handovers", str(rounds), str(burst))
    trace = decoder.read(done.trace)
    main, other = (iter(trace.of_thread(number)) for number in (1, 2))

    def made(events: Iterator[decoder.Event], size: int) -> decoder.Event:
        return next(event for event in events if event.size == size)

    def freed(events: Iterator[decoder.Event], block: decoder.Event) -> decoder.Event:
        return next(
            event
            for event in events
            if event.kind == "free" and event.address == block.address
        )

    for i in range(rounds):
        there = made(main, 100_000 + i)
        there_freed = freed(other, there)
        back = made(other, 200_000 + i)
        back_freed = freed(main, back)
        times = [event.ticks for event in (there, there_freed, back, back_freed)]
        assert times == sorted(times)
    info = tools.info(done.trace)
    assert info["unknown_releases"] == info["missing_releases"] == 0


@pytest.mark.parametrize("way", ["exit", "_exit", "quick_exit", "exec"])
def test_nothing_is_lost_when_the_process_ends(
    record: Record, programs: Path, way: str
) -> None:
    done = record(programs / "endings", way)
    assert done.status == 6
    trace = decoder.read(done.trace)
    assert len(trace.sized(1001)) == 3
    assert trace.complete


def test_the_main_thread_may_end_first(record: Record, programs: Path) -> None:
    done = record(programs / "endings", "pthread_exit")
    assert done.status == 0
    assert len(decoder.read(done.trace).sized(1001)) == 3


def test_an_exec_that_fails_changes_nothing(record: Record, programs: Path) -> None:
    done = record(programs / "endings", "failed-exec")
    assert done.status == 6
    assert len(decoder.read(done.trace).sized(1001)) == 5


def test_what_a_running_thread_did_is_written_at_exit(
    record: Record, programs: Path
) -> None:
    done = record(programs / "endings", "leaves-thread")
    assert done.status == 0
    assert len(decoder.read(done.trace).sized(2002)) == 4


def test_signal_handlers_are_recorded_too(record: Record, programs: Path) -> None:
    done = record(programs / "endings", "signals")
    assert len(decoder.read(done.trace).sized(2002)) == 10


def test_threads_have_numbers_of_their_own(record: Record, programs: Path) -> None:
    trace = decoder.read(record(programs / "endings", "threads").trace)
    assert len(trace.sized(1001)) == 300
    ended = [chunk for chunk in trace.chunks if chunk.flags & decoder.THREAD_ENDED]
    assert sorted(chunk.thread for chunk in ended) == list(range(2, 302))


@pytest.mark.parametrize(
    ("way", "number"), [("abort", signal.SIGABRT), ("kill", signal.SIGKILL)]
)
def test_a_crash_loses_only_the_last_buffers(
    record: Record, programs: Path, tools: Tools, way: str, number: int
) -> None:
    done = record(programs / "endings", way)
    assert done.status == -number
    if way == "abort":
        assert not decoder.read(done.trace).chunks
    else:
        # Fewer events are missing than fit into the 64 KiB of a buffer.
        kept = len(decoder.read(done.trace).sized(1001))
        assert 30003 - 65536 // 3 < kept < 30003
    assert not tools.info(done.trace)["complete"]


def test_each_process_has_its_own_trace(record: Record, programs: Path) -> None:
    done = record(programs / "endings", "forks")
    assert done.status == 0, done.complaints
    parent = decoder.read(done.trace)
    assert len(parent.sized(1001)) == 8
    assert not parent.sized(2002) and not parent.sized(3003)
    assert not parent.forked and parent.complete
    others = {
        path: decoder.read(path)
        for path in done.trace.parent.glob(f"{done.trace.name}.*")
    }
    assert all(
        path.name == f"{done.trace.name}.{trace.process}"
        for path, trace in others.items()
    )
    commands = {Path(trace.command[0]).name: trace for trace in others.values()}
    assert commands.keys() == {"endings", "sh"}
    child = commands["endings"]
    assert child.forked and child.complete
    assert Counter(event.size for event in child.events) == {2002: 7, 0: 1}
    assert not commands["sh"].forked


def test_a_program_may_close_all_files(
    record: Record, programs: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    done = record(programs / "endings", "closes-files", own)
    assert done.status == 0, done.complaints
    assert own.read_text() == "mine"
    assert len(decoder.read(done.trace).sized(1001)) == 100000


def test_a_full_disk_stops_the_recording_and_not_the_program(
    record: Record, programs: Path
) -> None:
    done = record(programs / "endings", "many", trace=Path("/dev/full"))
    assert done.status == 5
    assert done.complaints == (
        "allod: recording stopped: /dev/full: no space is left on the device\n"
    )


def test_a_limit_on_files_stops_the_recording_and_not_the_program(
    recorder: Path, programs: Path, tmp_path: Path
) -> None:
    limit = 200_000
    trace = tmp_path / "trace"
    done = subprocess.run(
        [programs / "endings", "many"],
        env={"LD_PRELOAD": str(recorder), "LIBALLOD_RECORD": str(trace)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert done.stderr == (
        f"allod: recording stopped: {trace}: the file would be larger than is allowed\n"
    )
    # What was written is whole.
    assert limit / 2 < trace.stat().st_size <= limit
    assert decoder.read(trace).sized(1001)


def test_without_a_file_nothing_is_recorded(recorder: Path, programs: Path) -> None:
    done = ended(
        programs / "endings", "exit", environment={"LD_PRELOAD": str(recorder)}
    )
    assert done.returncode == 6
    assert done.stderr == ("allod: recording stopped: LIBALLOD_RECORD names no file\n")


def test_a_folder_that_is_gone_is_named(
    record: Record, programs: Path, tmp_path: Path
) -> None:
    done = record(programs / "endings", "exit", trace=tmp_path / "gone" / "trace")
    assert done.status == 6
    assert "the file or its folder is gone" in done.complaints
    assert os.listdir(tmp_path) == []
