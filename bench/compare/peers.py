"""The allocators that are compared, and where they are found."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compare import packages

SUBJECT = "allod"
ROOT = Path(__file__).resolve().parents[2]


class PeerError(Exception):
    """A peer cannot be had; the text says why."""


@dataclass(frozen=True)
class Peer:
    """An allocator under a name; without a library it is the C library's own."""

    name: str
    library: Path | None
    version: str


@dataclass(frozen=True)
class _Packaged:
    package: str
    library: str


_PACKAGED = {
    "mimalloc": _Packaged("libmimalloc2.0", "libmimalloc.so.2.0"),
    "jemalloc": _Packaged("libjemalloc2", "libjemalloc.so.2"),
    "tcmalloc": _Packaged("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
}

KNOWN = (SUBJECT, "glibc", *_PACKAGED)


def from_file(name: str, path: Path) -> Peer:
    """A peer from any shared library, identified by its contents."""
    library = path.resolve()
    if not library.is_file():
        raise PeerError(f"{path} is not a file")
    if any(character in str(library) for character in ": "):
        raise PeerError(
            f"{library}: the loader cannot preload a path with a colon or a space"
        )
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    return Peer(name, library, f"sha256 {digest[:12]}")


def _allod() -> Peer:
    library = ROOT / "build" / "release" / "liballod.so"
    if not library.is_file():
        raise PeerError(f"{library} is missing; make it with ./allod build")
    peer = from_file(SUBJECT, library)
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--tags"]
    try:
        revision = subprocess.run(describe, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return peer
    if revision.returncode != 0:
        return peer
    return Peer(peer.name, peer.library, f"{revision.stdout.strip()}, {peer.version}")


def _glibc() -> Peer:
    try:
        return Peer("glibc", None, os.confstr("CS_GNU_LIBC_VERSION") or "unknown")
    except (ValueError, OSError) as error:
        raise PeerError("the C library of this system is not glibc") from error


def _packaged(name: str) -> Peer:
    wanted = _PACKAGED[name]
    number = packages.version(wanted.package)
    if number is None:
        raise PeerError(f"the package {wanted.package} is not installed")
    for path in packages.files(wanted.package):
        if path.name == wanted.library:
            return Peer(name, path.resolve(), f"{wanted.package} {number}")
    raise PeerError(f"the package {wanted.package} holds no {wanted.library}")


def find(name: str) -> Peer:
    """A known peer, if it is on this machine."""
    if name == SUBJECT:
        return _allod()
    return _glibc() if name == "glibc" else _packaged(name)


def install_missing(names: Sequence[str], say: Callable[[str], None]) -> None:
    """Installs the packages of the named peers; find() sees which of them failed."""
    missing = [
        _PACKAGED[name].package
        for name in names
        if name in _PACKAGED and packages.version(_PACKAGED[name].package) is None
    ]
    for package in missing:
        say(f"installing {package}")
        try:
            packages.install([package])
        except packages.PackageError as error:
            say(str(error))
