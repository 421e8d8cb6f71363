"""Runs a program on Allod."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from allod import supplies
from allod.console import Failure, say
from allod.elf import is_musl_here, is_privileged, loaded_image, read_elf
from allod.preload import preloaded
from allod.supplies import NOT_EXECUTABLE

COPIES = "liballod-copies.so"
# Writes reports where a signal ends the program.
ENDS = "liballod-ends.so"
# Options that ask for a report at the end.
REPORTS = ("ALLOD_SHOW_STATS", "ALLOD_LEAKS", "ALLOD_PROFILE_FILE")
NOT_FOUND = 127


def run(
    program: Sequence[str],
    options: Mapping[str, str],
    *,
    library_name: str,
    live: str | None = None,
    children: bool = False,
    check_copies: bool = False,
) -> NoReturn:
    """Replaces this process by the program, with the library preloaded.

    `live` is where the live page is served, as address:port; None: nowhere.
    """
    path = find_program(program[0])
    library = library_for(path, library_name)
    environment = {**os.environ, **options}
    libraries = [library]
    if check_copies:
        libraries.append(supplies.current().library(COPIES, musl=is_for_musl(path)))
    if any(environment.get(name, "0") != "0" for name in REPORTS):
        libraries.insert(0, ends_for(path))
    if live is not None:
        libraries.insert(0, live_for(path))
        # The program keeps this process's id; what it starts serves no page.
        environment |= live_options(live, str(os.getpid()), children=children)
    environment["LD_PRELOAD"] = preloaded(*libraries)
    try:
        os.execve(path, list(program), environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            reason = "is neither a program nor a script that names its interpreter"
        else:
            reason = f"cannot be started: {error.strerror}"
        raise Failure(f"{program[0]} {reason}", NOT_EXECUTABLE) from None


def live_options(address: str, only: str, *, children: bool) -> dict[str, str]:
    """What the server reads. `only` is the process that serves, or -PARENT for its child;
    with `children`, processes that it starts serve pages, too."""
    options = {"ALLOD_LIVE": address, "ALLOD_LIVE_ONLY": only}
    return {**options, **({"ALLOD_LIVE_CHILDREN": "1"} if children else {})}


def find_program(name: str) -> Path:
    """The file that a shell would run for a command name."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if os.path.exists(name) and os.sep in name:
        what = "a folder" if os.path.isdir(name) else "not executable"
        raise Failure(f"{name} is {what}", NOT_EXECUTABLE)
    raise Failure(f"no such program: {name}", NOT_FOUND)


def ends_for(program: Path) -> Path:
    """The library that writes reports where a signal ends the program."""
    return supplies.current().library(ENDS, musl=is_for_musl(program))


def live_for(program: Path) -> Path:
    """The library that serves the live page."""
    return supplies.current().live_library(musl=is_for_musl(program))


def library_for(program: Path, name: str) -> Path:
    """Allod's library for the program's libc; refused if it cannot be preloaded."""
    library = supplies.current().library(name, musl=is_for_musl(program))
    check_preloadable(program, library)
    return library


def is_for_musl(program: Path) -> bool:
    """Whether the program's loader is musl's, which cannot load libraries for glibc, nor glibc's
    those for musl. A program that names no loader counts as one of this system."""
    try:
        image = read_elf(loaded_image(program))
    except PermissionError:
        return is_musl_here()
    if image is None or image.loader is None:
        return is_musl_here()
    return image.is_for_musl


def check_preloadable(program: Path, library: Path) -> None:
    """Explains beforehand what the loader would do silently, or not at all."""
    try:
        image = loaded_image(program)
        elf = read_elf(image)
        ours = read_elf(library)
        privileged = is_privileged(image)
    except PermissionError:
        return  # A program may be executable and not readable: leave it to the kernel.
    if elf is None or ours is None:
        return
    if (elf.bits, elf.machine) != (ours.bits, ours.machine):
        raise Failure(
            f"{image} is for {elf.processor} ({elf.bits} bits), and {library} for"
            f" {ours.processor}; use a build of Allod for that processor",
            NOT_EXECUTABLE,
        )
    if elf.loader is None:
        remedy = (
            "Go has an allocator of its own, so there is nothing to replace"
            if elf.is_go
            else "link it with allod.o instead"
        )
        raise Failure(
            f"{image} is statically linked, so nothing can be preloaded into it; {remedy}",
            NOT_EXECUTABLE,
        )
    if privileged:
        say(
            f"warning: {image} changes privileges when it starts (setuid, setgid or"
            " capabilities), so the loader will ignore Allod; use allod run for what it starts"
        )
    elif elf.is_go:
        say(
            f"warning: {image} is a Go program, with an allocator of its own: Allod serves its"
            " libraries in C alone"
        )
    elif elf.has_malloc:
        say(
            f"warning: {image} has a malloc of its own, which its loader finds before Allod's;"
            " build it without, to use Allod"
        )
    elif elf.has_jemalloc:
        say(
            f"warning: {image} has jemalloc linked in, and may call it by names of its own: Allod"
            " serves only what calls malloc; build it without, to use Allod (Redis: make"
            " MALLOC=libc)"
        )
