"""What stays resident on a machine with many processors: as much as on one with few."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from workshop.packages import PackagesUnavailable

from cores.machine import X86_64, Run, boot, ensure_kernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="emulates x86-64 with its own libraries"
    ),
]

PROCESSORS = 64
KIB_IN_MIB = 1024
LARGEST = 4 << 20
DEFAULT = {"LD_PRELOAD": "/liballod.so", "ALLOD_CACHES": "mixed"}
PROCESSOR = {**DEFAULT, "ALLOD_CACHES": "processor"}
HARDENED = {**DEFAULT, "LD_PRELOAD": "/liballod-hardened.so"}
_SAID = re.compile(r"^peak (\d+) rest (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Budget:
    """A program, and how many MiB may be resident at its peak, and when it rests."""

    name: str
    run: Run
    peak: int
    rest: int


BUDGETS = [
    Budget(name, Run(f"cores/rest {program}", variables), peak, rest)
    for name, program, variables, peak, rest in (
        ("visit", f"visit {PROCESSORS} {LARGEST}", DEFAULT, 64, 12),
        ("visit-processor", f"visit {PROCESSORS} {LARGEST}", PROCESSOR, 96, 12),
        ("visit-hardened", f"visit {PROCESSORS} {LARGEST}", HARDENED, 96, 24),
        ("own", "own 64 1500", DEFAULT, 40, 12),
        ("pass", "pass 64 1500", DEFAULT, 60, 12),
        ("idle", "idle 200 400", DEFAULT, 10, 10),
        ("idle-hardened", "idle 200 400", HARDENED, 20, 20),
    )
]


def test_resident(build_dir: Path, tmp_path: Path) -> None:
    """No program has more resident than its budget, and blocks keep their contents.

    One test, as the machine takes longer to start than most of the programs to run.
    """
    try:
        ensure_kernel(X86_64)
    except PackagesUnavailable as unavailable:
        pytest.skip(str(unavailable))
    libraries = [build_dir / Path(b["LD_PRELOAD"]).name for b in (DEFAULT, HARDENED)]
    runs = [budget.run for budget in BUDGETS]
    outputs = boot(X86_64, PROCESSORS, runs, libraries, tmp_path)
    over = []
    for budget, output in zip(BUDGETS, outputs, strict=True):
        found = _SAID.search(output)
        assert found is not None, output
        peak, rest = (int(kib) / KIB_IN_MIB for kib in found.groups())
        if peak > budget.peak or rest > budget.rest:
            over.append(f"{budget.name}: {peak:.1f} MiB at its peak, {rest:.1f} later")
    assert not over
