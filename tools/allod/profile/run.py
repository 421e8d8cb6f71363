"""Runs a program with its heap profile, and writes what came of it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allod import supplies
from allod.child import run_to_end
from allod.console import Failure, say, shown
from allod.preload import preloaded
from allod.run import (
    COPIES,
    ends_for,
    find_program,
    is_for_musl,
    library_for,
    live_for,
    live_options,
)
from allod.units import counted, human

if TYPE_CHECKING:
    from allod.profile.model import Profile

MOST_LISTED = 10
# Processes that allocated less than this part of what the largest did are left out: shells and
# wrappers between the command and the program.
SMALLEST_SHARE = 0.02
ENDINGS = (".pb.gz", ".html")
# At the end, at the peak and at each signal.
WRITTEN = re.compile(r"heap\.(?P<process>\d+)(?P<kind>(\.peak|\.\d+)?)")


def run_profiled(
    program: Sequence[str],
    options: Mapping[str, str],
    output: Path | None,
    interval: str,
    *,
    variant: str,
    live: str | None = None,
    children: bool = False,
    check_copies: bool = False,
) -> int:
    """Runs the program to its end; returns what the shell would show as its status."""
    supplies.current().python_packages("flames")
    path = find_program(program[0])
    libraries = [ends_for(path), library_for(path, f"liballod{variant}.so")]
    if check_copies:
        libraries.append(supplies.current().library(COPIES, musl=is_for_musl(path)))
    page = {}
    if live is not None:
        libraries.insert(0, live_for(path))
        page = live_options(live, f"-{os.getpid()}", children=children)
    stem = (output or Path(path.name)).absolute()
    check_writable(stem)
    folder = Path(tempfile.mkdtemp(prefix="allod-profile-"))
    environment = {
        **os.environ,
        "ALLOD_PROFILE_SIGNAL": "USR2",
        **page,
        **options,
        "ALLOD_PROFILE": interval,
        "ALLOD_PROFILE_PEAKS": "1",
        "ALLOD_PROFILE_FILE": str(folder / "heap.%p"),
        "LD_PRELOAD": preloaded(*libraries),
    }
    is_kept = False
    try:
        process, status = run_to_end(path, program, environment)
        try:
            _convert(folder, process, stem)
        except Failure as failure:
            # What the program did may never come again.
            is_kept = True
            raise Failure(
                f"{failure}; what the library wrote is kept in {folder}, and allod diff reads it",
                status or 1,
            ) from None
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    return status


def check_writable(stem: Path) -> None:
    """Before the program runs, not after."""
    if not stem.parent.is_dir():
        raise Failure(f"{stem.parent} is not a folder")
    if not os.access(stem.parent, os.W_OK):
        raise Failure(f"cannot write to {stem.parent}")
    for ending in ENDINGS:
        target = stem.with_name(f"{stem.name}{ending}")
        if target.is_dir():
            raise Failure(f"{target} is a folder")


@dataclass(frozen=True)
class _Written:
    """What one process wrote: `kind` is empty, or as in .peak."""

    process: str
    kind: str
    profile: Profile


def _convert(folder: Path, process: int, stem: Path) -> None:
    """The process that allocated most has the plain name, the others their ids."""
    found = list(_read(folder))
    if not found:
        say(
            "no profile was written: the program ended without its exit handlers, or did not"
            " take the library"
        )
        return
    sizes: dict[str, int] = {}
    for each in found:
        allocated = each.profile.sum("total").bytes if each.profile.samples else 0
        sizes[each.process] = max(sizes.get(each.process, 0), allocated)
    # Of equals, the one that was asked for.
    order = sorted(sizes, key=lambda name: (-sizes[name], name != str(process)))
    most = sizes[order[0]]
    if most == 0:
        say("no profile was written: the program allocated too little for a sample")
        return
    kept = [name for name in order if sizes[name] >= most * SMALLEST_SHARE]
    kept = kept[:MOST_LISTED]
    for each in sorted(found, key=lambda each: (order.index(each.process), each.kind)):
        if each.process in kept and each.profile.samples:
            name = "" if each.process == order[0] else f".{each.process}"
            write_both(each.profile, stem, f"{name}{each.kind}")
    if len(order) > len(kept):
        left_out = counted(len(order) - len(kept), "smaller profile")
        say(f"{left_out} of other processes left out")


def _read(folder: Path) -> Iterator[_Written]:
    from allod.profile import model

    for file in sorted(folder.iterdir()):
        name = WRITTEN.fullmatch(file.name)
        if name is None:
            continue
        profile = model.read_text(file)
        yield _Written(name["process"], name["kind"], profile)


def write_both(profile: Profile, stem: Path, suffix: str) -> None:
    """The profile for pprof, and its page; and says so."""
    from allod.profile import flame, pprof, symbols

    if not all(stack.frames for stack in profile.stacks):
        symbols.add_names(profile)
    base = f"{stem.name}{suffix}"
    compressed, page = (stem.with_name(f"{base}{ending}") for ending in ENDINGS)
    pprof.write(profile, compressed)
    flame.write_page(profile, page, f"Heap of {base}")
    say(f"wrote {shown(compressed)} and {shown(page)}: {_sizes(profile)}")


def _sizes(profile: Profile) -> str:
    peak = profile.sum("peak").bytes
    parts = (
        f"{human(profile.sum('live').bytes)} in use",
        # The profile of a while has none.
        *([f"{human(peak)} at the peak"] if peak else []),
        f"{human(profile.sum('total').bytes)} in all",
        f"{counted(profile.samples, 'sample')}",
    )
    return ", ".join(parts)
