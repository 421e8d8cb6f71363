"""The heap of this process, for programs that run on Allod: `allod run -- python3 PROGRAM`."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from allod import supplies
from allod.console import Failure
from allod.elf import is_musl_here

VARIANTS = ("", "debug", "hardened", "prefixed", "copies", "ends", "record", "live")
_Write = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def library(variant: str = "") -> str:
    """The path of the library, or of a variant of it, such as "hardened"."""
    if variant not in VARIANTS:
        raise ValueError(f"{variant!r} is none of {', '.join(filter(None, VARIANTS))}")
    name = f"liballod-{variant}.so" if variant else "liballod.so"
    return str(supplies.current().library(name, musl=is_musl_here()))


class Heap(dict[str, Any]):
    """Statistics of the heap, as they were when this was made, and what may be asked of the heap.

    RuntimeError: the process does not run on Allod.
    """

    def __init__(self) -> None:
        # What is preloaded is among the symbols of the process.
        self._functions = ctypes.CDLL(None)
        try:
            write = self._functions.allod_stats_json
        except AttributeError:
            raise RuntimeError(
                "this process does not run on Allod; start it with: allod run -- ..."
            ) from None
        pieces: list[bytes] = []
        take = _Write(
            lambda text, length, _: pieces.append(ctypes.string_at(text, length))
        )
        write(take, None)
        super().__init__(json.loads(b"".join(pieces)))

    def start_profile(self, interval: int = 0) -> None:
        """Samples an allocation for so many bytes on average; 0: 512 KiB. MemoryError: none."""
        start = self._functions.allod_profile_start
        start.argtypes = [ctypes.c_size_t]
        if start(interval) != 0:
            raise MemoryError("the profile cannot be started")

    def stop_profile(self) -> None:
        """Takes no further samples. Those that are live stay known."""
        self._functions.allod_profile_stop()

    def write_profile(self, path: str | os.PathLike[str]) -> None:
        """Writes what was sampled to a file, which `allod diff` reads. OSError: it cannot be."""
        write = self._functions.allod_profile_write
        pieces: list[bytes] = []
        take = _Write(
            lambda text, length, _: pieces.append(ctypes.string_at(text, length))
        )
        write.restype = None
        write(take, None)
        Path(path).write_bytes(b"".join(pieces))

    def open_page(self, address: str = "127.0.0.1", port: int = 0) -> str:
        """Serves the live page, and returns its link; that of a page that is served already.
        OSError: it cannot be served there."""
        live = ctypes.CDLL(library("live"), mode=ctypes.RTLD_GLOBAL)
        live.allod_live_link.restype = ctypes.c_char_p
        live.allod_live_start.argtypes = [ctypes.c_char_p, ctypes.c_uint16]
        link: bytes | None = live.allod_live_link()
        if link is None:
            error = live.allod_live_start(address.encode(), port)
            if error != 0:
                raise OSError(error, os.strerror(error), f"{address}:{port}")
            link = live.allod_live_link()
        if link is None:
            raise Failure("the live page has no link")
        return link.decode()


def heap() -> Heap:
    """The heap of this process. RuntimeError: it does not run on Allod."""
    return Heap()
