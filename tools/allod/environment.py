"""Parts of the private Python environment that are installed when they are first used."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from allod.console import run_logged
from allod.paths import LOGS, ROOT


def ensure_bench() -> None:
    """Installs what the benchmark's statistics and plots need."""
    requirements = ROOT / "tools" / "requirements-bench.txt"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    # In the environment itself, so that a new one starts without it.
    stamp = Path(sys.prefix) / "bench-installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    run_logged(
        "installing the packages for statistics and plots",
        [*pip, "-r", str(requirements)],
        LOGS / "pip-bench.log",
    )
    stamp.write_text(wanted)
