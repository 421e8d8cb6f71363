"""Where things are in a checkout."""

from __future__ import annotations

import os
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
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"project\(allod\s+VERSION\s+([0-9.]+)", text)
    if found is None:
        raise RuntimeError("CMakeLists.txt states no version")
    return found[1]


def shown(path: Path) -> str:
    """A path as a person in the current folder would write it, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
