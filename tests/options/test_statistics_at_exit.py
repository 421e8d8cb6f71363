"""Statistics at the end of a process, of the default library."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from surface.black_box import Runner, describe

from options.statistics import (
    BLOCKS,
    FIELDS,
    HUNDRED,
    TEXT,
    Json,
    objects,
    of_class,
    verify,
)


def test_text_at_the_end(release: Runner) -> None:
    """The text on standard error is complete, and nothing else is there."""
    for value in ("1", "text", "yes"):
        variables = {"ALLOD_SHOW_STATS": value}
        result = release.run_well(
            "statistics", "ends_with_1000_blocks_of_100", **variables
        )
        found = TEXT.fullmatch(result.stderr)
        assert found is not None, describe(result)
        rows = [list(map(int, row.split())) for row in found["classes"].splitlines()]
        assert int(found["huge_blocks"]) == 0
        live = sum(row[2] for row in rows)
        assert int(found["live_blocks"]) == live >= BLOCKS
        assert [row[2] >= BLOCKS for row in rows if row[0] == HUNDRED] == [True]


def at_the_end(release: Runner, case: str) -> Json:
    """The JSON that is on standard error, alone."""
    result = release.run_well("statistics", case, ALLOD_SHOW_STATS="json")
    (stats,) = objects(result.stderr)
    assert result.stderr.count("\n") == 1
    verify(stats)
    return stats


def test_json_at_the_end(release: Runner) -> None:
    """A program that holds 1000 blocks more than another shows just these more."""
    nothing = at_the_end(release, "ends_with_nothing")
    blocks = at_the_end(release, "ends_with_1000_blocks_of_100")
    assert blocks["live_blocks"] - nothing["live_blocks"] == BLOCKS
    assert blocks["live"] - nothing["live"] == BLOCKS * HUNDRED
    gained = of_class(blocks, HUNDRED)["live"] - of_class(nothing, HUNDRED)["live"]
    assert gained == BLOCKS


@pytest.mark.parametrize("form", ["text", "json"])
def test_file_of_each_process(form: str, tmp_path: Path, release: Runner) -> None:
    """%p is the process, so that a child does not overwrite its parent's statistics."""
    variables = {"ALLOD_SHOW_STATS": form, "ALLOD_STATS_FILE": "%p/../stats.%p-%p.%x%"}
    # Only a path: what it leads through has to be there, and is not for a name with %p.
    result = release.run_well("settings", "a_fork", **variables)
    assert result.stderr.count("warning: cannot write statistics to ") == 2
    variables["ALLOD_STATS_FILE"] = str(tmp_path / "stats.%p-%p.%x%")
    result = release.run_well("settings", "a_fork", **variables)
    assert result.stderr == ""
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    for file in files:
        if form == "json":
            (stats,) = objects(file.read_text())
            pid = stats["pid"]
        else:
            found = TEXT.fullmatch(file.read_text())
            assert found is not None
            pid = found["pid"]
        assert file.name == f"stats.{pid}-{pid}.%x%"


def test_file_is_replaced(tmp_path: Path, release: Runner) -> None:
    """A file of an earlier run leaves nothing behind."""
    file = tmp_path / "stats.json"
    file.write_text("x" * 100_000)
    variables = {"ALLOD_SHOW_STATS": "json", "ALLOD_STATS_FILE": str(file)}
    release.run_well("settings", "nothing", **variables)
    (stats,) = objects(file.read_text())
    verify(stats)


@pytest.mark.parametrize("form", ["text", "json"])
def test_unwritable_file(form: str, tmp_path: Path, release: Runner) -> None:
    """The reader is told why, and gets the statistics on standard error."""
    file = tmp_path / "missing" / "stats-%p"
    variables = {"ALLOD_SHOW_STATS": form, "ALLOD_STATS_FILE": str(file)}
    result = release.run_well("settings", "nothing", **variables)
    warning, text = result.stderr.split("\n", 1)
    if form == "json":
        (stats,) = objects(text)
        pid = stats["pid"]
    else:
        found = TEXT.fullmatch(text)
        assert found is not None, describe(result)
        pid = found["pid"]
    name = str(file).replace("%p", str(pid))
    assert warning == (
        f"allod: warning: cannot write statistics to {name}: No such file or directory;"
        " they follow here"
    )
    assert not os.path.exists(name)


def test_full_disk(release: Runner) -> None:
    """Nothing is lost, and the program ends as it would."""
    variables = {"ALLOD_SHOW_STATS": "json", "ALLOD_STATS_FILE": "/dev/full"}
    result = release.run_well("settings", "nothing", **variables)
    warning, text = result.stderr.split("\n", 1)
    assert warning == (
        "allod: warning: cannot write statistics to /dev/full: No space left on device;"
        " they follow here"
    )
    (stats,) = objects(text)
    assert set(stats) == set(FIELDS)


def test_too_long_a_file(tmp_path: Path, release: Runner) -> None:
    """A part of the statistics is not taken for the whole: the file is left empty."""
    file = tmp_path / "stats"
    variables = {"ALLOD_SHOW_STATS": "json", "ALLOD_STATS_FILE": str(file)}
    limited = release.behind("prlimit", "--fsize=100")
    result = limited.run_well("settings", "nothing", **variables)
    *_, warning, text = result.stderr.splitlines()
    assert warning == (
        f"allod: warning: cannot write statistics to {file}: File too large;"
        " they follow here"
    )
    assert set(json.loads(text)) == set(FIELDS)
    assert file.read_bytes() == b""


def test_no_statistics_when_killed(release: Runner) -> None:
    """An end of which nobody hears has no statistics."""
    variables = {"ALLOD_SHOW_STATS": "json"}
    case = "an_end_without_destructors"
    result = release.run_well("settings", case, **variables)
    assert result.stderr == ""
