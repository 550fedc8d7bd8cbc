"""The fields of a topic that nobody has declared: as its schema has them, or as its payloads look."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from sqlglot import TokenType, tokenize

from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError

AVRO = {"boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "DOUBLE", "double": "DOUBLE"}
AVRO |= {"string": "STRING", "enum": "STRING", "bytes": "BINARY", "fixed": "BINARY"}
LOGICAL = {"date": "DATE", "timestamp-millis": "TIMESTAMP_MILLIS", "timestamp-micros": "TIMESTAMP_MICROS"}
CONNECT = {
    "io.debezium.time.Date": "DATE",
    "io.debezium.time.Timestamp": "TIMESTAMP_MILLIS",
    "io.debezium.time.MicroTimestamp": "TIMESTAMP_MICROS",
    "io.debezium.time.ZonedTimestamp": "TIMESTAMP",
    "io.debezium.data.VariableScaleDecimal": "DECIMAL(38, 9)",
}
"""By the names of Debezium's types."""
Named = Mapping[str, Any]
"""The types that a schema has named, by name."""
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
        return f"{self.name}{self.ddl}".isprintable() and not set(f"{self.name}{self.ddl}") & set("\"'\\")


def fields_of_record(record: Mapping[str, Any], encoding: Encoding) -> list[Field]:
    """The fields of an Avro record; those that can't be NULL are required, but in Protobuf, which lacks defaults."""
    named = dict(_named(record, ""))
    return [
        Field(
            name=each["name"],
            ddl=_of_avro(each["type"], encoding, named),
            seen=_shown(each["type"], 80),
            is_required=encoding is not Encoding.PROTOBUF
            and "null" not in (each["type"] if isinstance(each["type"], list) else [each["type"]]),
        )
        for each in record.get("fields", ())
    ]


def _named(schema: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """The records and enums in a schema, by name, with and without their namespace."""
    match schema:
        case list():
            for each in schema:
                yield from _named(each, namespace)
        case {"type": "record" | "enum", "name": str(name)}:
            namespace = name.rpartition(".")[0] or schema.get("namespace", namespace)
            yield from ((each, schema) for each in (name, f"{namespace}.{name}"))
            for field in schema.get("fields", ()):
                yield from _named(field["type"], namespace)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner} | {"type": inner}:
            yield from _named(inner, namespace)


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


def _of_avro(kind: Any, encoding: Encoding, named: Named) -> str:
    match kind:
        case [one] | ["null", one] | [one, "null"]:
            return _of_avro(one, encoding, named)
        case {"logicalType": logical} if logical in LOGICAL:
            return LOGICAL[logical]
        case {"logicalType": "decimal", "precision": precision}:
            return f"DECIMAL({min(precision, 38)}, {kind.get('scale', 0)})"
        case {"connect.name": name} if name in CONNECT:
            return CONNECT[name]
        case {"type": "record", "fields": fields} if encoding is not Encoding.PROTOBUF:  # which reads them as bytes
            others = {name: each for name, each in named.items() if each is not kind}  # one in itself has no type
            return struct_of({each["name"]: _of_avro(each["type"], encoding, others) for each in fields})
        case {"type": "array", "items": items}:
            return array_of(_of_avro(items, encoding, named))
        case {"type": "map", "values": values}:
            return _of("MAP<STRING, {}>", _of_avro(values, encoding, named))
        case {"type": inner}:
            return _of_avro(inner, encoding, named)
        case str() if kind in named:
            return _of_avro(named[kind], encoding, named)
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
        return struct_of({each.name: each.ddl for each in fields_of_payloads(given)})
    if kinds == {list}:
        return array_of(_of_values([each for value in given for each in value]))
    return ""


def struct_of(fields: Mapping[str, str]) -> str:
    inner = ", ".join(f"{quoted(name)}: {ddl}" for name, ddl in fields.items())
    return _of("STRUCT<{}>", inner if all(fields.values()) else "")


def quoted(name: str) -> str:
    """A field's name in SQL: in backticks unless it is a word that SQL has no other use for."""
    is_word = re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII) and tokenize(name)[0].token_type is TokenType.VAR
    return name if is_word else f"`{name}`"


def array_of(inner: str) -> str:
    return _of("ARRAY<{}>", inner)


def _of(outer: str, inner: str) -> str:
    return outer.format(inner) if inner else ""
