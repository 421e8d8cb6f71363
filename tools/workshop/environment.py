"""Parts of the private Python environment that are installed when they are first used."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.locks import held
from workshop.paths import LOGS, ROOT, STATE


def ensure_bench() -> None:
    """Installs what the benchmark's statistics and plots need."""
    _ensure("bench", "statistics and plots")


def ensure_profilers() -> None:
    """Installs the profilers that are Python packages."""
    _ensure("profilers", "other profilers")


def ensure_programs() -> None:
    """Installs the programs to be measured that are Python packages."""
    _ensure("programs", "programs to be measured")


def ensure_profile() -> None:
    """Installs what heap profiles need."""
    _ensure("profile", "heap profiles")


def ensure_browser() -> None:
    """Installs what drives a browser in tests."""
    _ensure("browser", "a browser")


def ensure_collector() -> None:
    """Installs what reads OpenTelemetry's messages in tests."""
    _ensure("collector", "a collector")


def ensure_zig() -> None:
    """Installs the compiler for macOS and FreeBSD."""
    _ensure("zig", "macOS and FreeBSD")


def _ensure(name: str, purpose: str) -> None:
    requirements = ROOT / "tools" / f"requirements-{name}.txt"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    # In the environment itself, so that a new one starts without it.
    environment = STATE / "venv"
    stamp = environment / f"{name}-installed"

    def is_there() -> bool:
        return stamp.exists() and stamp.read_text() == wanted

    if is_there():
        return
    if not os.path.samefile(sys.prefix, environment):
        raise Failure(
            f"the packages for {purpose} are not installed in {environment}, which belongs to"
            " another user"
        )
    with held(STATE / f".{name}.lock", f"an installation of packages for {purpose}"):
        if not is_there():
            _install(requirements, purpose, LOGS / f"pip-{name}.log")
            stamp.write_text(wanted)


def _install(requirements: Path, purpose: str, log: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    run_logged(
        f"installing the packages for {purpose}",
        # Most files are never imported; what is, Python compiles then.
        [*pip, "--no-compile", "-r", str(requirements)],
        log,
    )
