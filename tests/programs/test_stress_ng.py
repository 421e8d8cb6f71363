"""stress-ng's stressors of malloc, which check what they wrote."""

from __future__ import annotations

import re

import pytest

from .launcher import DebianPackages, Launcher, Sides


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "live", "operations", "options"),
    [
        ("2K", 60_000, 2_000_000, ()),
        ("64K", 3_000, 150_000, ("--malloc-touch",)),
        ("8M", 40, 1_500, ("--malloc-touch",)),
        ("16K", 5_000, 500_000, ("--malloc-pthreads", "3")),
    ],
    ids=["small blocks", "touched blocks", "large blocks", "several threads"],
)
def test_stress_ng_finds_no_fault_in_its_blocks(
    sides: Sides,
    debian_packages: DebianPackages,
    size: str,
    live: int,
    operations: int,
    options: tuple[str, ...],
) -> None:
    if sides.preloaded.preload.is_hardened and "--malloc-touch" not in options:
        pytest.skip("it writes to blocks of no bytes, and 8 bytes to smaller ones")
    debian_packages("stress-ng")

    def work(launcher: Launcher) -> bool:
        finished = launcher.run(
            *("stress-ng", "--malloc", "2", "--verify", "--seed", "9", "--stdout"),
            *("--malloc-bytes", size, "--malloc-max", str(live)),
            *("--malloc-ops", str(operations), "--timeout", "60", "--metrics"),
            *options,
        )
        launcher.check_allocator_of("stress-ng")
        assert not re.search(r"stress-ng: (fail|error|warn)", finished.text)
        done = re.search(r"\] malloc +(\d+) ", finished.text)
        return done is not None and int(done[1]) > 0

    assert sides.agree_on(work)
