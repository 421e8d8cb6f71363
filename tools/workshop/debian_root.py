"""Roots of Debian releases that are newer than the machine, for programs that it does not have."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.locks import held
from workshop.packages import PackagesUnavailable, ensure_packages
from workshop.paths import LOGS, STATE

ROOTS = STATE / "roots"
DONE = ".allod-done"
"""A root in which this file names the packages is whole."""


def ensure_root(release: str, packages: Sequence[str]) -> Path:
    """The root of a release with these packages, made once for this clone.

    It is no container: whoever runs programs in it gives them what else they need, such as /proc.
    Making it takes root's rights, a package archive, and a minute or two.
    """
    root = ROOTS / release
    wanted = " ".join(sorted(packages))
    with held(ROOTS / f".{release}.lock", f"a root of Debian's {release}"):
        done = root / DONE
        if not done.exists() or done.read_text() != wanted:
            _make(release, packages, root)
            done.write_text(wanted)
    return root


def _make(release: str, packages: Sequence[str], root: Path) -> None:
    if os.geteuid() != 0:
        raise PackagesUnavailable(f"only root can make a root of Debian's {release}")
    ensure_packages(["debootstrap"])
    _remove(root)
    try:
        run_logged(
            f"making a root of Debian's {release}",
            [
                *("debootstrap", "--variant=minbase"),
                f"--include={','.join(packages)}",
                *(release, str(root)),
            ],
            LOGS / f"debootstrap-{release}.log",
        )
    except Failure as failure:
        raise PackagesUnavailable(str(failure)) from failure


def _remove(root: Path) -> None:
    """Whatever an attempt that was broken off has left, but no file system mounted in it."""
    subprocess.run(["umount", root / "proc"], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
