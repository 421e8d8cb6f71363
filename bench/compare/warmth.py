"""Memory that is cold to nobody."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Touches as much memory as it is told, in huge pages where there are any, and ends.
_TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
"""
# Where memory is short, it is the first to end. It ends with whoever started it.
_HOLD = f"""
open("/proc/self/oom_score_adj", "w").write("1000")
{_TOUCH}
print("held", flush=True)
sys.stdin.read()
"""
_MORE = 1.25
_PAGE_KIB = 64
_SECONDS = 120.0
_LEFT_FREE = 1 / 4
_LEAST_FREE_KIB = 4 << 20
_MOST_OF_FREE = 15 / 16
_BALLOONS = Path("/sys/bus/virtio/drivers/virtio_balloon")
_REPORTING = 5
"""The feature by which a balloon tells the host of free pages (virtio 1.2, 5.5.3)."""
_PASS_SECONDS = 2.0
_PART_OF_PASS = 1 / 16
"""Linux reports so much of what is free in one pass (mm/page_reporting.c)."""


def warm(kib: float, seconds: float = 0.0) -> None:
    """Makes pages for a process that will need about ``kib`` ready to be had.

    A virtual machine may give what has been free for some seconds back to its host (free
    page reporting, by pieces of 2 MiB and more). Whoever gets such a page first waits for
    the host, many times as long as for the page itself. Without this, what a run costs
    depends on which memory the runs before it have left. The host goes on taking pages
    while the process runs: ``seconds`` says how long that is.
    """
    pages = int(amount_kib(kib, seconds, _free_kib(), reported())) // _PAGE_KIB
    if pages == 0:
        return
    with contextlib.suppress(subprocess.SubprocessError, OSError):
        subprocess.run(
            touching(pages * _PAGE_KIB),
            check=False,
            capture_output=True,
            timeout=_SECONDS,
        )


@contextlib.contextmanager
def held() -> Iterator[int]:
    """Keeps most of the free memory meanwhile; yields how many KiB: 0 if it cannot be had.

    What a host takes within a run is a part of what is free, and ``warm`` touches that
    much before. So both are less.
    """
    kib = held_kib(_free_kib())
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLD, str(kib * 1024)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield kib if process.stdout.readline() else 0
    finally:
        process.kill()
        process.communicate()


def held_kib(free_kib: float) -> int:
    """How much to hold of what is free; none where little is."""
    held = free_kib - max(free_kib * _LEFT_FREE, _LEAST_FREE_KIB)
    return max(int(held), 0) // _PAGE_KIB * _PAGE_KIB


def amount_kib(
    kib: float, seconds: float, free_kib: float, reported_to_host: bool
) -> float:
    """How much to touch, so that ``kib`` of it are still there at the end of a run.

    Never more than what is free: the page cache stays, and with it the files of the run.
    """
    if kib <= 0:
        return 0
    passes = int(seconds / _PASS_SECONDS + 0.5) if reported_to_host else 0
    taken_kib = free_kib * (1 - (1 - _PART_OF_PASS) ** passes)
    return min(kib * _MORE + taken_kib, free_kib * _MOST_OF_FREE)


def reported(balloons: Path = _BALLOONS) -> bool:
    """Whether the kernel tells a host which pages are free."""
    features = (path.read_text() for path in balloons.glob("virtio*/features"))
    return any(bits[_REPORTING : _REPORTING + 1] == "1" for bits in features)


def touching(kib: int) -> list[str]:
    """A command that touches so much memory, whole pages of it."""
    return [sys.executable, "-I", "-S", "-c", _TOUCH, str(kib * 1024)]


def _free_kib() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemFree:"):
                return int(line.split()[1])
    return 0
