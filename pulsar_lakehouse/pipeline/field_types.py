"""The fields of a topic that nobody has declared: as its schema has them, or as its payloads look."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.tables.declared import quoted

AVRO = {"boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "DOUBLE", "double": "DOUBLE"}
AVRO |= {"string": "STRING", "enum": "STRING"}
LOGICAL = {"date": "DATE", "timestamp-millis": "TIMESTAMP_MILLIS", "timestamp-micros": "TIMESTAMP_MICROS"}
BIGINT = range(-(2**63), 2**63)
TIMES = range(978_307_200_000, 4_102_444_800_000)
"""Numbers that are taken for times in epoch milliseconds: the years 2001 to 2099."""

ID = re.compile("(^|_|[a-z])[Ii][Dd]$")
"""A field with such a name has no times, however large its numbers are."""


@dataclass(frozen=True, kw_only=True)
class Field:
    name: str
    ddl: str
    """Its type; empty if it is none that SQL has."""
    seen: str
    """What was found, for people."""
    is_required: bool = False

    @property
    def is_declarable(self) -> bool:
        """Whether a topic can have a field of this name and type."""
        try:
            Topic("topic", f"`{self.name}` {self.ddl}")
        except ConfigurationError:
            return False
        return self.name.isprintable() and not set(self.name) & set("\"'\\")


def fields_of_record(record: Mapping[str, Any]) -> list[Field]:
    """The fields of an Avro record; those that can't be NULL are required."""
    return [
        Field(
            name=each["name"],
            ddl=_of_avro(each["type"]),
            seen=_shown(each["type"], 80),
            is_required="null" not in (each["type"] if isinstance(each["type"], list) else [each["type"]]),
        )
        for each in record.get("fields", ())
    ]


def fields_of_payloads(payloads: Iterable[Mapping[str, Any]]) -> list[Field]:
    """The fields of JSON objects, in the order in which they appear. None of them is required."""
    values: dict[str, list[Any]] = {}
    for payload in payloads:
        for name, value in payload.items():
            values.setdefault(name, []).append(value)
    return [
        Field(name=name, ddl=_of_values(of, name), seen=f"such as {_shown(of[-1], 60)}") for name, of in values.items()
    ]


def _shown(value: Any, width: int) -> str:
    return shorten(json.dumps(value), width, placeholder=" ...")


def are_times(values: Sequence[Any]) -> bool:
    return bool(values) and all(type(value) is int and value in TIMES for value in values)


def _of_avro(kind: Any) -> str:
    match kind:
        case [one] | ["null", one] | [one, "null"]:
            return _of_avro(one)
        case {"logicalType": logical} if logical in LOGICAL:
            return LOGICAL[logical]
        case {"logicalType": "decimal", "precision": precision}:
            return f"DECIMAL({precision}, {kind.get('scale', 0)})"
        case {"type": "record", "fields": fields}:
            return _struct({each["name"]: _of_avro(each["type"]) for each in fields})
        case {"type": "array", "items": items}:
            return _of("ARRAY<{}>", _of_avro(items))
        case {"type": "map", "values": values}:
            return _of("MAP<STRING, {}>", _of_avro(values))
        case {"type": inner}:
            return _of_avro(inner)
    return AVRO.get(kind, "") if isinstance(kind, str) else ""


def _of_values(values: Sequence[Any], name: str = "") -> str:
    given = [value for value in values if value is not None]
    kinds = {type(value) for value in given}
    if kinds == {bool}:
        return "BOOLEAN"
    if are_times(given) and not ID.search(name):
        return "TIMESTAMP_MILLIS"
    if kinds == {int}:
        return "BIGINT" if all(value in BIGINT for value in given) else "DECIMAL(38, 0)"
    if kinds and kinds <= {int, float}:
        return "DOUBLE"
    if kinds == {str}:
        return "STRING"
    if kinds == {dict}:
        return _struct({each.name: each.ddl for each in fields_of_payloads(given)})
    if kinds == {list}:
        return _of("ARRAY<{}>", _of_values([each for value in given for each in value]))
    return ""


def _struct(fields: Mapping[str, str]) -> str:
    inner = ", ".join(f"{quoted(name)}: {ddl}" for name, ddl in fields.items())
    return _of("STRUCT<{}>", inner if all(fields.values()) else "")


def _of(outer: str, inner: str) -> str:
    return outer.format(inner) if inner else ""
