"""Debug information from the servers that DEBUGINFOD_URLS names, as elfutils' client fetches it."""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from allod.console import say

URLS = "DEBUGINFOD_URLS"
CACHE = "DEBUGINFOD_CACHE_PATH"
SECONDS = 90.0
MOST_BYTES = 1 << 31


def is_asked_for() -> bool:
    """Whether the user has named servers. Nothing is fetched otherwise."""
    return bool(os.environ.get(URLS, "").split())


@cache
def fetch(build_id: str) -> Path | None:
    """The file with the debug information of a build; None: no server has it."""
    if not build_id or not is_asked_for():
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get(CACHE) or home / "debuginfod_client") / build_id
    file = folder / "debuginfo"
    # An empty one stands for what no server had.
    if file.exists() and file.stat().st_size:
        return file
    for server in os.environ[URLS].split():
        url = f"{server.rstrip('/')}/buildid/{build_id}/debuginfo"
        if not url.startswith(("http://", "https://")):
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                say(f"fetches debug information from {server}")
                _keep(answer, file)
        except (OSError, urllib.error.URLError):
            continue
        return file
    return None


def _keep(answer: object, file: Path) -> None:
    descriptor, name = tempfile.mkstemp(dir=file.parent)
    try:
        with open(descriptor, "wb") as kept:
            size = 0
            while portion := answer.read(1 << 20):  # type: ignore[attr-defined]
                size += len(portion)
                if size > MOST_BYTES:
                    raise OSError("too large")
                kept.write(portion)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
