"""The heap profile of a process that runs already."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from allod import attach, supplies
from allod.console import Failure, say
from allod.profile.run import check_writable, write_both
from allod.watch import STATE, Gone, Link, library_of, process_folder

if TYPE_CHECKING:
    from allod.profile.model import Profile


def profile_running(
    process: int, seconds: float, output: Path | None, interval: int
) -> None:
    """Writes what the process allocated in so many seconds, and what it held at their end.

    An interrupt ends them early. The process is left as it was found.
    """
    library_of(process_folder(process))
    supplies.current().python_packages("profiles")
    served = attach.serves(process)
    link = attach.attached(process)
    samples = attach.sample(link, interval)
    try:
        profile, stem = _watched(process, link, seconds, output)
    except Gone:
        raise Failure(f"process {process} has ended") from None
    finally:
        with suppress(Failure, Gone):
            if not served:
                attach.close(process)
            elif samples:
                attach.stop_samples(link)
    write_both(profile, stem, "")


def _watched(
    process: int, link: Link, seconds: float, output: Path | None
) -> tuple[Profile, Path]:
    state = link.ask(STATE)
    stem = (output or Path(f"{state['process']['name']}.{process}")).absolute()
    check_writable(stem)
    before = _profile(link)
    say(f"process {process} is profiled for {seconds:g} seconds")
    _wait(link, seconds)
    after = _profile(link)
    _subtract(after, before)
    return after, stem


def _wait(link: Link, seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            link.ask(STATE)
    except KeyboardInterrupt:
        say("ended early")


def _profile(link: Link) -> Profile:
    from allod.profile import pprof

    with tempfile.NamedTemporaryFile(prefix="allod-profile-") as file:
        file.write(link.fetch("/debug/pprof/heap"))
        file.flush()
        profile = pprof.read(Path(file.name))
    state = link.ask(STATE)
    profile.samples = int(state["profile"]["total_samples"])
    return profile


def _subtract(after: Profile, before: Profile) -> None:
    """Leaves of `total` what was allocated between the two."""
    after.samples -= before.samples
    known = {stack.addresses: stack.total for stack in before.stacks}
    for stack in after.stacks:
        if stack.addresses in known:
            stack.total -= known[stack.addresses]
