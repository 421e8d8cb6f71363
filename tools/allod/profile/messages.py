"""Types of protocol buffers from tables, so that no code is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "int32": FIELD.TYPE_INT32,
    "int64": FIELD.TYPE_INT64,
    "uint32": FIELD.TYPE_UINT32,
    "uint64": FIELD.TYPE_UINT64,
    "fixed64": FIELD.TYPE_FIXED64,
    "bool": FIELD.TYPE_BOOL,
    "bytes": FIELD.TYPE_BYTES,
    "string": FIELD.TYPE_STRING,
}


def message_type(package: str, messages: Mapping[str, Sequence[str]], name: str) -> Any:
    """The type of one of these messages, by name. Each field is its name, number and type; "*"
    marks a repeated one."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for each, fields in messages.items():
        message = file.message_type.add(name=each)
        for field in fields:
            field_name, number, kind = field.split()
            plain = kind.removeprefix("*")
            added = message.field.add(name=field_name, number=int(number))
            added.label = (
                FIELD.LABEL_REPEATED if kind.startswith("*") else FIELD.LABEL_OPTIONAL
            )
            if plain in SCALARS:
                added.type = SCALARS[plain]
            else:
                added.type = FIELD.TYPE_MESSAGE
                added.type_name = f".{package}.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{package}.{name}")
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(found)
    # Before version 4.22, which Debian 13 has not.
    return factory.MessageFactory().GetPrototype(found)
