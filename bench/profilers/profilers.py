"""The heap profilers, each beside the same allocator without it."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.compare import packages, peers
from bench.compare.peers import Peer, PeerError

INTERVAL = 512 << 10
SAMPLES = f"a sample for {INTERVAL >> 10} KiB"
EVERY = "every allocation"
# Of heaptrack, what the program has inside.
HEAPTRACK = "libheaptrack"


@dataclass(frozen=True)
class Profiler:
    """``off`` is the allocator alone, ``on`` the same with its profiler.

    ``starter`` is what a Python program is started with in place of the interpreter, for
    a profiler that sees nothing but Python.
    """

    name: str
    keeps: str
    off: Peer
    on: Peer
    starter: tuple[str, ...] = ()


def _switched(
    name: str, peer: Peer, keeps: str = SAMPLES, **variables: str | int
) -> Profiler:
    """A profiler that is part of the allocator and that variables switch on."""
    given = tuple((key, str(value)) for key, value in variables.items())
    return Profiler(name, keeps, peer, replace(peer, variables=peer.variables + given))


def _allod(_: Path) -> Profiler:
    return _switched("Allod", peers.find("allod"), ALLOD_PROFILE=INTERVAL)


def _jemalloc(_: Path) -> Profiler:
    # jemalloc wants the logarithm, and has to be told not to write when it ends.
    options = f"prof:true,prof_final:false,lg_prof_sample:{INTERVAL.bit_length() - 1}"
    return _switched("jemalloc", peers.find("jemalloc-prof"), MALLOC_CONF=options)


def _gperftools(_: Path) -> Profiler:
    peer = peers.find("gperftools")
    return _switched("gperftools, sampling", peer, TCMALLOC_SAMPLE_PARAMETER=INTERVAL)


def _gperftools_heap(folder: Path) -> Profiler:
    # An interval of 0 is none: it writes at the end and not in between.
    return _switched(
        "gperftools, heap profiler",
        peers.find("gperftools"),
        EVERY,
        HEAPPROFILE=str(folder / "gperftools"),
        HEAP_PROFILE_ALLOCATION_INTERVAL=0,
        HEAP_PROFILE_INUSE_INTERVAL=0,
    )


def _heaptrack(folder: Path) -> Profiler:
    glibc = peers.find("glibc")
    wanted = "libheaptrack_preload.so"
    found = [path for path in packages.files(HEAPTRACK) if path.name == wanted]
    if not found:
        raise PeerError(f"the package {HEAPTRACK} is not installed")
    output = ("DUMP_HEAPTRACK_OUTPUT", str(folder / "heaptrack"))
    on = replace(
        peers.from_file("heaptrack", found[0]), variables=(*glibc.variables, output)
    )
    return Profiler("heaptrack", EVERY, glibc, on)


def _memray(folder: Path) -> Profiler:
    if importlib.util.find_spec("memray") is None:
        raise PeerError("the Python package memray is not installed")
    glibc = peers.find("glibc")
    options = ("run", "--native", "--force", "--quiet", "--output")
    starter = (sys.executable, "-m", "memray", *options, str(folder / "memray"))
    return Profiler("memray, native", EVERY, glibc, glibc, starter)


_ALL: tuple[Callable[[Path], Profiler], ...] = (
    *(_allod, _jemalloc, _gperftools, _gperftools_heap, _heaptrack, _memray),
)


def install_missing(say: Callable[[str], None]) -> None:
    """What fails is said, and left out."""
    peers.install_missing(peers.WITH_PROFILERS, say)
    packages.try_to_install([HEAPTRACK], say)


def find(folder: Path) -> tuple[list[Profiler], list[str]]:
    """Those on this machine, which write into the folder, and a note on each other."""
    found: list[Profiler] = []
    notes: list[str] = []
    for make in _ALL:
        try:
            found.append(make(folder))
        except PeerError as error:
            notes.append(f"{make.__name__.strip('_')} is left out: {error}")
    return found, notes
