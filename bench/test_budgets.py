"""Whole workloads keep to their budgets of instructions; see budgets.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bench.compare import counters, peers
from bench.compare.cases import CASES_BY_NAME

BUDGETS: dict[str, float] = {
    case: at_most
    for table in tomllib.loads(
        Path(__file__).with_name("budgets.toml").read_text()
    ).values()
    for case, at_most in table.items()
}


@pytest.fixture(scope="module")
def allod() -> peers.Peer:
    """The library of this checkout."""
    try:
        return peers.find("allod")
    except peers.PeerError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("callgrind")
@pytest.mark.parametrize("case", BUDGETS)
def test_an_operation_takes_no_more_than_its_budget(
    case: str, allod: peers.Peer, programs: Path
) -> None:
    count = counters.callgrind_count(programs, CASES_BY_NAME[case], allod)
    assert count.events["instructions"] <= BUDGETS[case]
