"""Profiles in the format of pprof: a compressed protocol buffer.

The message types are those of profile.proto, whose authors describe them at
https://github.com/google/pprof/blob/main/proto/profile.proto.
"""

from __future__ import annotations

import gzip
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from allod.console import Failure
from allod.files import write_whole
from allod.profile.messages import message_type
from allod.profile.model import Frame, Mapping, Profile, Stack, Sums, Timeline

GZIP = b"\x1f\x8b"
VALUES = (
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
)
MESSAGES = {
    "ValueType": ("type 1 int64", "unit 2 int64"),
    "Sample": ("location_id 1 *uint64", "value 2 *int64", "label 3 *Label"),
    "Label": ("key 1 int64", "str 2 int64", "num 3 int64", "num_unit 4 int64"),
    "Mapping": (
        "id 1 uint64",
        "memory_start 2 uint64",
        "memory_limit 3 uint64",
        "file_offset 4 uint64",
        "filename 5 int64",
        "build_id 6 int64",
        "has_functions 7 bool",
        "has_filenames 8 bool",
        "has_line_numbers 9 bool",
        "has_inline_frames 10 bool",
    ),
    "Location": (
        "id 1 uint64",
        "mapping_id 2 uint64",
        "address 3 uint64",
        "line 4 *Line",
        "is_folded 5 bool",
    ),
    "Line": ("function_id 1 uint64", "line 2 int64", "column 3 int64"),
    "Function": (
        "id 1 uint64",
        "name 2 int64",
        "system_name 3 int64",
        "filename 4 int64",
        "start_line 5 int64",
    ),
    "Profile": (
        "sample_type 1 *ValueType",
        "sample 2 *Sample",
        "mapping 3 *Mapping",
        "location 4 *Location",
        "function 5 *Function",
        "string_table 6 *string",
        "drop_frames 7 int64",
        "keep_frames 8 int64",
        "time_nanos 9 int64",
        "duration_nanos 10 int64",
        "period_type 11 ValueType",
        "period 12 int64",
        "comment 13 *int64",
        "default_sample_type 14 int64",
    ),
}


@cache
def _profile_type() -> Any:
    return message_type("perftools.profiles", MESSAGES, "Profile")


class _Writer:
    """Numbers strings, functions, mappings and locations as they come."""

    def __init__(self, profile: Profile) -> None:
        self.message = _profile_type()()
        self._strings = {"": 0}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[tuple[int, tuple[Frame, ...]], int] = {}
        self._mappings = [each for each in profile.mappings if each.executable]
        for number, each in enumerate(self._mappings, 1):
            self.message.mapping.add(
                id=number,
                memory_start=each.start,
                memory_limit=each.end,
                file_offset=each.offset,
                filename=self.string(each.name),
                build_id=self.string(each.build_id),
                has_functions=True,
                has_filenames=True,
                has_line_numbers=True,
                has_inline_frames=True,
            )

    def string(self, text: str) -> int:
        clean = text.encode(errors="replace").decode()
        return self._strings.setdefault(clean, len(self._strings))

    def location(self, address: int, frames: tuple[Frame, ...]) -> int:
        key = (address, frames)
        if key not in self._locations:
            self._locations[key] = len(self._locations) + 1
            location = self.message.location.add(id=self._locations[key])
            # As profiles have it: an address within the call, not behind it.
            location.address = max(address - 1, 0)
            for number, each in enumerate(self._mappings, 1):
                if each.start <= address - 1 < each.end:
                    location.mapping_id = number
            for frame in frames:
                location.line.add(function_id=self._function(frame), line=frame.line)
        return self._locations[key]

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file, frame.start_line)
        if key not in self._functions:
            self._functions[key] = len(self._functions) + 1
            self.message.function.add(
                id=self._functions[key],
                name=self.string(frame.function),
                system_name=self.string(frame.function),
                filename=self.string(frame.file),
                start_line=frame.start_line,
            )
        return self._functions[key]

    def finish(self) -> bytes:
        self.message.string_table.extend(self._strings)
        return bytes(self.message.SerializeToString())


def encode(profile: Profile) -> bytes:
    """The compressed message."""
    writer = _Writer(profile)
    message = writer.message
    for name, unit in VALUES:
        message.sample_type.add(type=writer.string(name), unit=writer.string(unit))
    message.default_sample_type = writer.string("inuse_space")
    message.period_type.type = writer.string("space")
    message.period_type.unit = writer.string("bytes")
    message.period = profile.interval
    message.time_nanos = time.time_ns()
    if profile.timeline is not None:
        message.comment.append(writer.string(str(profile.timeline)))
    for stack in profile.stacks:
        places = zip(stack.addresses, stack.frames or ((),) * len(stack.addresses))
        message.sample.add(
            location_id=[writer.location(address, names) for address, names in places],
            value=[
                value
                for sums in (stack.live, stack.total, stack.peak)
                for value in (sums.blocks, sums.bytes)
            ],
        )
    return gzip.compress(writer.finish(), mtime=0)


def write(profile: Profile, path: Path) -> None:
    """Writes a file that `go tool pprof` reads."""
    write_whole(path, encode(profile))


def is_pprof(path: Path) -> bool:
    """Whether the file is compressed, as these profiles are."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def read(path: Path) -> Profile:
    """Reads a profile of any program that writes this format with these values."""
    message = _profile_type()()
    try:
        message.ParseFromString(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, DecodeError) as error:
        raise Failure(f"{path} is not a profile: {error}") from None
    texts = message.string_table
    kinds = {texts[kind.type]: place for place, kind in enumerate(message.sample_type)}
    if "inuse_space" not in kinds:
        raise Failure(f"{path} is no heap profile: it has {', '.join(kinds)}")
    functions = {each.id: each for each in message.function}
    paths = {each.id: texts[each.filename] for each in message.mapping}
    locations = {}
    for each in message.location:
        frames = tuple(
            Frame(
                texts[functions[line.function_id].name],
                texts[functions[line.function_id].filename],
                line.line,
                paths.get(each.mapping_id, ""),
                functions[line.function_id].start_line,
            )
            for line in each.line
        )
        locations[each.id] = (
            each.address + 1,
            frames or (Frame(f"{each.address:#x}"),),
        )

    def sums(sample: Any, kind: str) -> Sums:
        blocks, size = (
            int(sample.value[kinds[name]]) if name in kinds else 0
            for name in (f"{kind}_objects", f"{kind}_space")
        )
        return Sums(blocks, size)

    profile = Profile(interval=message.period)
    # Samples may differ in their labels only.
    stacks: dict[tuple[int, ...], Stack] = {}
    for sample in message.sample:
        key = tuple(sample.location_id)
        if key not in stacks:
            found = [locations[number] for number in key]
            stacks[key] = Stack(
                tuple(address for address, _ in found),
                frames=tuple(frames for _, frames in found),
            )
        stack = stacks[key]
        stack.live += sums(sample, "inuse")
        stack.peak += sums(sample, "peak")
        stack.total += sums(sample, "alloc")
    profile.stacks = list(stacks.values())
    for comment in message.comment:
        timeline = Timeline.parse(texts[comment])
        profile.timeline = timeline or profile.timeline
    profile.mappings = [
        Mapping(
            each.memory_start,
            each.memory_limit,
            each.file_offset,
            texts[each.filename],
            build_id=texts[each.build_id],
        )
        for each in message.mapping
    ]
    return profile
