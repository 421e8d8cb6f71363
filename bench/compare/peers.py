"""The allocators that are compared, and where they are found."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workshop.packages import PackagesUnavailable

from bench.compare import packages
from bench.peers import builder, recipes

SUBJECT = "allod"
LIBC = "glibc"
# The libraries of this repository, by the names of their files.
OURS = (SUBJECT, "allod-debug", "allod-hardened")
# The hardened library with some of its measures: allod-hardened+zero,guards.
WITH_MEASURES = "allod-hardened+"
# For the security suite alone: the hardened library with checked copies beside it.
WITH_COPIES = "allod-hardened-copies"
ROOT = Path(__file__).resolve().parents[2]
_MEASURES = ROOT / "src" / "settings" / "mitigations.hpp"


class PeerError(Exception):
    """A peer cannot be had; the text says why."""


@dataclass(frozen=True)
class Peer:
    """An allocator under a name; without a library it is the C library's own.

    A program under it needs the variables in its environment; LD_PRELOAD among them is
    what is preloaded behind the library.
    """

    name: str
    library: Path | None
    version: str
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def code(self) -> str:
        """The same for two that run the same code, where the version tells."""
        digest = re.search(r"sha256 \w+", self.version)
        return digest[0] if digest else self.version


@dataclass(frozen=True)
class _Packaged:
    package: str
    library: str


_PACKAGED = {
    "tcmalloc": _Packaged("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    "tbb": _Packaged("libtbbmalloc2", "libtbbmalloc_proxy.so.2"),
    # With its heap profiler, which the minimal one lacks.
    "gperftools": _Packaged("libgoogle-perftools4", "libtcmalloc.so.4"),
    # A newer one than the crates carry.
    "scudo": _Packaged(
        "libclang-rt-19-dev", f"libclang_rt.scudo_standalone-{platform.machine()}.so"
    ),
}

_RECIPES = recipes.load()

DEFAULT = (
    SUBJECT,
    LIBC,
    "mimalloc3",
    "mimalloc2",
    "jemalloc",
    "snmalloc",
    "rpmalloc",
    "tcmalloc",
    "tbb",
)
QUICK = (
    SUBJECT,
    LIBC,
    "mimalloc3",
    "mimalloc2",
    "jemalloc",
    "tcmalloc",
    "snmalloc",
)
# For their heap profilers alone: each is another build of a peer.
WITH_PROFILERS = ("jemalloc-prof", "gperftools")
KNOWN = tuple(
    dict.fromkeys(
        (*DEFAULT, *OURS, *sorted({*_PACKAGED, *_RECIPES} - {*WITH_PROFILERS}))
    )
)
# For the security suite: ours, and everybody's.
OURS_SECURED = (*OURS, WITH_COPIES)
SECURITY = (*OURS_SECURED, *(name for name in KNOWN if name not in OURS))


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


def _allod(name: str) -> Peer:
    library = ROOT / "build" / "release" / f"lib{name}.so"
    if not library.is_file():
        raise PeerError(f"{library} is missing; make it with ./allod build")
    peer = from_file(name, library)
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--tags"]
    try:
        revision = subprocess.run(describe, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return peer
    if revision.returncode != 0:
        return peer
    return Peer(peer.name, peer.library, f"{revision.stdout.strip()}, {peer.version}")


def _allod_with_copies() -> Peer:
    copies = _allod("allod-copies")
    return replace(
        _allod("allod-hardened"),
        name=WITH_COPIES,
        variables=(("LD_PRELOAD", str(copies.library)),),
    )


def measures() -> tuple[str, ...]:
    """What ALLOD_HARDENED knows: the names of all measures, and those of the levels."""
    named = re.compile(r'\{(?:Mitigation|Level)::\w+, "(\w+)"')
    return tuple(named.findall(_MEASURES.read_text()))


def is_ours(name: str) -> bool:
    """A library of this repository, which is no measure for another."""
    return name in OURS_SECURED or name.startswith(WITH_MEASURES)


def is_known(name: str) -> bool:
    """Can find() be asked for it?"""
    if not name.startswith(WITH_MEASURES):
        return name in KNOWN
    chosen = name.removeprefix(WITH_MEASURES).split(",")
    return {each.removeprefix("-") for each in chosen} <= {*measures()}


def _allod_with_measures(name: str) -> Peer:
    variable = ("ALLOD_HARDENED", name.removeprefix(WITH_MEASURES))
    return replace(_allod("allod-hardened"), name=name, variables=(variable,))


def _glibc() -> Peer:
    try:
        return Peer(LIBC, None, os.confstr("CS_GNU_LIBC_VERSION") or "unknown")
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


def _built(name: str) -> Peer:
    recipe = _RECIPES[name]
    found = builder.cached(recipe)
    if found is None:
        raise PeerError(builder.why_missing(recipe))
    variables = tuple(recipe.variables.items())
    return Peer(name, from_file(name, found.library).library, found.version, variables)


def find(name: str) -> Peer:
    """A known peer, if it is on this machine."""
    if name in OURS:
        return _allod(name)
    if name == WITH_COPIES:
        return _allod_with_copies()
    if name.startswith(WITH_MEASURES):
        return _allod_with_measures(name)
    if name == LIBC:
        return _glibc()
    return _packaged(name) if name in _PACKAGED else _built(name)


def install_missing(names: Sequence[str], say: Callable[[str], None]) -> None:
    """Installs or builds the named peers that are not there.

    What fails is said, and left out: find() tells the reason again.
    """
    for name in names:
        if name in _PACKAGED and not _is_there(name):
            packages.try_to_install([_PACKAGED[name].package], say)
    to_build = [name for name in names if name in _RECIPES and not _is_there(name)]
    if not to_build:
        return
    try:
        builder.ensure_tools()
    except PackagesUnavailable as error:
        say(f"without building {', '.join(to_build)}: {error}")
        return
    for name in to_build:
        try:
            builder.build(_RECIPES[name], say)
        except builder.BuildError as error:
            say(str(error))


def _is_there(name: str) -> bool:
    try:
        find(name)
    except PeerError:
        return False
    return True
