"""What only a run of these tests alone has time for."""

from __future__ import annotations

from pathlib import Path

import pytest
from long_runs import leave_out


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves the long ones out of all other runs."""
    leave_out(Path(__file__).parent, config, items)
