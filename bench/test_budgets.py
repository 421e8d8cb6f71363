"""Whole workloads keep to their budgets of instructions; see budgets.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bench.compare import counters, peers
from bench.compare.cases import CASES_BY_NAME

TABLES = tomllib.loads(Path(__file__).with_name("budgets.toml").read_text())
PEERS = {"one-thread": "allod", "threads": "allod", "hardened": "allod-hardened"}
BUDGETS: dict[tuple[str, str], float] = {
    (PEERS[table], case): at_most
    for table, cases in TABLES.items()
    for case, at_most in cases.items()
}


@pytest.mark.usefixtures("callgrind")
@pytest.mark.parametrize(("name", "case"), BUDGETS)
def test_an_operation_takes_no_more_than_its_budget(
    name: str, case: str, programs: Path
) -> None:
    try:
        peer = peers.find(name)
    except peers.PeerError as error:
        pytest.skip(str(error))
    count = counters.callgrind_count(programs, CASES_BY_NAME[case], peer)
    assert count.events["instructions"] <= BUDGETS[name, case]
