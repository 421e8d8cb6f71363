"""A pytest plugin that leaves the number of tests by outcome in a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

# Not named ALLOD_*: the library under test reports what it does not know.
COUNTS_FILE = "PYTEST_ALLOD_COUNTS"
RANK = {"skipped": 0, "passed": 1, "failed": 2}


class Counter:
    """Keeps the worst outcome of each test over its phases."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that is skipped in its setup reports a passed teardown after it.
        if report.when == "call" or report.outcome != "passed":
            self._record(report.nodeid, report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._record(report.nodeid, report.outcome)

    def pytest_sessionfinish(self) -> None:
        outcomes = list(self._outcomes.values())
        self._file.write_text(json.dumps({key: outcomes.count(key) for key in RANK}))

    def _record(self, nodeid: str, outcome: str) -> None:
        known = self._outcomes.get(nodeid, outcome)
        self._outcomes[nodeid] = max(known, outcome, key=RANK.__getitem__)


def pytest_configure(config: pytest.Config) -> None:
    """Counts only when somebody asked for it, and where all reports arrive."""
    file = os.environ.get(COUNTS_FILE)
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counter(Path(file)), "allod-counts")
