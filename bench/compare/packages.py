"""Debian packages: what is installed, and installing what is missing."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from workshop.packages import PackagesUnavailable, ensure_packages


def version(package: str) -> str | None:
    """The installed version, or None if the package (or dpkg) is not there."""
    if shutil.which("dpkg-query") is None:
        return None
    query = [
        "dpkg-query",
        "--show",
        "--showformat",
        "${db:Status-Status} ${Version}",
        package,
    ]
    found = subprocess.run(query, capture_output=True, text=True, check=False)
    status, _, number = found.stdout.partition(" ")
    return number if found.returncode == 0 and status == "installed" else None


def files(package: str) -> list[Path]:
    """The files of an installed package."""
    listing = subprocess.run(
        ["dpkg-query", "--listfiles", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return [Path(line) for line in listing.stdout.splitlines()]


def install(names: Sequence[str]) -> None:
    """Installs Debian packages, or raises PackagesUnavailable."""
    ensure_packages(names, by_sudo=True)


def try_to_install(names: Sequence[str], say: Callable[[str], None]) -> None:
    """The same; what fails is said."""
    try:
        install(names)
    except PackagesUnavailable as reason:
        say(str(reason))
