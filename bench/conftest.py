"""Lets the tests import ``bench`` wherever they are started, and builds the workloads once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bench.compare.peers import Peer
    from bench.compare.results import Results

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the workload programs."""
    from bench.compare import build

    return build.build(may_install=True)


@pytest.fixture(scope="session")
def callgrind() -> None:
    """Callgrind is there."""
    from bench.compare import counters

    if counters.tool(print, may_install=True) is None:
        pytest.skip("valgrind is not there and cannot be installed")


@pytest.fixture(scope="session")
def rich() -> Results:
    """Results of every case, and of further ones."""
    from bench.compare.cases import CASES
    from bench.samples import EXTRA, rich_results

    return rich_results([*CASES, *EXTRA])


@pytest.fixture(scope="session")
def others() -> list[Peer]:
    """A second allocator that works, and Allod as soon as it is built."""
    from bench.compare import peers

    peers.install_missing(["tcmalloc"], print)
    found = [peers.find("tcmalloc")]
    try:
        found.append(peers.find(peers.SUBJECT))
    except peers.PeerError as missing:
        print(missing)
    return found
