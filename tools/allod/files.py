"""Files that are written for a person: whole, or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from allod.console import Failure, shown


def write_whole(path: Path, content: str | bytes) -> None:
    """Replaces a file in one step. Where that fails, what was there stays, and a Failure says why.

    What is no file, such as a pipe or a device, takes the content as it is.
    """
    data = content if isinstance(content, bytes) else content.encode()
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise cannot_write(path, error) from None


def deliver(text: str, output: Path | None) -> None:
    """To a file, or to standard output."""
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text)


def cannot_write(path: Path, error: OSError) -> Failure:
    """What a person is told of a file that cannot be written."""
    return Failure(f"cannot write {shown(path)}: {error.strerror}")


def make_folder(path: Path) -> None:
    """Makes a folder for files, and those that it lies in."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make {shown(path)}: {error.strerror}") from None


def _replace(path: Path, data: bytes) -> None:
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except PermissionError:
        # A file that may be written, in a folder that may not.
        if not path.exists():
            raise
        path.write_bytes(data)
        return
    fresh = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), _mode_of(path))
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _mode_of(path: Path) -> int:
    """The mode of the file that is there, or of one that this process makes."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
