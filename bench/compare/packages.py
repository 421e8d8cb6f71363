"""Debian packages: what is installed, and installing what is missing."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


class PackageError(Exception):
    """A package cannot be had; the text says why and what to do."""


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


def install(packages: Sequence[str]) -> None:
    """Installs Debian packages, or raises PackageError with the command to type."""
    wanted = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise PackageError(f"not a Debian system; install what Debian calls: {wanted}")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise PackageError(f"not installed; as root: apt-get install {wanted}")
        command = ["sudo", "--non-interactive", *command]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["apt-get failed"])[-1]
        raise PackageError(f"cannot install {wanted}: {reason}")
