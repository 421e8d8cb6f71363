"""A whole machine of this kind, emulated with a kernel: what single programs do not have there."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from cores.machine import ARM64, Run, boot, ensure_kernel
from workshop.build import PRESETS, ensure_built
from workshop.packages import PackagesUnavailable, ensure_packages

from arm64.emulator import LIBRARY, PACKAGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() != "x86_64",
        reason="for machines of another kind; the other groups test this one",
    ),
]

PROCESSORS = 2
NODES = 1
VARIABLES = {"LD_PRELOAD": "/liballod.so", "TEST_LIBRARY": "/liballod.so"}
# In the second half, the C library registers no thread for sequences.
TUNED = {**VARIABLES, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
SEQUENCES = "traps/sequences something_else_happens_at_each_instruction"


def test_sequences(tmp_path: Path) -> None:
    """The kernel restarts each sequence, whatever happens at any of its instructions."""
    try:
        ensure_packages(PACKAGES)
        ensure_kernel(ARM64)
    except PackagesUnavailable as unavailable:
        pytest.skip(str(unavailable))
    ensure_built(PRESETS["arm64"], tests=True)
    runs = [Run(SEQUENCES, variables) for variables in (VARIABLES, TUNED)]
    boot(ARM64, PROCESSORS, NODES, runs, [LIBRARY], tmp_path)
