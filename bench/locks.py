"""One process at a time, for what several of them may want to build."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, say: Callable[[str], None], what: str) -> Iterator[None]:
    """Holds the lock of a file, which is made where it is missing; says when it waits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that builds {what}")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
