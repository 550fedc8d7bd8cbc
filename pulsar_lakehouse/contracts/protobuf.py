"""Parses Protobuf payloads with the descriptor that the topic's schema holds.

A PROTOBUF_NATIVE schema holds the descriptors of all files. A PROTOBUF schema names the fields of the message only, so
a field that is a message or an enum there is read as the bytes, or as the number, that was written.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.values import Micros, NotReadableError, Value

PARSING_INFO = "__PARSING_INFO__"
"""The property of a PROTOBUF schema that lists its fields."""
WRAPPERS = "google.protobuf.%sValue"
WRAPPED = {
    WRAPPERS % name for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
OPAQUE = {"MESSAGE": "BYTES", "ENUM": "INT32"}


def protobuf_reader(schema: RegisteredSchema) -> Callable[[bytes], Value]:
    """Reads the messages of a schema as dicts. Raises ValueError for a schema that is no descriptor."""
    try:
        kind = message_factory.GetMessageClass(
            _native(schema.data) if schema.type == "PROTOBUF_NATIVE" else _listed(schema.properties)
        )
    except (KeyError, TypeError, DecodeError) as error:
        raise ValueError(str(error)) from error

    def read(payload: bytes) -> Value:
        try:
            return _tree(kind.FromString(payload))
        except (DecodeError, UnicodeDecodeError):
            raise NotReadableError("no Protobuf message") from None

    return read


def _native(data: str) -> Descriptor:
    told = json.loads(data)
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(told["fileDescriptorSet"]))
    pool, waiting = descriptor_pool.DescriptorPool(), list(files.file)
    while waiting:  # a file comes after those that it imports
        added = {each.name for each in waiting}
        ready = [each for each in waiting if not added & set(each.dependency)] or waiting
        for each in ready:
            pool.Add(each)
            waiting.remove(each)
    return pool.FindMessageTypeByName(told["rootMessageTypeName"])


def _listed(properties: Mapping[str, str]) -> Descriptor:
    file = descriptor_pb2.FileDescriptorProto(name="listed.proto", syntax="proto2")
    message = file.message_type.add(name="Listed")
    for each in json.loads(properties[PARSING_INFO]):
        field = message.field.add(name=each["name"], number=each["number"])
        field.type = field.Type.Value(f"TYPE_{OPAQUE.get(each['type'], each['type'])}")
        field.label = field.Label.Value(each["label"])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName("Listed")


def _tree(message: Message) -> Value:
    """The fields by name. One that is not set is None if that can be told from its default."""
    return {field.name: _value_of(message, field) for field in type(message).DESCRIPTOR.fields}


def _value_of(message: Message, field: Any) -> Value:
    value = getattr(message, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        return {_map_key(key): _one(value[key], of_value) for key in value}
    if field.is_repeated:
        return [_one(each, field) for each in value]
    return None if field.has_presence and not message.HasField(field.name) else _one(value, field)


def _map_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one(value: Value, field: Any) -> Value:
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if not field.message_type:
        return value
    if field.message_type.full_name == timestamp_pb2.Timestamp.DESCRIPTOR.full_name:
        return Micros(value.seconds * 1_000_000 + value.nanos // 1000)
    return value.value if field.message_type.full_name in WRAPPED else _tree(value)
