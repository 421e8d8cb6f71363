"""A heap profile in memory, and how the library's text is read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from allod.console import Failure

HEADER = re.compile(
    r"heap profile: (\d+): (\d+) \[(\d+): (\d+)\] @ heap_v2/1$", re.ASCII
)
STACK = re.compile(r"(\d+): (\d+) \[(\d+): (\d+)\] @((?: 0x[0-9a-f]+)*)$", re.ASCII)
WORDS = re.compile(r"([a-z]+)((?: \d+)+)", re.ASCII)
# Nothing is ever mapped from there on.
ELSEWHERE = 1 << 62
# What the library adds to a mapping that is no more.
CLOSED = re.compile(r" \(closed, stacks up to (\d+)\)$", re.ASCII)
# A function of an interpreter, which has a number in place of an address.
TEXT = r'("(?:[^"\\]|\\.)*")'
FRAME = re.compile(rf"# frame (0x[0-9a-f]+) (\d+) {TEXT} {TEXT}$", re.ASCII)
# The length of a period, and two numbers for each.
TIMELINE = re.compile(r"# timeline (\d+)((?: \d+ \d+)+)$", re.ASCII)
MAPPING = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) *(.*)$", re.ASCII
)


@dataclass(frozen=True)
class Sums:
    """Blocks, and their bytes as rounded to size classes and as asked for."""

    blocks: int = 0
    bytes: int = 0
    requested: int = 0

    def __sub__(self, other: Sums) -> Sums:
        return Sums(
            self.blocks - other.blocks,
            self.bytes - other.bytes,
            self.requested - other.requested,
        )

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.blocks + other.blocks,
            self.bytes + other.bytes,
            self.requested + other.requested,
        )


@dataclass(frozen=True)
class Frame:
    """One function of a stack; an inlined one has the address of the one it is in."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""
    start_line: int = 0


@dataclass
class Stack:
    """What was allocated with one call stack, innermost address first."""

    addresses: tuple[int, ...]
    live: Sums = Sums()
    peak: Sums = Sums()
    total: Sums = Sums()
    # For each address the functions there, innermost first; empty until names are known.
    frames: tuple[tuple[Frame, ...], ...] = ()
    # In the order in which they were met; 0: not known.
    number: int = 0
    # The mean of those freed.
    lifetime_ms: int = 0

    def names(self) -> Iterator[Frame]:
        """All functions, innermost first."""
        for at in self.frames:
            yield from at


