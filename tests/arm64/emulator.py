"""Programs for arm64 on a machine of another kind, by qemu's emulation of single programs."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from commands import ended
from surface.black_box import run_program
from workshop.paths import build_dir

BUILD = build_dir("arm64")
PROGRAMS = BUILD / "tests"
LIBRARY = BUILD / "liballod.so"
DEBUG_LIBRARY = BUILD / "liballod-debug.so"
PACKAGES = ("g++-aarch64-linux-gnu", "googletest", "qemu-user-static")
# They sweep sizes, or start threads by the thousand, for longer than an emulator should take.
TOO_LONG = {
    "aligned_blocks_can_be_reallocated",
    "blocks_outlive_their_thread",
    "cancelled_threads_clean_up",
    "detached_threads",
    "every_new_goes_with_every_delete_of_its_kind",
    "first_allocation_in_a_key_destructor",
    "free_aligned_sized_takes_what_was_asked_for",
    "good_size_tells_what_malloc_gives",
    "handlers_that_jump_between_allocations",
    "key_destructors_allocate_and_free",
    "main_thread_ends_first",
    "malloc_aligns_larger_sizes",
    "no_call_is_a_cancellation_point",
    "realloc_keeps_content_between_any_two_sizes",
    "realloc_keeps_content_by_single_bytes",
    "realloc_keeps_content_through_all_classes_to_64_mib",
    "threads_that_end_leave_nothing_stranded",
    "usable_size_is_enough_and_all_writable",
}
# The debug library fills and checks each byte of 220,000 blocks.
TOO_LONG_TO_DEBUG = {"trim_gives_memory_of_small_blocks_back"}
# Where Debian's cross libraries are, the loader among them.
SYSTEM = Path("/usr/aarch64-linux-gnu")


def emulated(
    page_size: int,
    *program: str | Path,
    library: Path | None = None,
    before: Sequence[Path] = (),
    options: Sequence[str] = (),
) -> list[str | Path]:
    """The command that runs a program with pages of this size, on a library if one is given, and
    those that are preloaded before it."""
    command: list[str | Path] = ["qemu-aarch64-static", "-L", SYSTEM, *options]
    # Newer versions know one page size for each machine, and have no such option.
    command += ["-p", str(page_size)] if page_size != 4096 else []
    # The emulator itself is not to be preloaded; it hands all other variables on.
    preloaded = [*before, *([library] if library is not None else [])]
    names = ":".join(map(str, preloaded))
    command += ["-E", f"LD_PRELOAD={names}"] if preloaded else []
    return [*command, *program]


def run_emulated(
    page_size: int,
    *program: str | Path,
    directory: Path,
    library: Path | None = None,
    before: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, on a library if one is given."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")}
    environment |= dict(variables or {})
    if library is not None:
        environment["TEST_LIBRARY"] = str(library)
    command = emulated(
        page_size, *program, library=library, before=before, options=options
    )
    return run_program(command, environment, directory)


@functools.cache
def abilities(page_size: int) -> Mapping[str, int]:
    """What the emulated system can do, as a program on it finds out; nothing if none can run."""
    command = emulated(page_size, PROGRAMS / "arm64" / "probe")
    done = ended(*command)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: int(value) for name, value in lines} if done.returncode == 0 else {}
