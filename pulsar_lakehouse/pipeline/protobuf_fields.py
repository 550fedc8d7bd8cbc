"""The fields of a topic whose schema is a Protobuf descriptor."""

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.pipeline.field_types import Field, array_of, struct_of

Messages = Mapping[str, DescriptorProto]
"""By full name, such as `.shop.Store`."""
Named = Iterable[tuple[str, DescriptorProto]]
KINDS = {
    **dict.fromkeys(("DOUBLE", "FLOAT"), "DOUBLE"),
    **dict.fromkeys(("INT32", "SINT32", "SFIXED32"), "INT"),
    **dict.fromkeys(("INT64", "SINT64", "SFIXED64", "UINT32", "FIXED32"), "BIGINT"),
    **dict.fromkeys(("UINT64", "FIXED64"), "DECIMAL(20, 0)"),
    **dict.fromkeys(("STRING", "ENUM"), "STRING"),
    "BOOL": "BOOLEAN",
}
WELL_KNOWN = {
    ".google.protobuf.Timestamp": "TIMESTAMP",
    **{
        f".google.protobuf.{name}Value": KINDS[name.upper()]
        for name in ("Double", "Float", "Int32", "Int64", "UInt32", "UInt64", "Bool", "String")
    },
}


def fields_of_descriptor(schema: RegisteredSchema) -> list[Field]:
    """The fields of a PROTOBUF_NATIVE schema; none if it can't be read."""
    try:
        told = json.loads(schema.data)
        files = FileDescriptorSet.FromString(b64decode(told["fileDescriptorSet"])).file
        packages = ((f".{file.package}" if file.package else "", file.message_type) for file in files)
        messages = dict(each for package, found in packages for each in _named(package, found))
        root = messages[f".{told['rootMessageTypeName']}"]
    except (ValueError, KeyError, TypeError, DecodeError):
        return []
    return [Field(name=each.name, ddl=_of(each, messages), seen=_seen(each)) for each in root.field]


def _named(within: str, messages: Iterable[DescriptorProto]) -> Named:
    for each in messages:
        name = f"{within}.{each.name}"
        yield name, each
        yield from _named(name, each.nested_type)


def _of(field: FieldDescriptorProto, messages: Messages) -> str:
    inner = messages.get(field.type_name)
    if inner and inner.options.map_entry:
        value = _of(inner.field[1], messages)
        return f"MAP<STRING, {value}>" if value else ""
    one = _one(field, messages)
    return array_of(one) if field.label == FieldDescriptorProto.LABEL_REPEATED else one


def _one(field: FieldDescriptorProto, messages: Messages) -> str:
    if field.type_name in WELL_KNOWN:
        return WELL_KNOWN[field.type_name]
    if inner := messages.get(field.type_name):
        others = {name: each for name, each in messages.items() if each is not inner}  # one in itself has no type
        return struct_of({each.name: _of(each, others) for each in inner.field})
    return KINDS.get(_seen(field), "")


def _seen(field: FieldDescriptorProto) -> str:
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_")
