"""Runs a program with its heap profile, and writes what came of it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allod import supplies
from allod.child import run_to_end
from allod.console import Failure, say, shown
from allod.preload import preloaded
from allod.run import find_program, library_for
from allod.units import counted, human

if TYPE_CHECKING:
    from allod.profile.model import Profile

MOST_LISTED = 10
ENDINGS = (".pb.gz", ".html")


def run_profiled(
    program: Sequence[str],
    options: Mapping[str, str],
    output: Path | None,
    interval: str,
    *,
    variant: str,
) -> int:
    """Runs the program to its end; returns what the shell would show as its status."""
    supplies.current().python_packages("flames")
    path = find_program(program[0])
    library = library_for(path, f"liballod{variant}.so")
    stem = (output or Path(path.name)).absolute()
    _check_writable(stem)
    folder = Path(tempfile.mkdtemp(prefix="allod-profile-"))
    environment = {
        **os.environ,
        "ALLOD_PROFILE_SIGNAL": "USR2",
        **options,
        "ALLOD_PROFILE": interval,
        "ALLOD_PROFILE_PEAKS": "1",
        "ALLOD_PROFILE_FILE": str(folder / "heap.%p"),
        "LD_PRELOAD": preloaded(library),
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


def _check_writable(stem: Path) -> None:
    """Before the program runs, not after."""
    if not stem.parent.is_dir():
        raise Failure(f"{stem.parent} is not a folder")
    if not os.access(stem.parent, os.W_OK):
        raise Failure(f"cannot write to {stem.parent}")
    for ending in ENDINGS:
        target = stem.with_name(f"{stem.name}{ending}")
        if target.is_dir():
            raise Failure(f"{target} is a folder")


def _convert(folder: Path, process: int, stem: Path) -> None:
    """The program's own profiles have the plain name, those of its children their ids."""
    found = sorted(
        (each for each in folder.iterdir() if each.suffix != ".new"),
        key=lambda each: (f"heap.{process}" not in each.name, each.name),
    )
    if not found:
        say(
            "no profile was written: the program ended without its exit handlers, or did not"
            " take the library"
        )
    for text in found[:MOST_LISTED]:
        name = re.sub(rf"^heap\.({process})?", "", text.name)
        suffix = f".{name.lstrip('.')}" if name else ""
        _write_both(text, stem, suffix)
    if len(found) > MOST_LISTED:
        say(f"and {len(found) - MOST_LISTED} profiles of other processes are left out")


def _write_both(text: Path, stem: Path, suffix: str) -> None:
    from allod.profile import flame, model, pprof, symbols

    profile = model.read_text(text)
    symbols.add_names(profile)
    base = f"{stem.name}{suffix}"
    compressed, page = (stem.with_name(f"{base}{ending}") for ending in ENDINGS)
    pprof.write(profile, compressed)
    flame.write_page(profile, page, f"Heap of {base}")
    say(f"wrote {shown(compressed)} and {shown(page)}: {_sizes(profile)}")


def _sizes(profile: Profile) -> str:
    parts = (
        f"{human(profile.sum('live').bytes)} in use,"
        f" {human(profile.sum('peak').bytes)} at the peak,"
        f" {human(profile.sum('total').bytes)} in all",
        f"{counted(profile.samples, 'sample')}",
    )
    return ", ".join(parts)
