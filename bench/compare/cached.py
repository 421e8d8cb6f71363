"""Libraries as the system has them at hand: in memory, a page at a time or in larger pieces."""

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def copy_by_pages(library: Path, folder: Path) -> Path:
    """A copy that lies in memory page by page.

    A fault maps what is around it in memory, up to 64 KiB; but Linux 6.18 at least the whole piece
    in which the page lies there, and these are as large as the writes that made the file. So the
    same library would be resident in part or as a whole, by how it was copied or linked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / library.name
    with library.open("rb") as source, copy.open("wb", buffering=0) as target:
        while page := source.read(PAGE):
            target.write(page)
    copy.chmod(0o755)
    return copy
