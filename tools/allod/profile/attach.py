"""The heap profile of a process that runs already."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from allod import attach, supplies
from allod.console import Failure, say
from allod.profile.model import Timeline
from allod.profile.run import check_writable, write_both
from allod.profile.served import fetch
from allod.watch import STATE, Gone, Link, library_of, process_folder

if TYPE_CHECKING:
    from allod.profile.model import Profile


PERIOD_SECONDS = 1.0


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
    before = fetch(link)
    say(f"process {process} is profiled for {seconds:g} seconds")
    moments = _wait(link, seconds)
    after = fetch(link)
    _subtract(after, before)
    after.timeline = _timeline(moments)
    return after, stem


def _wait(link: Link, seconds: float) -> list[tuple[int, int]]:
    """The bytes in use, and those ever allocated, at the beginning and after each period."""
    end = time.monotonic() + seconds
    moments = [_moment(link)]
    try:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, PERIOD_SECONDS))
            moments.append(_moment(link))
    except KeyboardInterrupt:
        say("ended early")
    return moments


def _moment(link: Link) -> tuple[int, int]:
    profile = link.ask(STATE)["profile"]
    return int(profile["live"]["bytes"]), int(profile["total"]["bytes"])


def _timeline(moments: Sequence[tuple[int, int]]) -> Timeline | None:
    _, before = moments[0]
    if len(moments) < 2:
        return None
    return Timeline(
        round(1000 * PERIOD_SECONDS),
        tuple(live for live, _ in moments[1:]),
        tuple(max(0, total - before) for _, total in moments[1:]),
    )


def _subtract(after: Profile, before: Profile) -> None:
    """Leaves of `total` what was allocated between the two."""
    after.samples -= before.samples
    known = {stack.addresses: stack.total for stack in before.stacks}
    for stack in after.stacks:
        if stack.addresses in known:
            stack.total -= known[stack.addresses]
