"""Libraries as the system has them at hand: in memory, a page at a time or in larger pieces."""

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


# How a file may have come into memory: written in pieces of so many bytes; 0: read from disk.
WAYS = (PAGE, 1 << 17, 1 << 30, 0)


def copy_by_pages(library: Path, folder: Path) -> Path:
    """A copy that lies in memory page by page; see copy_in_pieces."""
    return copy_in_pieces(library, folder, PAGE)


def copy_in_pieces(library: Path, folder: Path, piece: int) -> Path:
    """A copy that was written in pieces of so many bytes; 0: that is read from disk when needed.

    A fault maps what is around it in memory, up to 64 KiB; but Linux 6.18 at least the whole piece
    in which the page lies there, and these are as large as the writes that made the file. So the
    same library would be resident in part or as a whole, by how it was copied or linked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / library.name
    with library.open("rb") as source, copy.open("wb", buffering=0) as target:
        while data := source.read(piece or PAGE):
            target.write(data)
        if piece == 0:
            os.fsync(target.fileno())
            os.posix_fadvise(target.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    copy.chmod(0o755)
    return copy
