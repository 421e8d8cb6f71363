"""What a program file says about how it will be loaded."""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

PT_INTERP = 3
SHEBANG_DEPTH = 4


@dataclass(frozen=True)
class Elf:
    """The few facts of an ELF file that decide whether a library can be preloaded."""

    bits: int
    machine: int
    # The program that loads it, as the file names it; None for a static one.
    loader: str | None

    @property
    def is_for_musl(self) -> bool:
        """Whether it is for musl's loader."""
        return self.loader is not None and "/ld-musl-" in self.loader


def read_elf(path: Path) -> Elf | None:
    """Reads the headers of an ELF file; None for any other file."""
    with path.open("rb") as file:
        ident = file.read(16)
        if len(ident) < 16 or ident[:4] != b"\x7fELF":
            return None
        wide = ident[4] == 2
        order = "<" if ident[5] == 1 else ">"
        layout = struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"))
        data = file.read(layout.size)
        if len(data) < layout.size:
            return None
        fields = layout.unpack(data)
        machine, offset, size, count = fields[1], fields[4], fields[8], fields[9]
        file.seek(offset)
        table = file.read(size * count)
        part = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
        loader = None
        for at in range(0, len(table) - part.size + 1, max(size, 1)):
            kind, *rest = part.unpack_from(table, at)
            if kind == PT_INTERP:
                begin, length = (rest[1], rest[4]) if wide else (rest[0], rest[3])
                file.seek(begin)
                loader = os.fsdecode(file.read(length).rstrip(b"\0"))
    return Elf(64 if wide else 32, machine, loader)


def loaded_image(program: Path) -> Path:
    """The ELF file that runs when a program is started: a script's interpreter."""
    for _ in range(SHEBANG_DEPTH):
        with program.open("rb") as file:
            line = file.readline(256)
        if not line.startswith(b"#!"):
            break
        words = line[2:].split()
        if not words or not os.path.isfile(words[0]):
            break
        program = Path(os.fsdecode(words[0]))
    return program


def is_privileged(path: Path) -> bool:
    """Whether starting the file changes privileges, so that the loader ignores us."""
    status = path.stat()
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return True
    if status.st_mode & stat.S_ISGID and status.st_gid != os.getgid():
        return True
    if os.getuid() == 0:
        return False
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        return False
    return True