@dataclass(frozen=True)
class Mapping:
    """A part of a file, or of something else, at some addresses."""

    start: int
    end: int
    offset: int
    path: str
    executable: bool = True
    build_id: str = ""
    # The file that it was of was closed; only a file with this device and number is that file.
    closed: bool = False
    file: tuple[int, int, int] = (0, 0, 0)

    @property
    def name(self) -> str:
        """The path, and that it is no more."""
        return f"{self.path} (closed)" if self.closed else self.path

    @property
    def has_file(self) -> bool:
        """Whether it is a part of a file that may hold code: not of the memory of a compiler at run
        time, which may have the name of a device or of what was deleted."""
        is_memory = self.path.startswith(("/dev/", "/memfd:", "["))
        return self.path.startswith("/") and not is_memory

    @property
    def is_there(self) -> bool:
        """Whether the path still leads to the file that was mapped."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        device = (os.major(found.st_dev), os.minor(found.st_dev))
        return not self.closed or (*device, found.st_ino) == self.file


@dataclass(frozen=True)
class Timeline:
    """Bytes over the time of a profile, in periods of one length."""

    period_ms: int
    live: tuple[int, ...]  # the most in use within each
    total: tuple[int, ...]  # ever allocated at its end

    @staticmethod
    def parse(text: str) -> Timeline | None:
        """What __str__ or the library has written; None if it is something else."""
        found = TIMELINE.match(text)
        if found is None:
            return None
        numbers = [int(word) for word in found[2].split()]
        return Timeline(int(found[1]), tuple(numbers[::2]), tuple(numbers[1::2]))

    def __str__(self) -> str:
        pairs = zip(self.live, self.total)
        numbers = " ".join(f"{live} {total}" for live, total in pairs)
        return f"# timeline {self.period_ms} {numbers}"


@dataclass
class Profile:
    """All stacks, and where their addresses lead."""

    interval: int = 0
    stacks: list[Stack] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    samples: int = 0
    lost: int = 0
    # How long it was taken.
    since_ms: int = 0
    # Functions of an interpreter, by what stands for their addresses.
    functions: dict[int, Frame] = field(default_factory=dict)
    # The process; 0: not known. When it began, in seconds since 1970, and its user.
    process: int = 0
    began: int = 0
    owner: int = -1
    timeline: Timeline | None = None

    def sum(self, kind: str) -> Sums:
        """Of "live", "peak" or "total"."""
        result = Sums()
        for stack in self.stacks:
            result += getattr(stack, kind)
        return result


def read_text(path: Path) -> Profile:
    """Reads what allod_profile_write wrote."""
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None
    if not text:
        raise Failure(f"{path} is empty: the library could not write it")
    lines = text.split("\n")
    if not lines or HEADER.match(lines[0]) is None:
        raise Failure(f"{path} is not a heap profile of Allod")
    profile = Profile(owner=path.stat().st_uid)
    rest = iter(lines[1:])
    for line in rest:
        if line == "MAPPED_LIBRARIES:":
            break
        if line.startswith("# allod "):
            words = _words(line)
            profile.interval = words.get("interval", [0])[0]
            profile.samples = words.get("samples", [0, 0])[1]
            profile.lost = words.get("lost", [0])[0]
            profile.since_ms = words.get("since", [0])[0]
            profile.process = words.get("process", [0])[0]
            profile.began = words.get("began", [0])[0]
        elif line.startswith("# timeline "):
            profile.timeline = Timeline.parse(line)
        elif (function := FRAME.match(line)) is not None:
            name, file = json.loads(function[3]), json.loads(function[4])
            profile.functions[int(function[1], 16)] = Frame(
                name, file, int(function[2]), file
            )
        elif line.startswith("# id "):
            _complete(profile.stacks[-1], _words(line))
        elif (found := STACK.match(line)) is not None:
            live = Sums(int(found[1]), int(found[2]))
            total = Sums(int(found[3]), int(found[4]))
            addresses = tuple(int(word, 16) for word in found[5].split())
            profile.stacks.append(Stack(addresses, live=live, total=total))
        elif line:
            raise Failure(f"{path} has an invalid line: {line[:60]}")
    else:
        raise Failure(f"{path} is truncated: it has no list of mappings")
    mappings = list(_mappings(rest))
    profile.mappings = [each for _, each in mappings]
    closed = [(last, each) for last, each in mappings if each.closed]
    if closed:
        _separate(profile, sorted(closed, key=lambda each: each[0]))
    return profile


def _separate(profile: Profile, closed: list[tuple[int, Mapping]]) -> None:
    """Something else may have been mapped to where a closed file was. So each of them gets a place
    of its own, and so do the addresses there."""
    moved = []
    begin = ELSEWHERE
    for last, each in closed:
        size = each.end - each.start
        moved.append((last, each, begin))
        profile.mappings.remove(each)
        profile.mappings.append(replace(each, start=begin, end=begin + size))
        begin += size
    for stack in profile.stacks:
        stack.addresses = tuple(
            next(
                (
                    address - each.start + place
                    for last, each, place in moved
                    if stack.number <= last and each.start < address <= each.end
                ),
                address,
            )
            for address in stack.addresses
        )


def _words(line: str) -> dict[str, list[int]]:
    return {
        name: [int(word) for word in numbers.split()]
        for name, numbers in WORDS.findall(line)
    }


def _complete(stack: Stack, words: dict[str, list[int]]) -> None:
    stack.number = words["id"][0]
    stack.lifetime_ms = words.get("lifetime", [0])[0]
    live, peak, total = words["requested"]
    stack.live = Sums(stack.live.blocks, stack.live.bytes, live)
    blocks, size = words["peak"]
    stack.peak = Sums(blocks, size, peak)
    stack.total = Sums(stack.total.blocks, stack.total.bytes, total)


def _mappings(lines: Iterator[str]) -> Iterator[tuple[int, Mapping]]:
    """Each mapping, with the number of the last stack that was there if it is no more."""
    for line in lines:
        found = MAPPING.match(line)
        if found is None:
            continue
        closed = CLOSED.search(found[7])
        major, _, minor = found[5].partition(":")
        yield (
            0 if closed is None else int(closed[1]),
            Mapping(
                int(found[1], 16),
                int(found[2], 16),
                int(found[4], 16),
                found[7] if closed is None else found[7][: closed.start()],
                executable="x" in found[3],
                closed=closed is not None,
                file=(int(major, 16), int(minor, 16), int(found[6])),
            ),
        )
