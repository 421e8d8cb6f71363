"""What the limits of a container change: processes in a control group of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ControlGroup
from surface.black_box import Runner, describe, environment, run_program

MIB = 1 << 20
NO_DELAY = {"ALLOD_PURGE_DELAY": "3600000"}


def test_free_memory_keeps_to_a_part_of_the_limit(
    control_group: ControlGroup, release: Runner
) -> None:
    """A sixteenth of what the container may have; more than the limit never gets so far."""
    case = "budget_is_a_part_of_the_containers_limit"
    release.within(control_group(256 * MIB)).run_well("memory", case, **NO_DELAY)
    # Without a limit more is kept.
    unlimited = release.within(control_group(1 << 40))
    result = unlimited.run("memory", case, **NO_DELAY)
    assert result.returncode == 1, describe(result)


@pytest.mark.parametrize(
    ("budget", "limit", "kept"),
    [
        ("", 128 * MIB, "8.0 MiB"),
        ("", 64 * MIB, "4.0 MiB"),
        ("", 10 * MIB, "1.0 MiB"),
        ("", 4096 * MIB, "64.0 MiB"),
        ("48M", 128 * MIB, "48.0 MiB"),
    ],
)
def test_the_budget_is_announced(
    budget: str,
    limit: int,
    kept: str,
    control_group: ControlGroup,
    liballod: Path,
    tmp_path: Path,
) -> None:
    """The limit counts where no option says how much."""
    variables = environment(liballod) | {"ALLOD_VERBOSE": "2"}
    if budget:
        variables["ALLOD_PURGE_BUDGET"] = budget
    result = run_program(["true"], variables, tmp_path, control_group(limit))
    assert f"or above {kept}" in result.stderr, describe(result)
