"""The heap profile of a process that serves a live page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from allod.console import Failure
from allod.watch import STATE, Gone, Link, find

if TYPE_CHECKING:
    from allod.profile.model import Profile


def fetch(link: Link) -> Profile:
    """As it is now; Gone if the process has ended."""
    from allod.profile import pprof

    with tempfile.NamedTemporaryFile(prefix="allod-profile-") as file:
        file.write(link.fetch("/debug/pprof/heap"))
        file.flush()
        profile = pprof.read(Path(file.name))
    state = link.ask(STATE)
    profile.samples = int(state["profile"]["total_samples"])
    return profile


def profile_of(target: str) -> Profile:
    """The same by process id or link, for a person."""
    try:
        profile = fetch(find([target])[0])
    except Gone as reason:
        raise Failure(str(reason)) from None
    if profile.samples == 0:
        raise Failure("the process has taken no samples yet")
    return profile
