"""Opens the live page of a process that already runs on Allod, and closes it again."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from allod import supplies
from allod.console import Failure
from allod.run import is_for_musl
from allod.watch import STATE, Gone, Link, library_of, links_of, process_folder

# As src/attach/attach.hpp has them.
SIGNAL = signal.SIGURG
REQUEST = 0x616C6C64
# A request that comes at a bad moment is dropped, so it is repeated.
ASK_SECONDS = 5.0
PAUSE_SECONDS = 0.02
# Beyond this, the server is not about to end.
CLOSE_SECONDS = 10.0
GDB_SECONDS = 60.0
USUAL_INTERVAL = 512 << 10
LIVE = "liballod-live.so"


def attached(process: int) -> Link:
    """The page of a process, which serves one from now on."""
    folder = process_folder(process)
    return _link_of(folder) or _open(folder, process)


def sample(link: Link, interval: int = USUAL_INTERVAL) -> bool:
    """Has the process take samples; false if it did before."""
    try:
        if link.ask(STATE)["profile"]["interval"] != 0:
            return False
        link.act(f"/api/sampling?interval={interval}")
    except Gone as reason:
        raise Failure(str(reason)) from None
    return True


def stop_samples(link: Link) -> None:
    """Has the process take none any more."""
    link.act("/api/sampling?interval=0")


def serves(process: int) -> bool:
    """Whether the process has a page already."""
    return _link_of(process_folder(process)) is not None


def close(process: int) -> None:
    """Ends the page, and waits until it has ended. Samples that were taken since it was opened are
    taken no more."""
    folder = process_folder(process)
    link = _link_of(folder)
    if link is None:
        raise Failure(f"process {process} serves no live page")
    try:
        link.act("/api/close")
    except Gone as reason:
        raise Failure(str(reason)) from None
    end = time.monotonic() + CLOSE_SECONDS
    while _link_of(folder) is not None and time.monotonic() < end:
        time.sleep(PAUSE_SECONDS)


def _link_of(folder: Path) -> Link | None:
    try:
        return next(iter(links_of(folder)), None)
    except PermissionError:
        raise Failure(
            f"process {folder.name} belongs to another user, or has changed its rights"
        ) from None


def _open(folder: Path, process: int) -> Link:
    library = library_of(folder)
    with suppress(Failure):
        # In a clone, this builds what lies beside the library.
        supplies.current().live_library(musl=is_for_musl(folder / "exe"))
    live = library.with_name(LIVE)
    if not (folder / "root" / str(live).lstrip("/")).is_file():
        raise Failure(f"process {process} would need {live}, which is not there")
    if _takes_requests(folder) and (link := _ask(folder, process)) is not None:
        return link
    return _open_by_debugger(folder, process, live)


def _takes_requests(folder: Path) -> bool:
    """Whether it handles the signal, whose default is to be ignored."""
    status = (folder / "status").read_text()
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (SIGNAL - 1) & 1)


def _ask(folder: Path, process: int) -> Link | None:
    end = time.monotonic() + ASK_SECONDS
    while time.monotonic() < end:
        try:
            _send_request(process)
        except OSError as error:
            raise Failure(
                f"process {process} cannot be asked: {error.strerror}"
            ) from None
        # The server needs a moment to listen.
        for _ in range(5):
            time.sleep(PAUSE_SECONDS)
            if (link := _link_of(folder)) is not None:
                return link
    return None


def _send_request(process: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    if libc.sigqueue(process, SIGNAL, REQUEST) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _open_by_debugger(folder: Path, process: int, live: Path) -> Link:
    gdb = shutil.which("gdb")
    if gdb is None:
        raise Failure(
            f"process {process} takes no requests; install gdb, or start it with allod run --live"
        )
    calls = (
        f'print ((void* (*)(const char*, int)) dlopen)("{live}", 2)',
        "print ((int (*)(const char*, unsigned short)) allod_live_start)(0, 0)",
    )
    commands = [word for call in calls for word in ("-ex", call)]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [gdb, "-nx", "-batch", "-p", str(process), *commands],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=GDB_SECONDS,
            check=False,
        )
    if (link := _link_of(folder)) is None:
        raise Failure(
            f"process {process} takes no requests, and gdb cannot open its page"
        )
    return link
