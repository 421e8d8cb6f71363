"""Roots of Debian releases that are newer or older than the machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.locks import held
from workshop.packages import PackagesUnavailable, ensure_packages
from workshop.paths import LOGS, STATE

ROOTS = STATE / "roots"
DONE = ".allod-done"
"""A root in which this file names the packages is whole."""
STABLE = "trixie"
OLDEST = "bullseye"
"""The oldest release that the archive has."""
PACKAGES = {
    STABLE: (
        *("python3", "libpython3.13-testsuite", "man-db"),
        # What the package of the command depends on.
        *("python3-click", "python3-rich", "python3-pyelftools", "python3-protobuf"),
        # Installs packages of rpm there.
        "rpm",
    ),
    OLDEST: ("python3", "perl-base"),
}
"""What the root of a release has, for all who use it."""


def ensure_root(release: str) -> Path:
    """The root of a release, made once for this clone.

    It is no container: whoever runs programs in it gives them what else they need, such as /proc.
    Making it takes root's rights, a package archive, and half a minute.
    """
    root = ROOTS / release
    wanted = " ".join(sorted(PACKAGES[release]))
    with held(ROOTS / f".{release}.lock", f"a root of Debian's {release}"):
        done = root / DONE
        if not done.exists() or done.read_text() != wanted:
            _make(release, root)
            done.write_text(wanted)
    return root


def _make(release: str, root: Path) -> None:
    if os.geteuid() != 0:
        raise PackagesUnavailable(f"only root can make a root of Debian's {release}")
    # Half the time of debootstrap.
    ensure_packages(["mmdebstrap"])
    _remove(root)
    try:
        run_logged(
            f"making a root of Debian's {release}",
            [
                *("mmdebstrap", "--mode=root", "--variant=minbase"),
                f"--include={','.join(PACKAGES[release])}",
                *(release, str(root)),
            ],
            LOGS / f"root-{release}.log",
        )
    except Failure as failure:
        raise PackagesUnavailable(str(failure)) from failure


def _remove(root: Path) -> None:
    """Whatever an attempt that was broken off has left, but no file system mounted in it."""
    subprocess.run(["umount", root / "proc"], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
