"""Commands that run to their end, and what they said; `./allod` among them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from workshop.paths import ROOT

ALLOD = ROOT / "allod"


def ended(
    *command: str | Path,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command, with this text on standard input; whatever its status is."""
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def allod(
    *arguments: str | Path,
    command: Path = ALLOD,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `./allod`, without any ALLOD_* option that the test run may have."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")}
    variables = {**clean, **(environment or {})}
    return ended(
        command, *arguments, directory=directory, environment=variables, given=given
    )
