"""Functions, files and lines of addresses, by llvm-symbolizer, outside of the profiled program."""

from __future__ import annotations

import bisect
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from allod import supplies
from allod.profile import debuginfod
from allod.profile.code_maps import CodeMaps
from allod.profile.model import Frame, Mapping, Profile

# Not worth a frame when the library is part of the program.
OWN = ("allod::", "allod_malloc", "allod_new")


def add_names(profile: Profile) -> None:
    """Fills in the frames of all stacks, and the build ids of the mappings."""
    profile.mappings = [
        replace(each, build_id=build_id(each.path)) if each.is_there else each
        for each in profile.mappings
    ]
    names = Names(profile)
    names.look_up({at for stack in profile.stacks for at in stack.addresses})
    for stack in profile.stacks:
        known = [names.at(address) for address in stack.addresses]
        while len(known) > 1 and known[0][0].function.startswith(OWN):
            known.pop(0)
            stack.addresses = stack.addresses[1:]
        stack.frames = tuple(known)


class Names:
    """Looks addresses up, many at a time."""

    def __init__(self, profile: Profile) -> None:
        self._mappings = sorted(profile.mappings, key=lambda each: each.start)
        self._starts = [each.start for each in self._mappings]
        self._known: dict[int, tuple[Frame, ...]] = {
            number: (function,) for number, function in profile.functions.items()
        }
        self._code = CodeMaps(profile)

    def mapping_of(self, address: int) -> Mapping | None:
        """The mapping that an address is in."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0 or address >= self._mappings[place].end:
            return None
        return self._mappings[place]

    def at(self, address: int) -> tuple[Frame, ...]:
        """The functions at a return address, innermost first; at least one."""
        return self._known.get(address) or (self._unknown(address),)

    def look_up(self, addresses: set[int]) -> None:
        """Finds the functions of return addresses: what is called ends just before."""
        by_file: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for address in addresses - self._known.keys():
            mapping = self.mapping_of(address - 1)
            if mapping is None or not mapping.has_file:
                code = self._code.at(address - 1)
                if code is not None:
                    self._known[address] = (code,)
            elif os.path.isfile(mapping.path) and mapping.is_there:
                place = address - 1 - mapping.start + mapping.offset
                by_file[mapping.path, mapping.name].append((address, place))
        for (path, name), wanted in by_file.items():
            found = functions_at(
                path, [_virtual(path, place) for _, place in wanted], name
            )
            for (address, _), frames in zip(wanted, found):
                if frames:
                    self._known[address] = frames

    def _unknown(self, address: int) -> Frame:
        mapping = self.mapping_of(address - 1)
        if mapping is None or not mapping.path:
            return Frame(f"{address:#x}")
        offset = address - mapping.start + mapping.offset
        closed = " (closed)" if mapping.closed else ""
        name = f"{Path(mapping.path).name}+{offset:#x}{closed}"
        return Frame(name, module=mapping.name)


def functions_at(
    path: str, places: Sequence[int], module: str | None = None
) -> list[tuple[Frame, ...]]:
    """The functions at addresses by which the file's own tables count, innermost first; none where
    nothing is known. They are said to be in the module, or else in the file."""
    command = [
        supplies.current().symbolizer(),
        f"--obj={_with_lines(path)}",
        "--output-style=JSON",
        "--functions",
        "--inlines",
        "--demangle",
    ]
    text = "".join(f"{place:#x}\n" for place in places)
    # What llvm-symbolizer would fetch itself is fetched here, by any of its versions.
    environment = {k: v for k, v in os.environ.items() if k != debuginfod.URLS}
    done = subprocess.run(
        command,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    results: list[tuple[Frame, ...]] = []
    for line in done.stdout.splitlines():
        results.append(tuple(_frames(json.loads(line), module or path)))
    results += [()] * (len(places) - len(results))
    return results[: len(places)]


@cache
def _with_lines(path: str) -> str:
    """The file, or one with its debug information if it has none itself and the user has named
    servers."""
    if not debuginfod.is_asked_for():
        return path
    try:
        with open(path, "rb") as file:
            if ELFFile(file).get_section_by_name(".debug_info") is not None:
                return path
    except (OSError, ELFError):
        return path
    return str(debuginfod.fetch(build_id(path)) or path)


def _frames(answer: dict[str, Any], module: str) -> list[Frame]:
    return [
        Frame(
            each["FunctionName"],
            each.get("FileName", ""),
            each.get("Line", 0),
            module,
            each.get("StartLine", 0),
        )
        for each in answer.get("Symbol", [])
        if each.get("FunctionName")
    ]


@cache
def _segments(path: str) -> tuple[tuple[int, int, int], ...]:
    try:
        with open(path, "rb") as file:
            return tuple(
                (each["p_offset"], each["p_filesz"], each["p_vaddr"])
                for each in ELFFile(file).iter_segments("PT_LOAD")
            )
    except (OSError, ELFError):
        return ()


def _virtual(path: str, place: int) -> int:
    """The address that a place in a file has in its own tables."""
    for offset, size, address in _segments(path):
        if offset <= place < offset + size:
            return int(place - offset + address)
    return place


@cache
def build_id(path: str) -> str:
    """What the linker has written into the file to tell it from others; empty: nothing."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            section = ELFFile(file).get_section_by_name(".note.gnu.build-id")
            if not isinstance(section, NoteSection):
                return ""
            return next((str(note["n_desc"]) for note in section.iter_notes()), "")
    except (OSError, ELFError):
        return ""


@cache
def exported(path: str) -> dict[str, set[int]]:
    """The addresses of the functions that a file shows to others, by name."""
    result: dict[str, set[int]] = {}
    try:
        with open(path, "rb") as file:
            table = ELFFile(file).get_section_by_name(".dynsym")
            if not isinstance(table, SymbolTableSection):
                return {}
            for symbol in table.iter_symbols():
                if symbol["st_shndx"] != "SHN_UNDEF":
                    result.setdefault(symbol.name, set()).add(symbol["st_value"])
    except (OSError, ELFError):
        return {}
    return result
