"""Debian packages, and what to do where a machine cannot give them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.paths import LOGS

SERVICE_POLICY = Path("/usr/sbin/policy-rc.d")
PACKAGE_LISTS = Path("/var/lib/apt/lists")
LISTS_GOOD_FOR_SECONDS = 86400.0
LOCK_SECONDS = 300


class PackagesUnavailable(Failure):
    """The machine cannot give the packages; the message says what to install."""


@dataclass(frozen=True)
class Requirement:
    """A file or command that must be there, and the Debian package that brings it."""

    needs: str
    package: str

    def met(self) -> bool:
        """Whether the machine has it, whoever installed it."""
        if self.needs.startswith("/"):
            return os.path.exists(self.needs)
        return shutil.which(self.needs) is not None


def ensure_requirements(requirements: Sequence[Requirement]) -> None:
    """Installs the packages of whatever is not there."""
    missing = [wanted.package for wanted in requirements if not wanted.met()]
    if missing:
        ensure_packages(missing)


def ensure_packages(names: Sequence[str], *, by_sudo: bool = False) -> None:
    """Installs those packages that are missing, without starting any service.

    With `by_sudo`, who is not root asks sudo, which must need no password; packages with services
    start them then.
    """
    missing = missing_packages(names)
    if not missing:
        return
    wanted = " ".join(missing)
    if shutil.which("apt-get") is None:
        raise PackagesUnavailable(
            f"please install the programs of these Debian packages: {wanted}"
        )
    is_root = os.geteuid() == 0
    if not is_root and not (by_sudo and shutil.which("sudo")):
        raise PackagesUnavailable(
            f"missing Debian packages; install them with: sudo apt-get install {wanted}"
        )
    with services_stay_down() if is_root else nullcontext():
        if not _lists_are_fresh():
            _refresh_lists()
        try:
            _install(missing)
        except Failure:
            # The lists may name versions that the archive has replaced since.
            _refresh_lists()
            _install(missing)


def missing_packages(names: Sequence[str]) -> list[str]:
    """Those of the packages that are not installed."""
    if shutil.which("dpkg-query") is None:
        return list(names)
    answer = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    states = dict(line.split(" ", 1) for line in answer.stdout.splitlines())
    return [name for name in names if states.get(name) != "installed"]


@contextmanager
def services_stay_down() -> Iterator[None]:
    """Forbids packages to start services, unless the machine has a policy of its own."""
    if SERVICE_POLICY.exists():
        yield
        return
    SERVICE_POLICY.write_text("#!/bin/sh\nexit 101\n")
    SERVICE_POLICY.chmod(0o755)
    try:
        yield
    finally:
        SERVICE_POLICY.unlink(missing_ok=True)


def _lists_are_fresh() -> bool:
    stamps = [entry.stat().st_mtime for entry in PACKAGE_LISTS.glob("*_Packages*")]
    return bool(stamps) and time.time() - max(stamps) < LISTS_GOOD_FOR_SECONDS


@cache
def _refresh_lists() -> None:
    """At most once in a process."""
    _apt_get("refreshing the package lists", "update")


def _install(names: Sequence[str]) -> None:
    title = f"installing {' '.join(names)}"
    _apt_get(title, "install", "--yes", "--no-install-recommends", *names)


def _apt_get(title: str, *arguments: str) -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    command = [*sudo, "apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"]
    try:
        run_logged(
            title,
            [*command, *arguments],
            LOGS / f"apt-{arguments[0]}.log",
            environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
    except Failure as failure:
        raise PackagesUnavailable(str(failure)) from failure
