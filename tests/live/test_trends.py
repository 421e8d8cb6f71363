"""One rule says what grows: the headline, the cards, top and the metrics tell the same."""

from __future__ import annotations

import math
import random
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import allod
from workshop.paths import ROOT

from .conftest import Serve, sample_all
from .watched import Watched

MIB = 1 << 20
SECONDS = 180


@dataclass(frozen=True)
class Trend:
    """What trend_of tells: bytes a minute, and milliseconds."""

    rate: float
    low: float
    high: float
    sure: bool
    span_ms: int


TrendOf = Callable[[Sequence[float]], Trend]


@pytest.fixture(scope="module")
def trend_of(tmp_path_factory: pytest.TempPathFactory) -> TrendOf:
    """The server's rule, given a figure's bytes second by second."""
    program = tmp_path_factory.mktemp("trends") / "trends"
    source = Path(__file__).with_name("trends.cpp")
    words = ["c++", "-std=c++20", "-O1", f"-I{ROOT}/live", str(source)]
    subprocess.run([*words, ROOT / "live" / "trend.cpp", "-o", program], check=True)

    def ask(values: Sequence[float]) -> Trend:
        lines = "".join(f"{1000 * i} {int(v)}\n" for i, v in enumerate(values))
        done = subprocess.run(
            [program], input=lines, capture_output=True, text=True, check=True
        )
        rate, low, high, sure, span = done.stdout.split()
        return Trend(float(rate), float(low), float(high), sure == "1", int(span))

    return ask


LEAK = 61 * MIB / 60
RNG = random.Random(7)
# Bytes by second, and the true growth in bytes a minute; None: nothing may be told.
SERIES: dict[str, tuple[list[float], float | None]] = {
    "constant": ([500.0 * MIB] * 100, None),
    "a load, and rest": (
        [3.0 * MIB * i for i in range(100)]
        + [300.0 * MIB + RNG.randrange(4096) for _ in range(90)],
        None,
    ),
    "a short load, rest, a step, and rest": (
        [float(n * MIB) for n in (8, 13, 54, 66, *[70] * 14, *[92] * 15)],
        None,
    ),
    "noise": ([300 * MIB + RNG.gauss(0, 20 * MIB) for _ in range(300)], None),
    "teeth of 7 s": ([(300 + i % 7 * 20) * MIB for i in range(200)], None),
    "teeth of a minute": ([(300 + i % 60 * 10) * MIB for i in range(300)], None),
    "waves": (
        [(300 + 100 * math.sin(i / 60 * math.tau)) * MIB for i in range(300)],
        None,
    ),
    "a leak behind a fall": (
        [800.0 * MIB] * 60 + [300 * MIB + LEAK * i for i in range(40)],
        61 * MIB,
    ),
    "a leak behind a slow fall": (
        [(300 + 500 * math.exp(-i / 5)) * MIB + LEAK * i for i in range(100)],
        61 * MIB,
    ),
    "a leak in noise": (
        [300 * MIB + LEAK * i + RNG.gauss(0, 20 * MIB) for i in range(120)],
        61 * MIB,
    ),
    "a leak in teeth": (
        [(300 + i % 20 * 10) * MIB + LEAK * i for i in range(300)],
        61 * MIB,
    ),
    "a leak with a spike": (
        [300 * MIB + LEAK * i + (900 * MIB if i in (50, 51) else 0) for i in range(90)],
        61 * MIB,
    ),
    "falling": ([(900 - i) * MIB for i in range(200)], -60 * MIB),
}


@pytest.mark.parametrize("name", SERIES)
def test_trends_are_those_of_the_series(trend_of: TrendOf, name: str) -> None:
    values, truth = SERIES[name]
    trend = trend_of(values)
    if truth is None:
        assert not trend.sure, trend
    else:
        assert trend.sure, trend
        assert trend.low <= trend.rate <= trend.high
        assert trend.low - 0.01 * MIB <= truth <= trend.high + 0.2 * MIB, trend


def test_few_readings_tell_nothing(trend_of: TrendOf) -> None:
    trend = trend_of([MIB * i for i in range(5)])
    assert (trend.sure, trend.span_ms) == (False, 0)


def test_noise_that_depends_on_itself_is_no_growth(trend_of: TrendOf) -> None:
    """A wrong alarm is as rare as the interval promises; six deviations of 100 tries at 2 %."""
    wrong = 0
    for _ in range(100):
        values, value = [], 0.0
        for _ in range(200):
            value = 0.8 * value + RNG.gauss(0, 5 * MIB)
            values.append(300 * MIB + value)
        wrong += trend_of(values).sure
    assert wrong <= 10


def told(program: Watched) -> tuple[float, float, set[str]]:
    """Growth in bytes a minute: as the page has it, as the metrics have it, and all findings."""
    state = program.fresh_state()
    trend = state["trends"]["live"]
    metrics = program.ask("/metrics").body.decode()
    found = re.search(r'allod_growth_bytes_per_minute\{of="live"\} (-?\d+)', metrics)
    assert found is not None
    rate = trend["rate"] if trend["sure"] else 0
    return rate, float(found[1]), {finding["what"] for finding in state["findings"]}


def test_growth_is_told_with_what_lies_free_and_ends_with_the_load(
    serve: Serve,
) -> None:
    with serve(profile="0", purge_delay="-1") as program:
        sample_all(program)
        program.do("sparse 2048 60000")
        findings: set[str] = set()
        rate = metric = 0.0
        end = time.monotonic() + SECONDS
        while "growth" not in findings and time.monotonic() < end:
            program.do("leak 20480 40")
            rate, metric, findings = told(program)
        assert {"growth", "free_in_slabs"} <= findings
        assert rate > 0 and metric > 0
        top = allod("top", "--once", str(program.process.pid)).stdout.splitlines()
        assert int(top[1].split()[top[0].split().index("GROWTH")]) > 0
        # The program rests.
        end = time.monotonic() + SECONDS
        while findings != {"free_in_slabs"} and time.monotonic() < end:
            rate, metric, findings = told(program)
        assert (rate, metric, findings) == (0, 0, {"free_in_slabs"})
