"""`./allod fuzz` records what it has done."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
from allod.console import Failure
from workshop import fuzz as fuzzing


@pytest.mark.usefixtures("built")
def test_pieces_of_fuzzing_are_recorded_and_summed_up(
    liballod_hardened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert liballod_hardened.exists()
    monkeypatch.setattr(fuzzing, "RECORD", tmp_path / "record.csv")
    monkeypatch.setattr(fuzzing, "CALLS", 2000)
    monkeypatch.setattr(fuzzing, "ensure_built", lambda *_, **__: False)
    for _ in range(2):
        assert fuzzing.fuzz(["corruption"], 0.01, 1, record=True) == 0
    lines = (tmp_path / "record.csv").read_text().splitlines()
    assert len(lines) == 3
    calls = sum(int(line.split(",")[4]) for line in lines[1:])
    assert calls >= 4000
    assert f"{calls:,}" in fuzzing.totals()


def test_a_fuzzer_that_ends_badly_has_found_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tests" / "fuzz_slab"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken\nexit 77\n")
    program.chmod(0o755)
    monkeypatch.setattr(fuzzing, "build_dir", lambda _: tmp_path)
    monkeypatch.setattr(fuzzing, "ensure_built", lambda *_, **__: False)
    assert fuzzing.fuzz(["fuzz_slab"], 0.01, 1, record=False) == 1
    (log,) = tmp_path.glob("fuzz_slab-*.log")
    assert "broken" in log.read_text()


@pytest.fixture
def fake_fuzzers(tmp_path: Path, record: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fuzzers that do nothing: `fuzz_slab` ends at once, `fuzz_space` goes on for ever."""
    folder = tmp_path / "tests"
    folder.mkdir()
    for name, work in (
        ("fuzz_slab", "echo 'stat::number_of_executed_units: 42'"),
        ("fuzz_space", "echo '#7 pulse'; touch began; sleep 1000"),
    ):
        (folder / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{work}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(fuzzing, "build_dir", lambda _: tmp_path)
    monkeypatch.setattr(fuzzing, "ensure_built", lambda *_, **__: False)
    assert record.parent == tmp_path
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fuzzing_that_is_interrupted_is_recorded(
    fake_fuzzers: Path, number: signal.Signals
) -> None:
    def interrupt() -> None:
        while not (fake_fuzzers / "began").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    # As in the background of a shell.
    before = signal.signal(number, signal.SIG_IGN)
    thread = threading.Thread(target=interrupt)
    thread.start()
    targets = ["fuzz_slab", "fuzz_space", "corruption"]
    with pytest.raises(Failure, match="interrupted") as caught:
        fuzzing.fuzz(targets, 100, 1, record=True)
    thread.join()
    assert signal.signal(number, before) == signal.SIG_IGN
    assert caught.value.status == 130
    rows = (fake_fuzzers / "record.csv").read_text().splitlines()[1:]
    done = [(row.split(",")[2], *row.split(",")[4:]) for row in rows]
    # What has not begun is not there.
    assert done == [("fuzz_slab", "42", "0", "0"), ("fuzz_space", "7", "0", "0")]


def test_what_cannot_be_recorded_is_said(
    fake_fuzzers: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fake_fuzzers.is_dir()
    monkeypatch.setattr(fuzzing, "RECORD", Path("/dev/full"))
    with pytest.raises(Failure, match="No space left on device"):
        fuzzing.fuzz(["fuzz_slab"], 0.01, 1, record=True)
    assert ",fuzz_slab,0,42,0,0" in capsys.readouterr().err


def test_a_finding_that_cannot_be_kept_is_said(
    fake_fuzzers: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (fake_fuzzers / "tests" / "fuzz_slab").write_text("#!/bin/sh\necho bad; exit 3\n")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert fuzzing.fuzz(["fuzz_slab"], 0.01, 1, record=False) == 1
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "bad" in said


HEADER = "date,commit,target,seconds,executions,defects,findings\n"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the record of fuzzing is for this test."""
    path = tmp_path / "record.csv"
    monkeypatch.setattr(fuzzing, "RECORD", path)
    return path


@pytest.mark.parametrize("row", ["2026,aa,corruption,12", "2026,aa,corruption,x,1,1,0"])
def test_a_bad_row_of_the_record_is_named(row: str, record: Path) -> None:
    record.write_text(f"{HEADER}2026,aa,fuzz_slab,1,1,0,0\n{row}\n")
    with pytest.raises(Failure, match="record.csv:3 is not a valid row"):
        fuzzing.totals()


def test_a_record_that_cannot_be_read_is_told(record: Path) -> None:
    record.mkdir()
    with pytest.raises(Failure, match="Is a directory"):
        fuzzing.totals()
    record.rmdir()
    record.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="it is no text"):
        fuzzing.totals()


def test_hours_with_injected_corruption_are_told_apart(record: Path) -> None:
    rows = "2026,aa,fuzz_slab,7200,1,0,0\n2026,aa,corruption,3600,1,1,0\n"
    record.write_text(HEADER + rows)
    lines = fuzzing.totals().splitlines()
    assert lines[-2].split() == ["all", "3.00"]
    assert lines[-1] == "with injected corruption 1.00"


def test_the_program_is_told_which_measures_are_left_out() -> None:
    ways = fuzzing.CORRUPTED
    for way in ways:
        assert ("heaps" in way.arguments) == (way.library == fuzzing.DEFAULT)
        assert set(filter(None, way.measures.split(","))) <= {*way.arguments}
    left_out = {word for way in ways for word in way.arguments if word[0] == "-"}
    assert {"-canary", "-origin", "-zero", "-written", "-quarantine"} <= left_out
