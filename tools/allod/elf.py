"""What a program file says about how it will be loaded."""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

PT_INTERP = 3
PT_NOTE = 4
SHT_PROGBITS = 1
SHT_DYNSYM = 11
# Flags of sections that are in memory, and of those that are written or executed there.
SHF_ALLOC = 2
SHF_WRITE_OR_EXECUTE = 1 | 4
PROCESSORS = {3: "i386", 40: "arm", 62: "x86-64", 183: "arm64", 243: "riscv"}
# The name of the notes that Go's linker writes.
GO = b"Go\0\0"
MOST_NOTES = 4096
# Messages of jemalloc begin with this. It is often linked in with no malloc that others see.
JEMALLOC = b"<jemalloc>"
# Larger constant data is not searched: a program has to start soon.
MOST_CONSTANTS = 16 << 20
SHEBANG_DEPTH = 4


@dataclass(frozen=True)
class Elf:
    """The few facts of an ELF file that decide whether a library can be preloaded."""

    bits: int
    machine: int
    # The program that loads it, as the file names it; None for a static one.
    loader: str | None
    is_go: bool = False
    # Whether it has a malloc that others find before any that is preloaded.
    has_malloc: bool = False
    # Whether it has a jemalloc linked in.
    has_jemalloc: bool = False

    @property
    def processor(self) -> str:
        """The name of the processor that it is for."""
        return PROCESSORS.get(self.machine, f"processor {self.machine}")

    @property
    def is_for_musl(self) -> bool:
        """Whether it is for musl's loader."""
        return self.loader is not None and "/ld-musl-" in self.loader


class Section(NamedTuple):
    """An entry of the table of sections."""

    name: int
    kind: int
    flags: int
    address: int
    begin: int
    length: int
    link: int
    info: int
    alignment: int
    entry: int


@cache
def read_elf(path: Path) -> Elf | None:
    """Reads what is of interest in an ELF file; None for any other file."""
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
        part = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
        loader, is_go = None, False
        for kind, *rest in _table(file, part, fields[4], fields[8], fields[9]):
            begin, length = (rest[1], rest[4]) if wide else (rest[0], rest[3])
            if kind == PT_INTERP:
                file.seek(begin)
                loader = os.fsdecode(file.read(length).rstrip(b"\0"))
            elif kind == PT_NOTE:
                file.seek(begin)
                is_go = is_go or GO in file.read(min(length, MOST_NOTES))
        own = (False, False)
        if wide and loader is not None:
            section = struct.Struct(order + "IIQQQQIIQQ")
            # Where sections are, the size of an entry, and how many there are.
            where = (fields[5], fields[10], fields[11])
            sections = [Section(*each) for each in _table(file, section, *where)]
            own = (
                _defines_malloc(file, order, sections),
                _has_constant(file, sections, JEMALLOC),
            )
    return Elf(64 if wide else 32, fields[1], loader, is_go, *own)


@cache
def is_musl_here() -> bool:
    """Whether this system's libc is musl: that of the interpreter."""
    own = read_elf(Path(sys.executable))
    return own is not None and own.is_for_musl


def _table(
    file: BinaryIO, layout: struct.Struct, begin: int, size: int, count: int
) -> Iterator[tuple[int, ...]]:
    file.seek(begin)
    table = file.read(size * count)
    for at in range(0, len(table) - layout.size + 1, max(size, 1)):
        yield layout.unpack_from(table, at)


def _defines_malloc(file: BinaryIO, order: str, sections: Sequence[Section]) -> bool:
    """Whether the symbols for other objects have a malloc that is defined here."""
    for each in sections:
        if each.kind != SHT_DYNSYM or each.link >= len(sections):
            continue
        name = _content(file, sections[each.link]).find(b"\0malloc\0") + 1
        if name == 0:
            continue
        symbol = struct.Struct(order + "IBBHQQ")
        symbols = _content(file, each)
        whole = len(symbols) - len(symbols) % symbol.size
        return any(
            text == name and index != 0
            for text, _, _, index, _, _ in symbol.iter_unpack(symbols[:whole])
        )
    return False


def _has_constant(file: BinaryIO, sections: Iterable[Section], text: bytes) -> bool:
    """Whether a text is among the constants of a program."""
    return any(
        text in _content(file, each)
        for each in sections
        if each.kind == SHT_PROGBITS
        and each.flags & (SHF_ALLOC | SHF_WRITE_OR_EXECUTE) == SHF_ALLOC
        and each.length <= MOST_CONSTANTS
    )


def _content(file: BinaryIO, section: Section) -> bytes:
    file.seek(section.begin)
    return file.read(section.length)


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
