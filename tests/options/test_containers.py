"""What the limits of a container change: processes in a control group of the test's own."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from surface.black_box import SKIPPED, describe, environment

ROOT = Path("/sys/fs/cgroup")
MIB = 1 << 20
NO_DELAY = {"ALLOD_PURGE_DELAY": "3600000"}
Container = Callable[[int], Path]


@pytest.fixture
def container() -> Iterator[Container]:
    """container(bytes) makes a group with that memory limit, or skips the test."""
    made: list[Path] = []

    def make(limit: int) -> Path:
        unified = (ROOT / "cgroup.controllers").exists()
        folder = ROOT if unified else ROOT / "memory"
        group = folder / f"allod-test-{uuid.uuid4().hex[:12]}"
        name = "memory.max" if unified else "memory.limit_in_bytes"
        try:
            group.mkdir()
            made.append(group)
            (group / name).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"control groups cannot be made here: {error}")
        return group

    yield make
    for group in made:
        with suppress(OSError):
            group.rmdir()


def run_inside(
    group: Path, command: list[str | Path], variables: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Runs a program whose process is in the group from its start."""

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    result = subprocess.run(
        command,
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=enter,
    )
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    return result


def test_free_memory_keeps_to_a_part_of_the_limit(
    container: Container, build_dir: Path, liballod: Path, tmp_path: Path
) -> None:
    """A sixteenth of what the container may have; more than the limit never gets so far."""
    command: list[str | Path] = [
        build_dir / "tests" / "options" / "memory",
        "budget_is_a_part_of_the_containers_limit",
    ]
    variables = environment(liballod) | NO_DELAY
    result = run_inside(container(256 * MIB), command, variables, tmp_path)
    assert result.returncode == 0, describe(result)
    # Without a limit more is kept.
    result = run_inside(container(1 << 40), command, variables, tmp_path)
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
    container: Container,
    liballod: Path,
    tmp_path: Path,
) -> None:
    """The limit counts where no option says how much."""
    variables = environment(liballod) | {"ALLOD_VERBOSE": "2"}
    if budget:
        variables["ALLOD_PURGE_BUDGET"] = budget
    result = run_inside(container(limit), ["true"], variables, tmp_path)
    assert f"or above {kept}" in result.stderr, describe(result)
