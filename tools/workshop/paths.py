"""Where things are in a checkout."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".allod"
BUILD = ROOT / "build"
LOGS = BUILD / "logs"


def build_dir(preset: str) -> Path:
    """The build folder of a preset."""
    return BUILD / preset


def version() -> str:
    """Allod's version, from the one place where it is written down."""
    text = (ROOT / "include" / "allod.h").read_text()
    found = re.search(r'#define ALLOD_VERSION "([0-9.]+)"', text)
    if found is None:
        raise RuntimeError("allod.h states no version")
    return found[1]
