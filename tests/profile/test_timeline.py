"""A profile knows what was in use when: in periods, in the text, in both files and on the page."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from allod.profile import model, pprof
from commands import allod
from workshop.paths import ROOT

MOST = 256
Moment = tuple[int, int, int]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's rule."""
    built = tmp_path_factory.mktemp("timeline") / "timeline"
    source = Path(__file__).with_name("timeline.cpp")
    words = ["c++", "-std=c++20", "-O1", f"-I{ROOT}/src", source, "-o", built]
    subprocess.run([str(word) for word in words], check=True)
    return built


def periods(program: Path, moments: Sequence[Moment]) -> tuple[int, list[list[int]]]:
    lines = "".join(f"{ms} {live} {total}\n" for ms, live, total in moments)
    done = subprocess.run(
        [program], input=lines, capture_output=True, text=True, check=True
    )
    length, *rows = done.stdout.splitlines()
    return int(length), [[int(word) for word in row.split()] for row in rows]


@pytest.mark.parametrize("span", [1, 500, 2047, 2048, 5000, 100_000, 10_000_000])
def test_periods_have_the_most_and_the_end(program: Path, span: int) -> None:
    """Against the same by hand, for random moments."""
    rng = random.Random(span)
    total = 0
    moments: list[Moment] = []
    for ms in sorted(rng.randrange(span) for _ in range(3000)):
        total += rng.randrange(1000)
        moments.append((ms, rng.randrange(1_000_000), total))
    length, rows = periods(program, moments)
    last = moments[-1][0]
    assert length == 8 or last // (length // 2) >= MOST
    assert len(rows) == last // length + 1 <= MOST
    live = [0] * len(rows)
    end = [0] * len(rows)
    # What is in use as a period begins counts in it.
    before = (0, 0)
    index = -1
    for ms, now, ever in moments:
        while index < ms // length:
            index += 1
            live[index], end[index] = before
        live[index] = max(live[index], now)
        end[index] = ever
        before = (now, ever)
    assert [row[1] for row in rows] == end
    assert [row[0] for row in rows] == live


def test_a_thread_that_comes_late_counts_in_the_newest_period(program: Path) -> None:
    _, rows = periods(program, [(100, 5, 5), (50, 7, 7)])
    assert rows[-1] == [7, 7]
    assert max(row[0] for row in rows[:-1]) == 0


def test_it_is_in_all_files(build_dir: Path, tmp_path: Path) -> None:
    shapes = build_dir / "tests" / "profile" / "shapes"
    words = ["run", "--profile", "--interval", "16K", "--", str(shapes)]
    result = allod(*words, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    profile = pprof.read(tmp_path / "shapes.pb.gz")
    timeline = profile.timeline
    assert timeline is not None
    assert max(timeline.live) == pytest.approx(profile.sum("peak").bytes, rel=0.001)
    assert timeline.total[-1] == pytest.approx(profile.sum("total").bytes, rel=0.001)
    assert list(timeline.total) == sorted(timeline.total)
    assert model.Timeline.parse(str(timeline)) == timeline
    page = (tmp_path / "shapes.html").read_text()
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["timeline"]["live"] == list(timeline.live)
