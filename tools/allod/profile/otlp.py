"""Profiles in OpenTelemetry's format.

The message types are those of opentelemetry/proto/profiles/v1development/profiles.proto, whose
authors describe them at https://github.com/open-telemetry/opentelemetry-proto.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

from allod.profile.messages import message_type
from allod.profile.model import Frame, Profile, Stack

# A profile for each: its values, of blocks or bytes.
VALUES = tuple(
    (f"{told}_{what}", unit, kind, field)
    for told, kind in (("inuse", "live"), ("alloc", "total"), ("peak", "peak"))
    for what, unit, field in (
        ("space", "bytes", "bytes"),
        ("objects", "count", "blocks"),
    )
)
MESSAGES = {
    "AnyValue": ("string_value 1 string", "int_value 3 int64"),
    "KeyValue": ("key 1 string", "value 2 AnyValue"),
    "Resource": ("attributes 1 *KeyValue",),
    "InstrumentationScope": ("name 1 string", "version 2 string"),
    "ValueType": ("type_strindex 1 int32", "unit_strindex 2 int32"),
    "Sample": (
        "stack_index 1 int32",
        "attribute_indices 2 *int32",
        "link_index 3 int32",
        "values 4 *int64",
        "timestamps_unix_nano 5 *fixed64",
    ),
    "Profile": (
        "sample_type 1 ValueType",
        "samples 2 *Sample",
        "time_unix_nano 3 fixed64",
        "duration_nano 4 uint64",
        "period_type 5 ValueType",
        "period 6 int64",
        "profile_id 7 bytes",
    ),
    "ScopeProfiles": ("scope 1 InstrumentationScope", "profiles 2 *Profile"),
    "ResourceProfiles": ("resource 1 Resource", "scope_profiles 2 *ScopeProfiles"),
    "Mapping": (
        "memory_start 1 uint64",
        "memory_limit 2 uint64",
        "file_offset 3 uint64",
        "filename_strindex 4 int32",
        "attribute_indices 5 *int32",
    ),
    "Stack": ("location_indices 1 *int32",),
    "Line": ("function_index 1 int32", "line 2 int64", "column 3 int64"),
    "Location": (
        "mapping_index 1 int32",
        "address 2 uint64",
        "lines 3 *Line",
        "attribute_indices 4 *int32",
    ),
    "Function": (
        "name_strindex 1 int32",
        "system_name_strindex 2 int32",
        "filename_strindex 3 int32",
        "start_line 4 int64",
    ),
    "Link": ("trace_id 1 bytes", "span_id 2 bytes"),
    "KeyValueAndUnit": (
        "key_strindex 1 int32",
        "value 2 AnyValue",
        "unit_strindex 3 int32",
    ),
    "ProfilesDictionary": (
        "mapping_table 1 *Mapping",
        "location_table 2 *Location",
        "function_table 3 *Function",
        "link_table 4 *Link",
        "string_table 5 *string",
        "attribute_table 6 *KeyValueAndUnit",
        "stack_table 7 *Stack",
    ),
    "ProfilesData": (
        "resource_profiles 1 *ResourceProfiles",
        "dictionary 2 ProfilesDictionary",
    ),
}


@cache
def _data_type() -> Any:
    return message_type("allod.otlp", MESSAGES, "ProfilesData")


class _Dictionary:
    """What all profiles share. In each table, entry 0 stands for nothing."""

    def __init__(self, message: Any, profile: Profile) -> None:
        self._message = message
        self._strings = {"": 0}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[tuple[int, tuple[Frame, ...]], int] = {}
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            getattr(message, f"{table}_table").add()
        self._mappings = [each for each in profile.mappings if each.executable]
        for each in self._mappings:
            mapping = message.mapping_table.add(
                memory_start=each.start,
                memory_limit=each.end,
                file_offset=each.offset,
                filename_strindex=self.string(each.name),
            )
            if each.build_id:
                mapping.attribute_indices.append(len(message.attribute_table))
                attribute = message.attribute_table.add(
                    key_strindex=self.string("process.executable.build_id.gnu")
                )
                attribute.value.string_value = each.build_id

    def string(self, text: str) -> int:
        clean = text.encode(errors="replace").decode()
        return self._strings.setdefault(clean, len(self._strings))

    def add(self, stack: Stack) -> int:
        """The index of a call stack."""
        places = zip(stack.addresses, stack.frames or ((),) * len(stack.addresses))
        self._message.stack_table.add(
            location_indices=[self._location(*place) for place in places]
        )
        return len(self._message.stack_table) - 1

    def _location(self, address: int, frames: tuple[Frame, ...]) -> int:
        key = (address, frames)
        if key not in self._locations:
            self._locations[key] = len(self._message.location_table)
            # An address within the call, not behind it.
            location = self._message.location_table.add(address=max(address - 1, 0))
            for number, each in enumerate(self._mappings, 1):
                if each.start <= address - 1 < each.end:
                    location.mapping_index = number
            for frame in frames:
                location.lines.add(
                    function_index=self._function(frame), line=frame.line
                )
        return self._locations[key]

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file, frame.start_line)
        if key not in self._functions:
            self._functions[key] = len(self._message.function_table)
            self._message.function_table.add(
                name_strindex=self.string(frame.function),
                system_name_strindex=self.string(frame.function),
                filename_strindex=self.string(frame.file),
                start_line=frame.start_line,
            )
        return self._functions[key]

    def finish(self) -> None:
        self._message.string_table.extend(self._strings)


def encode(profile: Profile, name: str) -> bytes:
    """The message, which is a request to a collector as well. `name` is that of the program."""
    data = _data_type()()
    dictionary = _Dictionary(data.dictionary, profile)
    stacks = [dictionary.add(stack) for stack in profile.stacks]
    resource = data.resource_profiles.add()
    service = resource.resource.attributes.add(key="service.name")
    service.value.string_value = name
    if profile.process:
        process = resource.resource.attributes.add(key="process.pid")
        process.value.int_value = profile.process
    scope = resource.scope_profiles.add()
    scope.scope.name = "allod"
    duration = profile.since_ms * 1_000_000
    for told, unit, kind, field in VALUES:
        if not profile.sum(kind).bytes:
            continue  # The profile of a while has no peak.
        each = scope.profiles.add(
            time_unix_nano=time.time_ns() - duration,
            duration_nano=duration,
            period=profile.interval,
            profile_id=os.urandom(16),
        )
        for value_type, words in (
            (each.sample_type, (told, unit)),
            (each.period_type, ("space", "bytes")),
        ):
            value_type.type_strindex = dictionary.string(words[0])
            value_type.unit_strindex = dictionary.string(words[1])
        for stack, index in zip(profile.stacks, stacks):
            value = getattr(getattr(stack, kind), field)
            if value:
                each.samples.add(stack_index=index, values=[value])
    dictionary.finish()
    return bytes(data.SerializeToString())
