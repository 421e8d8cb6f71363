"""The allocators of bench/compare by the names that people give them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allod.console import Failure, did_you_mean, say
from workshop.build import PRESETS, ensure_built
from workshop.paths import ROOT

if TYPE_CHECKING:
    from bench.compare.peers import Peer


def find_allocator(given: str) -> Peer:
    """The allocator of NAME or NAME=LIBRARY; installs or builds a known one if need be."""
    sys.path.insert(0, str(ROOT))
    from bench.compare import peers

    name, equals, library = given.partition("=")
    if equals and not (name and library):
        raise Failure(f"'{given}' should be NAME=/PATH/LIBRARY.so", 2)
    if not equals and name not in peers.KNOWN:
        near, known = did_you_mean(name, peers.KNOWN), ", ".join(peers.KNOWN)
        raise Failure(
            f"there is no allocator {name}{near}; known are {known}; others: NAME=LIBRARY",
            2,
        )
    try:
        if equals:
            return peers.from_file(name, Path(library))
        if name == peers.SUBJECT:
            ensure_built(PRESETS["release"])
        else:
            peers.install_missing([name], say)
        return peers.find(name)
    except peers.PeerError as error:
        raise Failure(str(error)) from None
