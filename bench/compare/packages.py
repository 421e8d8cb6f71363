"""Debian packages: what is installed, and installing what is missing."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

LOCK_SECONDS = 300
LIMIT_SECONDS = 1200.0


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
    prefix: list[str] = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise PackageError(f"not installed; as root: apt-get install {wanted}")
        prefix = ["sudo", "--non-interactive"]
    command = [*prefix, "apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"]
    install = [*command, "install", "--yes", "--no-install-recommends", *packages]
    reason = _run(install)
    if reason is not None:
        # The lists of packages may be missing, or older than the archive.
        reason = _run([*command, "update"]) or _run(install)
    if reason is not None:
        raise PackageError(f"cannot install {wanted}: {reason}")


def _run(command: list[str]) -> str | None:
    """Why the command failed, or None."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT_SECONDS:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or ["apt-get failed"])[-1]
