"""Programs of an older Debian release, whose glibc has libdl and libpthread beside libc.so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from workshop.build import ensure_live_built
from workshop.debian_root import OLDEST, ensure_root
from workshop.packages import PackagesUnavailable

from .launcher import DebianPackages

pytestmark = pytest.mark.slow

LIBRARIES = ("liballod.so", "liballod-debug.so", "liballod-hardened.so")
# Threads that allocate and end, by turns: their memory must find its way back.
THREADS = """
import threading
for _ in range(200):
    thread = threading.Thread(target=lambda: [bytearray(i) for i in range(2000)])
    thread.start()
    thread.join()
print("threads done")
"""


@pytest.fixture(scope="module")
def root(debian_packages: DebianPackages) -> Path:
    """The root of the release, or the test is skipped."""
    debian_packages("bubblewrap")
    try:
        return ensure_root(OLDEST)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


def run(
    root: Path, libraries: list[Path], *command: str, **options: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in the root, with libraries preloaded."""
    mounts = [word for each in libraries for word in ("--ro-bind", each, each)]
    preloaded = ":".join(map(str, libraries))
    variables = {"LD_PRELOAD": preloaded, **options}
    settings = [word for pair in variables.items() for word in ("--setenv", *pair)]
    return subprocess.run(
        [
            *("bwrap", "--bind", root, "/", "--proc", "/proc", "--dev", "/dev"),
            *("--tmpfs", "/tmp", *mounts, "--clearenv", *settings, *command),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    "command, output",
    [
        # Without libdl and libpthread, and with them.
        (("/bin/true",), ""),
        (("/usr/bin/perl", "-e", "print 'perl'"), "perl"),
        (("/usr/bin/python3", "-c", THREADS), "threads done\n"),
    ],
    ids=["true", "perl", "threads"],
)
def test_programs_run(
    root: Path, build_dir: Path, name: str, command: tuple[str, ...], output: str
) -> None:
    done = run(root, [build_dir / name], *command, ALLOD_VERBOSE="1")
    assert (done.returncode, done.stdout) == (0, output)
    assert "serves process" in done.stderr


def test_ended_threads_leave_no_memory_behind(root: Path, build_dir: Path) -> None:
    done = run(
        root,
        [build_dir / "liballod.so"],
        *("/usr/bin/python3", "-c", THREADS),
        ALLOD_SHOW_STATS="json",
    )
    assert done.returncode == 0
    assert '"threads"' in done.stderr or '"domains"' in done.stderr


def test_threads_share_caches_of_processors(root: Path, build_dir: Path) -> None:
    """This C library registers no thread with the kernel for them."""
    done = run(
        root,
        [build_dir / "liballod.so"],
        *("/usr/bin/python3", "-c", THREADS),
        ALLOD_SHOW_STATS="json",
        ALLOD_CACHES="processor",
    )
    assert (done.returncode, done.stdout) == (0, "threads done\n")
    named = {int(thread) for thread in re.findall(r'"thread": ?(\d+)', done.stderr)}
    assert named <= {0}, "a thread has a domain, as without such caches"
    assert re.search(r'"caches": ?[1-9]', done.stderr), done.stderr


def test_leaks_are_found_and_named(root: Path, build_dir: Path) -> None:
    done = run(
        root,
        [build_dir / "liballod.so"],
        *("/usr/bin/perl", "-e", "1"),
        ALLOD_LEAKS="1",
    )
    assert done.returncode == 0
    assert "no search for leaks" not in done.stderr


def test_the_recorder_records(root: Path, build_dir: Path) -> None:
    script = "LIBALLOD_RECORD=/tmp/trace /bin/true; wc -c < /tmp/trace"
    done = run(root, [build_dir / "liballod-record.so"], "/bin/sh", "-c", script)
    assert done.returncode == 0
    assert int(done.stdout) > 0


def test_the_live_page_is_served(root: Path, build_dir: Path) -> None:
    libraries = [ensure_live_built(), build_dir / "liballod.so"]
    done = run(root, libraries, "/bin/true", ALLOD_LIVE="127.0.0.1:0")
    assert done.returncode == 0
    assert "live page of process" in done.stderr
