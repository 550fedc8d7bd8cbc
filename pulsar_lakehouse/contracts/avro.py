"""Parses Avro payloads with the schema that each was written with.

A field that this schema lacks is resolved as Avro's specification says: by the aliases and the default that a newer
schema of the topic has for it. The types of values are resolved by the declared fields, see values.py.
"""

import io
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import fastavro

from pulsar_lakehouse.contracts.avro_schemas import Avro, Written
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.values import Days, Micros, Millis, NotReadableError, Value, number_of

TIMES: Mapping[str, type[int]] = {"timestamp-millis": Millis, "timestamp-micros": Micros, "date": Days}
"""Also of local times, which count as those of UTC. Nanoseconds are cut off."""
OFFSET = "__AVRO_READ_OFFSET__"
"""The property of a schema with the number of bytes before each record: Connect's converter writes an id there."""
OWN = "lakehouse-"
"""Precedes the logical types that are read here: fastavro's own readers fail for values out of range."""


class AvroReader:
    """Reads the records of one schema."""

    def __init__(self, schema: RegisteredSchema, newest: str = "") -> None:
        """`newest` is the schema whose aliases and defaults count; by default, the same. Raises ValueError."""
        self._version, self._offset = schema.version, int(schema.properties.get(OFFSET, 0))
        try:
            self._written = fastavro.parse_schema(_with_own_readers(json.loads(schema.data)))
            self._resolution = _Resolution(schema.data, newest) if newest not in ("", schema.data) else None
        except Exception as error:  # of many types, by what is wrong with the schema
            raise ValueError(str(error)) from error

    def read(self, payload: bytes) -> Value:
        """The record of a payload, as a dict, or another value. Raises NotReadableError."""
        data = io.BytesIO(payload)
        data.seek(self._offset)
        try:
            value = fastavro.schemaless_reader(data, self._written, None, handle_unicode_errors="surrogateescape")
        except Exception:  # of many types, by what the bytes happen to be
            value, data = None, io.BytesIO()
        if data.tell() < len(payload):
            raise NotReadableError(f"no Avro record of schema version {self._version}")
        return self._resolution.resolved(value) if self._resolution else value


class _Resolution:
    """What records of a schema lack that a newer one has."""

    def __init__(self, schema: str, newest: str) -> None:
        self._schema, self._newest = Written(schema), Written(newest)

    def resolved(self, value: Value) -> Value:
        return self._resolved(value, self._schema.record, self._newest.record)

    def _resolved(self, value: Value, written: Avro, newest: Avro) -> Value:
        match value:
            case str() if enum := _one(self._newest.branches(newest), "enum"):
                return value if value in enum["symbols"] else enum.get("default", value)
            case list():
                return [self._resolved(each, *self._within(written, newest, "array", "items")) for each in value]
            case dict() if _one(self._schema.branches(written), "map"):
                inner = self._within(written, newest, "map", "values")
                return {name: self._resolved(each, *inner) for name, each in value.items()}
            case dict():
                return self._record(value, *self._within(written, newest, "record", "fields"))
        return value

    def _within(self, written: Avro, newest: Avro, kind: str, part: str) -> tuple[Avro, Avro]:
        of_written = _one(self._schema.branches(written), kind) or {}
        of_newest = _one(self._newest.branches(newest), kind) or {}
        return of_written.get(part, []), of_newest.get(part, [])

    def _record(self, value: dict[str, Value], written: Avro, newest: Avro) -> Value:
        kinds = {field["name"]: field["type"] for field in written}
        fields = {field["name"]: field for field in newest}
        values = {
            name: self._resolved(each, kinds[name], fields.get(name, NO_FIELD)["type"]) for name, each in value.items()
        }
        for name in fields.keys() - value.keys():
            field = fields[name]
            if former := next((alias for alias in field.get("aliases", ()) if alias in value), None):
                values[name] = self._resolved(value[former], kinds[former], field["type"])
            elif "default" in field:
                values[name] = _default(field["default"], self._newest.branches(field["type"]))
        return values


NO_FIELD: Mapping[str, Avro] = {"type": []}


def _one(branches: Iterable[Avro], kind: str) -> Avro:
    return next((each for each in branches if each["type"] == kind), None)


def _default(value: Any, branches: list[Avro]) -> Value:
    """A default, which schemas have as JSON, as the value of the type."""
    if isinstance(value, str) and any(each["type"] in ("bytes", "fixed") for each in branches):
        data = value.encode("latin-1")  # by the specification
        decimal = next((each for each in branches if each.get("logicalType") == "decimal"), None)
        return _decimal(data, decimal) if decimal else data
    time = next((each.get("logicalType", "") for each in branches if each["type"] in ("int", "long")), "")
    made = TIMES.get(time.removeprefix("local-"))
    return made(value) if made and isinstance(value, int) else value


def _decimal(data: bytes, schema: Any, _: object = None) -> Decimal:
    """All digits, even more than the schema says."""
    return number_of(data, schema.get("scale", 0))


def _with_own_readers(schema: Avro) -> Avro:
    match schema:
        case list():
            return [_with_own_readers(each) for each in schema]
        case {"type": "array", "items": "null"}:
            raise ValueError("an array of null: a few bytes can stand for any number of them")
        case dict():
            made = {
                name: _with_own_readers(each) if name in ("type", "items", "values", "fields") else each
                for name, each in schema.items()
            }
            return made | {"logicalType": f"{OWN}{schema['logicalType']}"} if "logicalType" in schema else made
    return schema


for prefix in ("", "local-"):
    for name, made in TIMES.items():
        for kind in ("int", "long"):
            fastavro.read.LOGICAL_READERS[f"{kind}-{OWN}{prefix}{name}"] = lambda value, *_, made=made: made(value)
    fastavro.read.LOGICAL_READERS[f"long-{OWN}{prefix}timestamp-nanos"] = lambda value, *_: Micros(value // 1000)
for kind in ("bytes", "fixed"):
    fastavro.read.LOGICAL_READERS[f"{kind}-{OWN}decimal"] = _decimal
