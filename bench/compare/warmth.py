"""Memory that is cold to nobody."""

import contextlib
import subprocess
import sys
from pathlib import Path

# Touches as much memory as it is told, in huge pages where there are any, and ends.
_TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
"""
_MORE = 1.25
_PAGE_KIB = 64
_SECONDS = 120.0


def warm(kib: float) -> None:
    """Makes pages for a process that will need about ``kib`` ready to be had.

    A virtual machine may give what has been free for some seconds back to its host (free
    page reporting, by pieces of 2 MiB and more). Whoever gets such a page first waits for
    the host, many times as long as for the page itself. Without this, what a run costs
    depends on which memory the runs before it have left.
    """
    pages = int(min(kib * _MORE, _available_kib() / 2)) // _PAGE_KIB
    if pages == 0:
        return
    with contextlib.suppress(subprocess.SubprocessError, OSError):
        subprocess.run(
            touching(pages * _PAGE_KIB),
            check=False,
            capture_output=True,
            timeout=_SECONDS,
        )


def touching(kib: int) -> list[str]:
    """A command that touches so much memory, whole pages of it."""
    return [sys.executable, "-I", "-S", "-c", _TOUCH, str(kib * 1024)]


def _available_kib() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1])
    return 0
