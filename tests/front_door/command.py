"""`./allod` as a person or a script runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from workshop.paths import ROOT

ALLOD = ROOT / "allod"


def allod(
    *arguments: str | Path,
    command: Path = ALLOD,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `./allod`, without any ALLOD_* option that the test run may have."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")}
    return subprocess.run(
        [str(command), *map(str, arguments)],
        cwd=directory,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
