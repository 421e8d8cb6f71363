"""Lets the tests import ``bench`` wherever they are started, and builds the workloads once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the workload programs."""
    from bench.compare import build

    return build.build(print, may_install=True)


@pytest.fixture(scope="session")
def callgrind() -> None:
    """Callgrind is there."""
    from bench.compare import counters

    if counters.tool(print, may_install=True) is None:
        pytest.skip("valgrind is not there and cannot be installed")
