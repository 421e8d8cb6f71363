"""Names of libraries that the loader takes from LD_PRELOAD."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from allod.console import Failure

# The loader takes the first two for ends of a name, and the third for the begin of a variable.
SPECIAL = re.compile(r"[ :$]")


def preloaded(*libraries: Path | str) -> str:
    """The value of LD_PRELOAD: these libraries, before those that it names already."""
    names = [str(plain_name(Path(library))) for library in libraries]
    return ":".join(filter(None, [*names, os.environ.get("LD_PRELOAD", "")]))


def plain_name(path: Path) -> Path:
    """The path, or that of a link to it, where the loader would not take it as it is.

    The link stays: processes that the program starts later read the same variable.
    """
    if SPECIAL.search(str(path)) is None:
        return path
    # Few paths need it, and every start would wait for it.
    import hashlib

    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    link = _own_folder() / f"{digest}-{SPECIAL.sub('_', path.name)}"
    try:
        if os.path.islink(link) and os.readlink(link) == str(path):
            return link
        fresh = link.with_name(f"{link.name}.{os.getpid()}")
        fresh.symlink_to(path)
        fresh.replace(link)
    except OSError as error:
        raise _cannot_link(link, error.strerror) from None
    return link


def _own_folder() -> Path:
    """A folder that all may read, since programs may change their user, and only this user may
    write to: whoever could would choose what programs load."""
    import tempfile

    base = Path(tempfile.gettempdir())
    if SPECIAL.search(str(base)) is not None:
        base = Path("/tmp")
    folder = base / f"allod-{os.geteuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)
        around, status = base.stat(), folder.lstat()
    except OSError as error:
        raise _cannot_link(folder, error.strerror) from None
    is_kept_by_others = around.st_uid not in (0, os.geteuid()) or (
        around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX
    )
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if is_kept_by_others or not is_own or status.st_mode & 0o022:
        raise _cannot_link(folder, "others than this user can write to it")
    return folder


def _cannot_link(place: Path, reason: str | None) -> Failure:
    return Failure(
        f"the path of the library contains a space, a colon or a dollar sign, which LD_PRELOAD"
        f" cannot name, and a link to it cannot be kept in {place}: {reason}"
    )
