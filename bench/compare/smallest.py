"""How much of a program that makes one allocation is resident."""

import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.compare import cached

SOURCE = Path(__file__).with_name("smallest.c")
REPEATS = 100


class SmallestError(Exception):
    """The program cannot be built, or complains."""


def means_kib(
    environments: Sequence[Mapping[str, str]],
    piece: int = cached.PAGE,
    repeats: int = REPEATS,
    arguments: Sequence[str] = (),
) -> list[float]:
    """Runs the program in turns; a mean for each environment, since libraries lie elsewhere in each
    run, and with them the pages that a fault maps besides. How the libraries have come into memory
    is told by `piece`, as for cached.copy_in_pieces."""
    with tempfile.TemporaryDirectory(prefix="allod-smallest-") as scratch:
        program = Path(scratch) / "smallest"
        build = ["cc", "-O2", "-fno-builtin", "-o", str(program), str(SOURCE)]
        _output(build, os.environ)
        system = Path(scratch) / "system"
        cached.copy_in_pieces(_libc(), system, piece)
        alike = [
            _with_copies(variables, Path(scratch) / str(number), system, piece)
            for number, variables in enumerate(environments)
        ]
        found = [
            [
                _resident_kib([str(program), *arguments], variables)
                for variables in alike
            ]
            for _ in range(repeats)
        ]
    return [statistics.fmean(each) for each in zip(*found, strict=True)]


def _libc() -> Path:
    """The C library: what an allocator calls there is resident with what is around it."""
    name = ["cc", "-print-file-name=libc.so.6"]
    found = Path(_output(name, os.environ).strip())
    if not found.is_absolute():
        raise SmallestError("the compiler has no libc.so.6")
    return found


def _with_copies(
    variables: Mapping[str, str], folder: Path, system: Path, piece: int
) -> dict[str, str]:
    """The same with libraries, also those in `system`, that are all in memory in the same way."""
    libraries = [
        Path(name) for name in variables.get("LD_PRELOAD", "").split(":") if name
    ]
    copies = [
        cached.copy_in_pieces(library, folder, piece) if library.is_file() else library
        for library in libraries
    ]
    preload = {"LD_PRELOAD": ":".join(map(str, copies))} if copies else {}
    paths = [str(system), variables.get("LD_LIBRARY_PATH", "")]
    search = {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
    return {**variables, **preload, **search}


def _resident_kib(command: Sequence[str], variables: Mapping[str, str]) -> int:
    _, kib, unit = _output(command, variables).split()
    assert unit == "kB", unit
    return int(kib)


def _output(command: Sequence[str], variables: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or done.stderr:
        raise SmallestError(f"{command[0]}: {done.stderr.strip() or done.returncode}")
    return done.stdout
